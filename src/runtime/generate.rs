//! Generation of ids and secrets. The kernel receives them and creates none.

use sha2::{Digest, Sha256};
use ulid::Ulid;

use crate::kernel::id::{CallId, Fingerprint, GateId, MessageId, RunId, SessionId};
use crate::token;

/// Generates a session id in the only form that existing clients accept: `sess_[a-z0-9]+_[a-f0-9]{6}`.
pub fn session() -> SessionId {
    let name = Ulid::generate().to_string().to_ascii_lowercase();
    SessionId::new(format!("sess_{name}_{:06x}", Ulid::generate().random() & 0xff_ffff))
}

/// Generates a run id.
pub fn run() -> RunId {
    RunId::new(prefixed("run_"))
}

/// Generates a gate id.
pub fn gate() -> GateId {
    GateId::new(prefixed("appr_"))
}

/// Generates a tool call id.
pub fn call() -> CallId {
    CallId::new(prefixed("call_"))
}

/// Generates the id of a user message that has none.
pub fn message() -> MessageId {
    MessageId::new(prefixed("msg_"))
}

/// Generates the id of an assistant message.
pub fn assistant_message() -> MessageId {
    MessageId::new(prefixed("asst_"))
}

/// Generates the id of a permanently granted rule.
pub fn grant() -> String {
    prefixed("grant_")
}

/// Generates the id of a request that has none.
pub fn request() -> String {
    prefixed("req_")
}

/// Generates an attach token of a session.
pub fn token() -> Result<String, getrandom::Error> {
    token::generate("att_")
}

/// Returns the fingerprint of a command; each part is preceded by its length, so that parts cannot run together.
pub fn fingerprint<'a>(parts: impl IntoIterator<Item = &'a str>) -> Fingerprint {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    let whole: [u8; 32] = digest.finalize().into();
    let (half, _) = whole.split_at(16);
    Fingerprint(half.iter().fold(0, |value, byte| value << 8 | u128::from(*byte)))
}

fn prefixed(prefix: &str) -> String {
    format!("{prefix}{}", Ulid::generate())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_session_has_the_form_that_existing_clients_accept() {
        let first = session();
        let parts: Vec<_> = first.as_str().split('_').collect();
        let ["sess", name, digits] = parts[..] else { panic!("{first}") };
        assert!(name.len() == 26 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()));
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        assert!(digits.len() == 6 && digits.bytes().all(is_hex), "{first}");
        assert_ne!(first, session());
    }

    #[test]
    fn parts_of_a_fingerprint_do_not_run_together() {
        assert_eq!(fingerprint(["ab", "c"]), fingerprint(["ab", "c"]));
        assert_ne!(fingerprint(["ab", "c"]), fingerprint(["a", "bc"]));
    }
}
