//! A stretch of time.

use crate::Timestamp;

/// From a moment up to another, which is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

impl Span {
    pub fn since(at: Timestamp) -> Self {
        Self { since: Some(at), until: None }
    }

    pub fn holds(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at < until)
    }

    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_holds_its_beginning_and_not_its_end() {
        let span = Span { since: Some(Timestamp(5)), until: Some(Timestamp(7)) };
        assert_eq!([4, 5, 6, 7].map(|at| span.holds(Timestamp(at))), [false, true, true, false]);
        assert!(Span::default().holds(Timestamp(i64::MIN)) && Span::default().is_everything());
    }
}
