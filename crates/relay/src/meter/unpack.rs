//! Compressed bodies, in pieces of any length.

use std::fmt;
use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use zstd::stream::raw::DParameter;
use zstd::stream::{write as zstd_write, zio};

/// What is decompressed at once. It is handed on before more is.
const PIECE: usize = 16 << 10;
/// As RFC 9659 has it for HTTP: 8 MiB. Without it a sender could ask for 128 MiB.
const ZSTD_WINDOW: u32 = 23;

/// The compression that headers name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
    Deflate,
    Brotli,
    Zstd,
}

impl Encoding {
    /// `None`: one that is not known here, or several, which no API was seen to use.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let mut names = headers
            .get_all(CONTENT_ENCODING)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
            .map(|name| name.trim_ascii().to_ascii_lowercase())
            .filter(|name| !name.is_empty() && name != b"identity");
        let name = names.next();
        if names.next().is_some() {
            return None;
        }
        match name.as_deref() {
            None => Some(Self::Identity),
            Some(b"gzip" | b"x-gzip") => Some(Self::Gzip),
            Some(b"deflate") => Some(Self::Deflate),
            Some(b"br") => Some(Self::Brotli),
            Some(b"zstd") => Some(Self::Zstd),
            Some(_) => None,
        }
    }
}

/// Hands the plain bytes on to `W` as soon as they are known.
pub(super) enum Unpacker<W: Write> {
    Plain(W),
    Inflate(Inflate, W),
    Brotli(Box<DecompressorWriter<W>>),
    Zstd(Box<zstd_write::Decoder<'static, W>>),
}

impl<W: Write> Unpacker<W> {
    /// `Err` where the compression is not known here.
    pub(super) fn new(headers: &HeaderMap, into: W) -> Result<Self, W> {
        Ok(match Encoding::of(headers) {
            None => return Err(into),
            Some(Encoding::Identity) => Self::Plain(into),
            Some(Encoding::Gzip) => Self::Inflate(Inflate::new(Wrapping::Gzip), into),
            Some(Encoding::Deflate) => Self::Inflate(Inflate::new(Wrapping::Unknown), into),
            Some(Encoding::Brotli) => Self::Brotli(Box::new(DecompressorWriter::new(into, PIECE))),
            Some(Encoding::Zstd) => {
                let Ok(mut decoder) = zstd::stream::raw::Decoder::new() else { return Err(into) };
                if decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW)).is_err() {
                    return Err(into);
                }
                Self::Zstd(Box::new(zstd_write::Decoder::with_writer(zio::Writer::new(into, decoder))))
            }
        })
    }

    pub(super) fn get_ref(&self) -> &W {
        match self {
            Self::Plain(into) | Self::Inflate(_, into) => into,
            Self::Brotli(decoder) => decoder.get_ref(),
            Self::Zstd(decoder) => decoder.get_ref(),
        }
    }

    pub(super) fn get_mut(&mut self) -> &mut W {
        match self {
            Self::Plain(into) | Self::Inflate(_, into) => into,
            Self::Brotli(decoder) => decoder.get_mut(),
            Self::Zstd(decoder) => decoder.get_mut(),
        }
    }

    pub(super) fn into_inner(self) -> W {
        match self {
            Self::Plain(into) | Self::Inflate(_, into) => into,
            Self::Brotli(decoder) => decoder.into_inner().unwrap_or_else(|into| into),
            Self::Zstd(decoder) => decoder.into_inner(),
        }
    }

    pub(super) fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(into) => into.write_all(bytes),
            Self::Inflate(inflate, into) => inflate.read(bytes, into),
            Self::Brotli(decoder) => decoder.write_all(bytes),
            Self::Zstd(decoder) => decoder.write_all(bytes).and_then(|()| decoder.flush()),
        }
    }
}

impl<W: Write> fmt::Debug for Unpacker<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Inflate(..) => "Inflate",
            Self::Brotli(_) => "Brotli",
            Self::Zstd(_) => "Zstd",
        })
    }
}

/// What stands around deflated bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrapping {
    Gzip,
    /// `deflate` means zlib's; some servers send none. The first byte shows it.
    Unknown,
    Zlib,
    None,
}

/// Deflated bytes, in each wrapping.
#[derive(Debug)]
pub(super) struct Inflate {
    wrapping: Wrapping,
    decompress: Decompress,
    piece: Box<[u8]>,
    ended: bool,
}

impl Inflate {
    pub(super) fn new(wrapping: Wrapping) -> Self {
        let piece = vec![0; PIECE].into_boxed_slice();
        Self { wrapping, decompress: Self::decompress(wrapping), piece, ended: false }
    }

    fn decompress(wrapping: Wrapping) -> Decompress {
        match wrapping {
            Wrapping::Gzip => Decompress::new_gzip(15),
            Wrapping::Zlib => Decompress::new(true),
            Wrapping::Unknown | Wrapping::None => Decompress::new(false),
        }
    }

    /// What follows refers to nothing before it.
    pub(super) fn reset(&mut self) {
        self.decompress = Self::decompress(self.wrapping);
        self.ended = false;
    }

    pub(super) fn read(&mut self, mut bytes: &[u8], into: &mut impl Write) -> io::Result<()> {
        if let (Wrapping::Unknown, Some(first)) = (self.wrapping, bytes.first()) {
            // zlib's first byte: method 8 with a window of at most 32 KiB. As the first byte of bare deflated data it would
            // begin a stored block whose padding is not zero: compressors write zero there.
            self.wrapping = if first & 0x8f == 0x08 { Wrapping::Zlib } else { Wrapping::None };
            self.reset();
        }
        while !bytes.is_empty() {
            if self.ended {
                let goes_on = match self.wrapping {
                    // A further member.
                    Wrapping::Gzip => bytes[0] == 0x1f,
                    Wrapping::None => true,
                    Wrapping::Zlib | Wrapping::Unknown => false,
                };
                if !goes_on {
                    return Ok(());
                }
                self.reset();
            }
            bytes = &bytes[self.step(bytes, into)?..];
        }
        Ok(())
    }

    /// Decompresses until all bytes are used or the data is at its end. Returns how many were used.
    fn step(&mut self, bytes: &[u8], into: &mut impl Write) -> io::Result<usize> {
        let mut used = 0;
        loop {
            let (before_in, before_out) = (self.decompress.total_in(), self.decompress.total_out());
            let status =
                self.decompress.decompress(&bytes[used..], &mut self.piece, FlushDecompress::Sync)?;
            let taken = usize::try_from(self.decompress.total_in() - before_in).unwrap_or(0);
            let made = usize::try_from(self.decompress.total_out() - before_out).unwrap_or(0);
            used += taken;
            into.write_all(&self.piece[..made])?;
            if status == Status::StreamEnd {
                self.ended = true;
                return Ok(used);
            }
            if made < self.piece.len() && (used == bytes.len() || taken == 0) {
                // Nothing more can be made of these.
                return if used == bytes.len() { Ok(used) } else { Err(io::ErrorKind::InvalidData.into()) };
            }
        }
    }
}

/// A whole body as its sender wrote it, decompressed as its headers say. `None` where that fails or is more than `at_most`.
pub fn unpacked(headers: &HeaderMap, body: &[u8], at_most: usize) -> Option<Bytes> {
    let mut unpacker = Unpacker::new(headers, Bounded { bytes: Vec::new(), at_most }).ok()?;
    unpacker.read(body).ok()?;
    Some(unpacker.into_inner().bytes.into())
}

struct Bounded {
    bytes: Vec<u8>,
    at_most: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.at_most.saturating_sub(self.bytes.len()) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
