//! Text from outside, bounded in length: it is kept for good, shown in tables and sent on.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use types::hex::hex;

/// A name or an id of anything.
pub const NAME: usize = 256;
/// A path; no system opens a longer one.
pub const PATH: usize = 4096;
/// A sentence of evidence.
pub const SENTENCE: usize = 4096;

/// At most `most` characters. Of a longer text the beginning and a hash of all of it, so that two texts stay different.
pub fn short(text: &str, most: usize) -> Cow<'_, str> {
    const HASH: usize = 16;
    if text.len() <= most || text.chars().count() <= most {
        return Cow::Borrowed(text);
    }
    let hash = hex(&Sha256::digest(text.as_bytes())[..HASH / 2]);
    let begin: String = text.chars().take(most.saturating_sub(HASH + 1)).collect();
    Cow::Owned(format!("{begin}~{hash}"))
}

/// The same in place.
pub fn shorten(text: &mut String, most: usize) {
    if let Cow::Owned(short) = short(text, most) {
        *text = short;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_their_beginning_and_stay_different() {
        assert_eq!(short("claude", NAME), "claude");
        let most = "修".repeat(NAME);
        assert_eq!(short(&most, NAME), most.as_str());
        let (one, two) = (format!("{}1", "x".repeat(70_000)), format!("{}2", "x".repeat(70_000)));
        assert_eq!(short(&one, NAME).chars().count(), NAME);
        assert!(short(&one, NAME).starts_with("xxx") && short(&one, NAME) != short(&two, NAME));
        assert_eq!(short(&short(&one, NAME), NAME), short(&one, NAME), "shortened once");
    }
}
