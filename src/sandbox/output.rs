//! The output of a step as text: incremental decoding, and an excerpt of output that is too long to keep.
//!
//! Pure. Nothing is interpreted: escape sequences and carriage returns pass unchanged.

/// Decodes UTF-8 that arrives in pieces.
///
/// Invalid bytes become U+FFFD. A character that is split over two pieces is buffered until it is complete. The
/// concatenated text does not depend on how the bytes were split.
#[derive(Debug, Default)]
pub struct Utf8Decoder {
    pending: Vec<u8>,
}

impl Utf8Decoder {
    /// Creates a decoder with an empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes the next piece; the result may be empty.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let joined;
        let bytes = if self.pending.is_empty() {
            bytes
        } else {
            self.pending.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.pending);
            &joined
        };
        let (whole, begun) = bytes.split_at(bytes.len() - incomplete_suffix_len(bytes));
        self.pending.extend_from_slice(begun);
        String::from_utf8_lossy(whole).into_owned()
    }

    /// Flushes the decoder: an incomplete character becomes U+FFFD.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// Returns how many bytes at the end are the start of a character that more bytes could complete.
fn incomplete_suffix_len(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(3);
    let Some(start) = bytes[from..].iter().rposition(|byte| !is_continuation(*byte)) else { return 0 };
    let begun = &bytes[from + start..];
    match std::str::from_utf8(begun) {
        // No error length: the bytes are valid so far, and more are needed.
        Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => begun.len(),
        Ok(_) | Err(_) => 0,
    }
}

const fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// Keeps the beginning and the end of a text, and counts the omitted bytes.
#[derive(Debug)]
pub struct Excerpt {
    head: String,
    head_open: bool,
    tail: String,
    half_limit: usize,
    omitted: usize,
}

impl Excerpt {
    /// Creates an excerpt of at most `limit` bytes of text, plus the line that states what was omitted.
    pub const fn new(limit: usize) -> Self {
        Self { head: String::new(), head_open: true, tail: String::new(), half_limit: limit / 2, omitted: 0 }
    }

    /// Adds text.
    pub fn push(&mut self, text: &str) {
        let mut rest = text;
        if self.head_open {
            let fitting = rest.floor_char_boundary(self.half_limit - self.head.len());
            self.head.push_str(&rest[..fitting]);
            rest = &rest[fitting..];
            self.head_open = rest.is_empty();
        }
        if rest.len() > self.half_limit {
            self.omitted += self.tail.len();
            self.tail.clear();
            let cut = rest.ceil_char_boundary(rest.len() - self.half_limit);
            self.omitted += cut;
            rest = &rest[cut..];
        }
        self.tail.push_str(rest);
        // Trimming rarely keeps many small pieces as cheap as a single large one.
        if self.tail.len() > 2 * self.half_limit {
            self.trim_tail();
        }
    }

    /// Returns the text; if bytes were omitted, a line in the middle states how many.
    pub fn finish(mut self) -> String {
        self.trim_tail();
        let Self { mut head, tail, omitted: left_out, .. } = self;
        if left_out > 0 {
            if !head.is_empty() && !head.ends_with('\n') {
                head.push('\n');
            }
            let unit = if left_out == 1 { "byte" } else { "bytes" };
            head.push_str(&format!("[... {left_out} {unit} left out ...]\n"));
        }
        head.push_str(&tail);
        head
    }

    fn trim_tail(&mut self) {
        let cut = self.tail.ceil_char_boundary(self.tail.len().saturating_sub(self.half_limit));
        self.omitted += cut;
        self.tail.drain(..cut);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn decoded_text_does_not_depend_on_how_the_bytes_are_split() {
        let mut random = Random::new(7);
        let pieces: [&[u8]; 9] =
            [b"a", "é".as_bytes(), "€".as_bytes(), "🦀".as_bytes(), b"\xff", b"\xf0\x9f", b"\x80", b"\xe2", b"\xc0"];
        for round in 0..5_000 {
            let bytes: Vec<u8> = (0..random.index(12)).flat_map(|_| pieces[random.index(9)]).copied().collect();
            let mut decoder = Utf8Decoder::new();
            let mut text = String::new();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(1 + random.index(rest.len()));
                text.push_str(&decoder.push(piece));
                rest = after;
            }
            text.push_str(&decoder.finish());
            assert_eq!(text, String::from_utf8_lossy(&bytes), "round {round}: {bytes:x?}");
        }
    }

    #[test]
    fn a_split_character_is_buffered_until_it_is_complete() {
        let mut decoder = Utf8Decoder::new();
        assert_eq!(decoder.push(&[b'a', 0xe2]), "a");
        assert_eq!(decoder.push(&[0x82]), "");
        assert_eq!(decoder.push(&[0xac, b'b']), "€b");
        assert_eq!(decoder.finish(), "");
    }

    #[test]
    fn invalid_bytes_are_not_buffered() {
        let mut decoder = Utf8Decoder::new();
        assert_eq!(decoder.push(&[0xff]), "\u{fffd}");
        assert_eq!(decoder.push(&[0xe2, 0x82]), "");
        assert_eq!(decoder.finish(), "\u{fffd}");
    }

    #[test]
    fn a_short_text_is_kept_unchanged() {
        assert_eq!(excerpt(8, &["abcd", "efgh"]), "abcdefgh");
        assert_eq!(excerpt(8, &["abcdefgh"]), "abcdefgh");
        assert_eq!(excerpt(8, &[]), "");
    }

    #[test]
    fn a_long_text_keeps_its_beginning_and_its_end() {
        let kept = "abcd\n[... 18 bytes left out ...]\nwxyz";
        assert_eq!(excerpt(8, &["abcdefghijklmnopqrstuvwxyz"]), kept);
        let letters: Vec<String> = ('a'..='z').map(String::from).collect();
        assert_eq!(excerpt(8, &letters.iter().map(String::as_str).collect::<Vec<_>>()), kept);
        assert_eq!(excerpt(4, &["a\nxyz"]), "a\n[... 1 byte left out ...]\nyz");
    }

    #[test]
    fn no_character_is_split_and_every_omitted_byte_is_counted() {
        for limit in 0..24 {
            let text = "aé€🦀".repeat(5);
            let kept = excerpt(limit, &[&text[..10], &text[10..]]);
            let Some((head, rest)) = kept.split_once("[... ") else {
                assert_eq!(kept, text);
                continue;
            };
            let (count, tail) = rest.split_once(" bytes left out ...]\n").unwrap();
            let head = head.strip_suffix('\n').unwrap_or(head);
            assert!(text.starts_with(head) && text.ends_with(tail), "limit {limit}: {kept}");
            let count: usize = count.parse().unwrap();
            assert_eq!(head.len() + count + tail.len(), text.len(), "limit {limit}: {kept}");
            assert!(head.len() + tail.len() <= limit, "limit {limit}: {kept}");
        }
    }

    #[test]
    fn memory_stays_within_the_limit_over_a_long_text() {
        let mut excerpt = Excerpt::new(1_000);
        for _ in 0..100_000 {
            excerpt.push("0123456789");
            assert!(excerpt.head.len() <= 500 && excerpt.tail.len() <= 1_000);
        }
        assert!(excerpt.finish().contains("[... 999000 bytes left out ...]"));
    }

    fn excerpt(limit: usize, pieces: &[&str]) -> String {
        let mut excerpt = Excerpt::new(limit);
        for piece in pieces {
            excerpt.push(piece);
        }
        excerpt.finish()
    }
}
