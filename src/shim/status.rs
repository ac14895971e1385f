//! What a call of an agent by its own name runs, given what stands on PATH.

use std::path::PathBuf;

use super::resolve::{Place, Verdict};

/// What a shell without aliases of its own would run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// codemie, by whichever shim comes first.
    Wrapped(PathBuf),
    /// The agent itself; codemie knows nothing of it.
    Bare(PathBuf),
    Nothing,
}

impl Reach {
    /// `places` is a survey of PATH, in its order.
    pub fn of(places: &[Place]) -> Self {
        places
            .iter()
            .find_map(|Place { path, verdict }| match verdict {
                Verdict::SameFile | Verdict::OtherCopy | Verdict::ScriptShim => {
                    Some(Self::Wrapped(path.clone()))
                }
                Verdict::Real => Some(Self::Bare(path.clone())),
                Verdict::NotFound | Verdict::NotExecutable | Verdict::Directory | Verdict::Unreachable(_) => {
                    None
                }
            })
            .unwrap_or(Self::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_can_be_run_is_what_is_run() {
        let at = |path: &str, verdict| Place { path: path.into(), verdict };
        let places = [
            at("/none/claude", Verdict::NotFound),
            at("/text/claude", Verdict::NotExecutable),
            at("/shims/claude", Verdict::SameFile),
            at("/real/claude", Verdict::Real),
        ];
        assert_eq!(Reach::of(&places), Reach::Wrapped("/shims/claude".into()));
        assert_eq!(Reach::of(&places[..2]), Reach::Nothing);
        assert_eq!(Reach::of(&places[3..]), Reach::Bare("/real/claude".into()));
    }
}
