//! The cache's own notation: numbers of seven bits a byte, texts with their length before them. Reading gives `None` where
//! the bytes cannot have been written by us.

pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "the seven lowest bits")]
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 0x80")]
    out.push(number as u8);
}

/// Small amounts of either sign stay short.
pub(super) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put(out, (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads what the functions above wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    pub(super) fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
    }

    pub(super) fn fixed(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.number()?).ok()?;
        self.take(count)
    }

    /// The most of these that the remaining bytes can hold.
    pub(super) fn room(&self, count: u64) -> usize {
        usize::try_from(count).map_or(self.0.len(), |count| count.min(self.0.len()))
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_values_are_read() {
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX];
        let signed = [0, -1, 1, 63, -64, i64::MIN, i64::MAX];
        let mut out = Vec::new();
        for number in numbers {
            put(&mut out, number);
        }
        for number in signed {
            put_signed(&mut out, number);
        }
        put_bytes(&mut out, "é".as_bytes());
        let mut bytes = Bytes(&out);
        assert!(numbers.iter().all(|&number| bytes.number() == Some(number)));
        assert!(signed.iter().all(|&number| bytes.signed() == Some(number)));
        assert_eq!((bytes.text(), bytes.0), (Some("é"), &b""[..]));
    }

    #[test]
    fn torn_or_foreign_bytes_give_nothing() {
        for bytes in [&[][..], &[0x80], &[0xff; 10], &[0xff; 9]] {
            assert_eq!(Bytes(bytes).number(), None, "{bytes:?}");
        }
        assert_eq!(Bytes(&[5, b'a']).bytes(), None);
        assert_eq!(Bytes(&[1, 0xff]).text(), None);
        assert_eq!(Bytes(&[0xff, 0xff, 0xff, 0xff, 0x7f]).small(), None);
        assert_eq!(Bytes(&[1, 2, 3]).fixed(), None);
    }
}
