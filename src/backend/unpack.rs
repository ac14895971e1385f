//! From the bytes of a body to those of its content, with a limit on what comes out.

use std::io::{self, Read};

use super::limits;

/// How a body is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

/// What we take, in the words of the header that says so.
pub const ACCEPTED: &str = "zstd, gzip, identity";

/// 8 MiB: what the default levels of zstd use at most. A frame may ask its reader for a thousand times that.
const WINDOW_LOG: u32 = 23;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBody {
    #[error("unpacked, the body is larger than {} MiB", limits::UNPACKED >> 20)]
    TooLarge,
    #[error("the body is not what its Content-Encoding says")]
    Broken,
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

    pub fn unpack(self, body: Vec<u8>) -> Result<Vec<u8>, BadBody> {
        match self {
            Self::Identity if body.len() > limits::UNPACKED => Err(BadBody::TooLarge),
            Self::Identity => Ok(body),
            Self::Gzip => read(flate2::read::MultiGzDecoder::new(&*body)),
            Self::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(&*body).map_err(|_| BadBody::Broken)?;
                decoder.window_log_max(WINDOW_LOG).map_err(|_| BadBody::Broken)?;
                read(decoder)
            }
        }
    }
}

fn read(decoder: impl Read) -> Result<Vec<u8>, BadBody> {
    let limit = u64::try_from(limits::UNPACKED).unwrap_or(u64::MAX);
    let mut content = Vec::new();
    let outcome: io::Result<usize> = decoder.take(limit + 1).read_to_end(&mut content);
    if content.len() > limits::UNPACKED {
        return Err(BadBody::TooLarge);
    }
    outcome.map(|_| content).map_err(|_| BadBody::Broken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

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
    fn what_was_packed_is_unpacked_and_what_was_broken_is_told() {
        let content = b"[{\"id\":1}]".repeat(1000);
        for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
            let body = packed(encoding, &content);
            assert_eq!(encoding.unpack(body.clone()).as_deref(), Ok(&*content), "{encoding:?}");
            if encoding != Encoding::Identity {
                assert_eq!(
                    encoding.unpack(body[..body.len() / 2].to_vec()),
                    Err(BadBody::Broken),
                    "{encoding:?}"
                );
                assert_eq!(encoding.unpack(b"plain".to_vec()), Err(BadBody::Broken), "{encoding:?}");
                assert_eq!(encoding.unpack(Vec::new()).map_or(0, |content| content.len()), 0);
            }
        }
    }

    #[test]
    fn a_bomb_does_not_go_off() {
        // A gigabyte of zeros in some kilobytes.
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            let mut bomb = packed(encoding, &vec![0; limits::UNPACKED]);
            assert_eq!(encoding.unpack(bomb.clone()).map(|content| content.len()), Ok(limits::UNPACKED));
            bomb.extend(packed(encoding, &[0]));
            assert_eq!(encoding.unpack(bomb), Err(BadBody::TooLarge), "{encoding:?}");
        }
        // A frame that asks for a window of a gigabyte.
        let mut greedy = zstd::Encoder::new(Vec::new(), 3).unwrap();
        greedy.window_log(30).unwrap();
        greedy.write_all(&vec![7; 1 << 20]).unwrap();
        assert_eq!(Encoding::Zstd.unpack(greedy.finish().unwrap()), Err(BadBody::Broken));
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
