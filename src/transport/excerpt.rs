//! The head and the tail of a message that is too long to keep, so that its refusal can name the request id.

/// How many bytes of each end are kept.
const EDGE: usize = 1024;

/// The head and the tail of a message; the rest was discarded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Excerpt {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Excerpt {
    /// Adds the next bytes of the message.
    pub fn push(&mut self, bytes: &[u8]) {
        let (head, _) = bytes.split_at(bytes.len().min(EDGE - self.head.len()));
        self.head.extend_from_slice(head);
        let last = &bytes[bytes.len().saturating_sub(EDGE)..];
        let surplus = (self.tail.len() + last.len()).saturating_sub(EDGE);
        self.tail.drain(..surplus);
        self.tail.extend_from_slice(last);
    }

    /// Returns how many bytes the head still lacks.
    pub fn missing_of_head(&self) -> usize {
        EDGE - self.head.len()
    }

    /// Returns the first bytes of the message.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns the last bytes of the message; for a short one they overlap the first.
    pub fn tail(&self) -> &[u8] {
        &self.tail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_kept_however_the_message_arrives() {
        let message: Vec<u8> = (0..10 * EDGE).map(|at| (at % 251) as u8).collect();
        for size in [1, 7, EDGE - 1, EDGE, EDGE + 1, 10 * EDGE] {
            let mut excerpt = Excerpt::default();
            message.chunks(size).for_each(|piece| excerpt.push(piece));
            assert_eq!(excerpt.head(), &message[..EDGE], "pieces of {size}");
            assert_eq!(excerpt.tail(), &message[9 * EDGE..], "pieces of {size}");
        }
        let mut short = Excerpt::default();
        short.push(b"ab");
        short.push(b"c");
        assert_eq!((short.head(), short.tail()), (&b"abc"[..], &b"abc"[..]));
    }
}
