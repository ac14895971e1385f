//! The texts of tool calls: how much of them is kept, and how their lines are counted. The same for every agent.

/// Longest name of a tool that is kept.
pub(crate) const MAX_NAME: usize = 256;

/// Longest path of a file that is kept: `PATH_MAX`.
pub(crate) const MAX_PATH: usize = 4096;

/// The beginning of a text, at most `limit` bytes; no letter is cut in two.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    text[..text.floor_char_boundary(limit)].to_owned()
}

/// Lines of a text, an unfinished last one included.
pub(crate) fn line_count(text: &str) -> u64 {
    u64::try_from(text.lines().count()).unwrap_or(u64::MAX)
}
