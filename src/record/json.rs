//! A JSON writer without an intermediate value, for the hot paths: strings, integers and values that serde serializes.

use serde::Serialize;

/// Writes a JSON string, quoted and escaped.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut clean = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escape = ESCAPES[usize::from(*byte)];
        if escape == 0 {
            continue;
        }
        out.extend_from_slice(&bytes[clean..at]);
        clean = at + 1;
        if escape == b'u' {
            let digit = |nibble: u8| HEX[usize::from(nibble)];
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
        } else {
            out.extend_from_slice(&[b'\\', escape]);
        }
    }
    out.extend_from_slice(&bytes[clean..]);
    out.push(b'"');
}

/// Writes an unsigned integer.
pub(crate) fn number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut from = digits.len();
    loop {
        from -= 1;
        digits[from] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[from..]);
}

/// Writes a wire value through serde.
#[expect(clippy::expect_used, reason = "a wire type has string keys only, and writing to a Vec cannot fail")]
pub(crate) fn value<T: Serialize>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("a wire type is always JSON");
}

const HEX: [u8; 16] = *b"0123456789abcdef";

/// The escape of each byte: `0` writes the byte unchanged, `u` writes `\u00XX`, any other value writes a backslash and
/// that letter.
const ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 0x20 {
        table[at] = b'u';
        at += 1;
    }
    table[0x08] = b'b';
    table[0x09] = b't';
    table[0x0a] = b'n';
    table[0x0c] = b'f';
    table[0x0d] = b'r';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_as_serde_does_it() {
        let every: String = (0..0x3000).filter_map(char::from_u32).collect();
        for text in ["", "plain", "\"", "\\", "a\nb", "\u{0}\u{1f}\u{7f}", "ü\u{2028}🦀\"end", &every] {
            let mut out = Vec::new();
            string(&mut out, text);
            assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(text).unwrap());
        }
    }

    #[test]
    fn numbers_are_written_in_full() {
        for n in [0, 1, 9, 10, 99, 100, 1_760_000_000_000, u64::MAX] {
            let mut out = Vec::new();
            number(&mut out, n);
            assert_eq!(String::from_utf8(out).unwrap(), n.to_string());
        }
    }
}
