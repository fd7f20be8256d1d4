//! The names of session files and their directories: short, safe and deterministic.

use std::fmt::Write as _;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::kernel::time::Now;

use crate::protocol::session_file::to_rfc3339;

/// The maximum length of a name in bytes, without prefix and suffix; file systems allow 255.
const MAX_NAME_BYTES: usize = 180;

/// Returns the directory name of a working directory: `/home/ann/project` is `--home-ann-project--`.
pub(super) fn directory_name(cwd: &Path) -> String {
    let cwd = cwd.to_string_lossy();
    let cwd = cwd.strip_prefix(['/', '\\']).unwrap_or(&cwd);
    let slug: String = cwd
        .chars()
        .map(|letter| if matches!(letter, '/' | '\\' | ':') || letter.is_control() { '-' } else { letter })
        .collect();
    format!("--{}--", truncate(slug, cwd))
}

/// Returns the file name of a session: its creation time and its id.
pub(super) fn file_name(id: &str, created: Now) -> String {
    let when = to_rfc3339(created).replace([':', '.'], "-");
    let mut safe = String::new();
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            safe.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(safe, "%{byte:02x}");
        }
    }
    format!("{when}_{}.jsonl", truncate(safe, id))
}

/// Truncates a long name, and appends a digest of the whole.
fn truncate(name: String, whole: &str) -> String {
    if name.len() <= MAX_NAME_BYTES {
        return name;
    }
    let digest = Sha256::digest(whole.as_bytes());
    let digest = digest.iter().take(8).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    format!("{}-{digest}", &name[..name.floor_char_boundary(MAX_NAME_BYTES)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_named_as_other_programs_name_them() {
        assert_eq!(directory_name(Path::new("/home/ann/my project")), "--home-ann-my project--");
        assert_eq!(directory_name(Path::new("C:\\work\\x")), "--C--work-x--");
        assert_eq!(directory_name(Path::new("/")), "----");
        assert_eq!(directory_name(Path::new("/..")), "--..--");
    }

    #[test]
    fn every_id_has_its_own_safe_file_name() {
        let created = Now(1_772_272_800_000);
        assert_eq!(file_name("sess_1-a", created), "2026-02-28T10-00-00-000Z_sess_1-a.jsonl");
        assert_eq!(file_name("../x\0é", created), "2026-02-28T10-00-00-000Z_%2e%2e%2fx%00%c3%a9.jsonl");
        assert_ne!(file_name("a%2f", created), file_name("a/", created));
        let long = |end: &str| file_name(&format!("{}{end}", "é".repeat(128)), created);
        assert!(long("").len() <= 255);
        assert_ne!(long("a"), long("b"));
        let deep = |end: &str| directory_name(Path::new(&format!("/{}{end}", "é/".repeat(900))));
        assert!(deep("").len() <= 255);
        assert_ne!(deep("a"), deep("b"));
    }
}
