//! The password in `scheme://user:password@host`.
//!
//! Only the password is hidden. A port is distinguished from a password by its digits and what follows them.

use super::{MARKER, scan::Region};

/// The maximum length of the user, and of the password.
const USER_INFO_MAX: usize = 1024;
/// The maximum distance after an at-sign at which another one may still end the password.
const HOST_MAX: usize = 256;

/// Matches the text after `://`.
#[derive(Default)]
pub(super) struct UrlMatcher {
    user: Vec<u8>,
    password: Option<(usize, Vec<u8>)>,
    /// Whether the password contains anything but digits, so that it is not a port.
    beyond_digits: bool,
    /// How many bytes followed the last at-sign.
    after: Option<usize>,
}

impl UrlMatcher {
    /// Consumes the byte at offset `at`; returns false when no password, or no more of it, can follow.
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
            return !ended && self.user.len() <= USER_INFO_MAX;
        };
        if byte == b'@' && at == *start {
            return false;
        }
        if byte == b'@' {
            // An at-sign in the password should be encoded and often is not: the last one counts.
            *cover = Some(Region { start: *start, end: at });
            self.after = Some(0);
            return true;
        }
        if let Some(after) = &mut self.after {
            *after += 1;
            return !b"/?#".contains(&byte) && *after <= HOST_MAX;
        }
        password.push(byte);
        let ended = !self.beyond_digits && b"/?#,;)]}|".contains(&byte);
        self.beyond_digits |= !byte.is_ascii_digit();
        !ended && !password.ends_with(MARKER.as_bytes()) && password.len() <= USER_INFO_MAX
    }
}
