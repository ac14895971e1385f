//! What a call of an agent by its own name runs, given what stands on PATH.

use std::path::PathBuf;

use super::resolve::{PathKind, SearchedPath};

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
    pub fn of(places: &[SearchedPath]) -> Self {
        places
            .iter()
            .find_map(|SearchedPath { path, kind }| match kind {
                PathKind::SameFile | PathKind::OtherCopy | PathKind::ScriptShim => {
                    Some(Self::Wrapped(path.clone()))
                }
                PathKind::Real => Some(Self::Bare(path.clone())),
                PathKind::NotFound
                | PathKind::NotExecutable
                | PathKind::Directory
                | PathKind::Unreachable(_) => None,
            })
            .unwrap_or(Self::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_can_be_run_is_what_is_run() {
        let at = |path: &str, kind| SearchedPath { path: path.into(), kind };
        let places = [
            at("/none/claude", PathKind::NotFound),
            at("/text/claude", PathKind::NotExecutable),
            at("/shims/claude", PathKind::SameFile),
            at("/real/claude", PathKind::Real),
        ];
        assert_eq!(Reach::of(&places), Reach::Wrapped("/shims/claude".into()));
        assert_eq!(Reach::of(&places[..2]), Reach::Nothing);
        assert_eq!(Reach::of(&places[3..]), Reach::Bare("/real/claude".into()));
    }
}
