//! From the bytes of a body to those of its content, with a limit on what comes out.

use std::io::Read;

use super::limits;

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

/// The accepted encodings, as the header lists them.
pub const ACCEPTED: &str = "zstd, gzip, identity";

/// 8 MiB: what the default levels of zstd use at most. A frame may ask its reader for a thousand times that.
const WINDOW_LOG: u32 = 23;

/// Most bodies are no larger.
const FIRST_PIECE: usize = 128 << 10;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBody {
    #[error("unpacked, the body is larger than {} MiB", limits::UNPACKED >> 20)]
    TooLarge,
    #[error("the body is not what its Content-Encoding says")]
    Broken,
    #[error("there is no room for the body now")]
    NoRoom,
}

impl Encoding {
    /// `None` for one we do not know, or several on top of each other.
    pub fn named(header: &str) -> Option<Self> {
        match header.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// `more` is asked before memory is taken beyond the body itself: whether there is room for so many bytes.
    pub fn unpack(self, body: Vec<u8>, more: impl FnMut(usize) -> bool) -> Result<Vec<u8>, BadBody> {
        match self {
            Self::Identity if body.len() > limits::UNPACKED => Err(BadBody::TooLarge),
            Self::Identity => Ok(body),
            Self::Gzip => read(flate2::read::MultiGzDecoder::new(&*body), more),
            Self::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(&*body).map_err(|_| BadBody::Broken)?;
                decoder.window_log_max(WINDOW_LOG).map_err(|_| BadBody::Broken)?;
                read(decoder, more)
            }
        }
    }
}

/// In pieces, each as large as all before it.
fn read(mut decoder: impl Read, mut more: impl FnMut(usize) -> bool) -> Result<Vec<u8>, BadBody> {
    let mut content = Vec::new();
    loop {
        // One byte beyond the limit shows that it is passed.
        let piece = content.len().max(FIRST_PIECE).min(limits::UNPACKED + 1 - content.len());
        if !more(piece) {
            return Err(BadBody::NoRoom);
        }
        content.reserve_exact(piece);
        let piece = u64::try_from(piece).unwrap_or(u64::MAX);
        let read = decoder.by_ref().take(piece).read_to_end(&mut content).map_err(|_| BadBody::Broken)?;
        if content.len() > limits::UNPACKED {
            return Err(BadBody::TooLarge);
        }
        if u64::try_from(read).is_ok_and(|read| read < piece) {
            return Ok(content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn always(_: usize) -> bool {
        true
    }

    fn packed(encoding: Encoding, content: &[u8]) -> Vec<u8> {
        match encoding {
            Encoding::Identity => content.to_owned(),
            Encoding::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(content).unwrap();
                encoder.finish().unwrap()
            }
            Encoding::Zstd => zstd::encode_all(content, 3).unwrap(),
        }
    }

    #[test]
    fn packed_bodies_are_unpacked_and_broken_ones_are_errors() {
        let content = b"[{\"id\":1}]".repeat(1000);
        for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
            let body = packed(encoding, &content);
            assert_eq!(encoding.unpack(body.clone(), always).as_deref(), Ok(&*content), "{encoding:?}");
            if encoding != Encoding::Identity {
                assert_eq!(
                    encoding.unpack(body[..body.len() / 2].to_vec(), always),
                    Err(BadBody::Broken),
                    "{encoding:?}"
                );
                assert_eq!(encoding.unpack(b"plain".to_vec(), always), Err(BadBody::Broken), "{encoding:?}");
                assert_eq!(encoding.unpack(Vec::new(), always).map_or(0, |content| content.len()), 0);
            }
        }
    }

    #[test]
    fn a_small_body_that_unpacks_to_a_huge_one_is_an_error() {
        // A gigabyte of zeros in some kilobytes.
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            let mut bomb = packed(encoding, &vec![0; limits::UNPACKED]);
            assert_eq!(
                encoding.unpack(bomb.clone(), always).map(|content| content.len()),
                Ok(limits::UNPACKED)
            );
            bomb.extend(packed(encoding, &[0]));
            assert_eq!(encoding.unpack(bomb, always), Err(BadBody::TooLarge), "{encoding:?}");
        }
        // A frame that asks for a window of a gigabyte.
        let mut greedy = zstd::Encoder::new(Vec::new(), 3).unwrap();
        greedy.window_log(30).unwrap();
        greedy.write_all(&vec![7; 1 << 20]).unwrap();
        assert_eq!(Encoding::Zstd.unpack(greedy.finish().unwrap(), always), Err(BadBody::Broken));
    }

    #[test]
    fn memory_is_reserved_before_it_is_used() {
        let size = 3 << 20;
        for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
            let body = packed(encoding, &vec![b' '; size]);
            let mut taken = 0;
            let count = |bytes| {
                taken += bytes;
                true
            };
            let content = encoding.unpack(body.clone(), count).unwrap();
            assert_eq!(content.len(), size);
            if encoding == Encoding::Identity {
                assert_eq!(taken, 0, "the body itself is the content");
                continue;
            }
            assert!(
                (size..=3 * size).contains(&taken) && content.capacity() <= taken,
                "{encoding:?}: {taken}"
            );
            let mut left = size / 2;
            let little = |bytes| match left.checked_sub(bytes) {
                Some(rest) => {
                    left = rest;
                    true
                }
                None => false,
            };
            assert_eq!(encoding.unpack(body, little), Err(BadBody::NoRoom), "{encoding:?}");
        }
    }

    #[test]
    fn encodings_by_name() {
        for (header, expected) in [
            ("", Some(Encoding::Identity)),
            ("identity", Some(Encoding::Identity)),
            ("ZSTD", Some(Encoding::Zstd)),
            (" gzip ", Some(Encoding::Gzip)),
            ("br", None),
            ("gzip, zstd", None),
        ] {
            assert_eq!(Encoding::named(header), expected, "{header}");
        }
    }
}
