//! The password in `scheme://user:password@host`.
//!
//! Only the password is hidden. A port is told from a password by its digits and what follows them.

use super::{MARKER, scan::Region};

/// The user and the password in a URL are not longer than this, each.
const USER_INFO: usize = 1024;
/// How far behind an at-sign another one may still end the password.
const HOST: usize = 256;

/// What follows `://`, as it arrives.
#[derive(Default)]
pub(super) struct Url {
    user: Vec<u8>,
    password: Option<(usize, Vec<u8>)>,
    /// Whether the password holds anything but digits, and so is no port.
    beyond_digits: bool,
    /// How many bytes came after the last at-sign.
    after: Option<usize>,
}

impl Url {
    /// Takes the byte at offset `at`; false when no password, or no more of it, can follow.
    pub(super) fn feed(&mut self, byte: u8, at: usize, cover: &mut Option<Region>) -> bool {
        if byte.is_ascii_whitespace() || byte.is_ascii_control() || b"\"'`<>\\".contains(&byte) {
            return false;
        }
        let Some((start, password)) = &mut self.password else {
            if byte == b':' {
                self.password = Some((at + 1, Vec::new()));
                return !self.user.starts_with(b"[");
            }
            self.user.push(byte);
            let ended = b"/?#@".contains(&byte) || self.user.ends_with(MARKER.as_bytes());
            return !ended && self.user.len() <= USER_INFO;
        };
        if byte == b'@' && at == *start {
            return false;
        }
        if byte == b'@' {
            // An at-sign in the password should have been encoded and often is not: the last one counts.
            *cover = Some(Region { start: *start, end: at });
            self.after = Some(0);
            return true;
        }
        if let Some(after) = &mut self.after {
            *after += 1;
            return !b"/?#".contains(&byte) && *after <= HOST;
        }
        password.push(byte);
        let ended = !self.beyond_digits && b"/?#,;)]}|".contains(&byte);
        self.beyond_digits |= !byte.is_ascii_digit();
        !ended && !password.ends_with(MARKER.as_bytes()) && password.len() <= USER_INFO
    }
}
