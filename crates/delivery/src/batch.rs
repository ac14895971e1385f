//! How many events go into one request: by number, by size, and by what the receiver accepts. Pure.

use std::io;

use store::Outgoing;

/// Events in one request; the receiver's transaction stays short.
pub const MAX_EVENTS: usize = 500;
/// Bytes in one request before compression, well below what a proxy on the way lets through.
pub const MAX_BYTES: usize = 512 * 1024;

/// How many events the receiver accepts in one request, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    now: usize,
    most: usize,
}

impl Size {
    pub fn new(most: usize) -> Self {
        Self { now: most.max(1), most: most.max(1) }
    }

    pub fn events(self) -> usize {
        self.now
    }

    /// `sent` events were too many. False if it was one event, which cannot be halved.
    pub fn halve(&mut self, sent: usize) -> bool {
        self.now = (sent / 2).max(1);
        sent > 1
    }

    /// The last request was accepted: the next may hold twice as many.
    pub fn grow(&mut self) {
        self.now = self.now.saturating_mul(2).min(self.most);
    }
}

/// How many of the events, given by their lengths, go into one request: at least one.
pub fn cut(lengths: impl IntoIterator<Item = usize>) -> usize {
    let mut bytes = 0_usize;
    let fits = lengths.into_iter().take_while(|length| {
        bytes = bytes.saturating_add(*length);
        bytes <= MAX_BYTES
    });
    fits.count().max(1)
}

/// How many of these events one request may hold. What stands around an event's attributes takes some 300 bytes.
pub fn fits(events: &[Outgoing]) -> usize {
    cut(events.iter().map(|event| length(&event.attributes) + 300)).min(events.len())
}

/// How long the attributes are as JSON.
fn length(attributes: &types::Attributes) -> usize {
    struct Counted(usize);

    impl io::Write for Counted {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut counted = Counted(0);
    // Texts and numbers always have a JSON form, and counting cannot fail.
    let _ = serde_json::to_writer(&mut counted, attributes);
    counted.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_halves_down_to_one_and_grows_back() {
        let mut size = Size::new(500);
        let mut seen = Vec::new();
        let mut sent = 500;
        while size.halve(sent) {
            sent = size.events();
            seen.push(sent);
        }
        assert_eq!(seen, [250, 125, 62, 31, 15, 7, 3, 1]);
        assert_eq!(size.events(), 1);
        for expected in [2, 4, 8, 16, 32, 64, 128, 256, 500, 500] {
            size.grow();
            assert_eq!(size.events(), expected);
        }
    }

    #[test]
    fn request_is_bounded_by_bytes_but_never_empty() {
        for (lengths, expected) in [
            (vec![], 1),
            (vec![10, 10], 2),
            (vec![MAX_BYTES, 1], 1),
            (vec![MAX_BYTES + 1, 1], 1),
            (vec![MAX_BYTES / 2, MAX_BYTES / 2, 1], 2),
            (vec![usize::MAX, usize::MAX], 1),
        ] {
            assert_eq!(cut(lengths.clone()), expected, "{lengths:?}");
        }
    }
}
