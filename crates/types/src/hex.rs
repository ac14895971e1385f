//! Bytes as people and protocols write them: two digits each.

use std::fmt::Write;

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut digits, byte| {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
#[test]
fn two_digits_each() {
    assert_eq!(hex(&[]), "");
    assert_eq!(hex(&[0, 15, 16, 255]), "000f10ff");
}
