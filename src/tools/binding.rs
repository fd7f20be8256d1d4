//! What an approval is bound to: a digest of exactly what would be done, taken when it is asked and again when it is done.
//!
//! It covers the call as it was understood, the workspace, the hidden entries that it leads to, and for files what they hold and
//! are to hold.

use std::fmt::Write as _;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::edit::Planned;
use super::fault::{Fault, FaultKind};
use super::request::Request;
use crate::sandbox::ground::Ground;

/// A digest that is being taken.
pub(super) struct Binding(Sha256);

impl Binding {
    /// Begins with a call in a workspace, and the hidden entries to which its paths lead.
    pub(super) fn of(request: &Request, ground: &Ground) -> Self {
        let begun = Self::begin(request, ground.path());
        ground
            .approved()
            .iter()
            .fold(begun, |binding, path| binding.part(path.as_os_str().as_encoded_bytes()))
    }

    fn begin(request: &Request, workspace: &Path) -> Self {
        let binding = Self(Sha256::new());
        // The form for debugging names every field, and is the same wherever the same program looks at it.
        binding.part(format!("{request:?}").as_bytes()).part(workspace.as_os_str().as_encoded_bytes())
    }

    /// Adds what becomes of a file.
    pub(super) fn file(self, file: &Planned) -> Self {
        let side = |binding: Self, side: &Option<Vec<u8>>| match side {
            Some(bytes) => binding.part(b"file").part(bytes),
            None => binding.part(b"none"),
        };
        let binding = self.part(file.path.as_bytes());
        side(side(binding, &file.before), &file.after)
    }

    /// Adds something with its length, so that nothing can be moved from one part into another.
    pub(super) fn part(mut self, bytes: &[u8]) -> Self {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// Returns the digest.
    pub(super) fn finish(self) -> String {
        self.0.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a text cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    /// Refuses to go on when something else was approved.
    pub(super) fn check(self, approved: Option<&str>) -> Result<(), Fault> {
        if approved.is_none_or(|approved| approved == self.finish()) {
            return Ok(());
        }
        Err(stale())
    }
}

/// Says that something else was approved.
pub(super) fn stale() -> Fault {
    let message =
        "what was approved is no longer what would be done: the workspace has changed since; ask again";
    Fault::new(FaultKind::ApprovalStale, message)
}

#[cfg(test)]
mod tests {
    use super::super::request::parse;
    use super::*;

    #[test]
    fn whatever_differs_changes_the_digest() {
        let request = |args| parse("sandbox_exec", args).unwrap();
        let file = |path: &str, before: Option<&str>, after: Option<&str>| Planned {
            path: path.into(),
            before: before.map(|text| text.as_bytes().to_vec()),
            after: after.map(|text| text.as_bytes().to_vec()),
        };
        let plain = request(r#"{"command":"make"}"#);
        let files = [
            file("a", None, Some("")),
            file("a", Some(""), None),
            file("a", Some(""), Some("")),
            file("a", Some("x"), Some("")),
            file("ax", Some(""), Some("")),
        ];
        let mut digests = vec![
            Binding::begin(&plain, Path::new("/w")).finish(),
            Binding::begin(&plain, Path::new("/v")).finish(),
            Binding::begin(&request(r#"{"command":"make "}"#), Path::new("/w")).finish(),
            Binding::begin(&request(r#"{"command":"make","cwd":"a"}"#), Path::new("/w")).finish(),
        ];
        digests.extend(files.iter().map(|file| Binding::begin(&plain, Path::new("/w")).file(file).finish()));
        assert!(digests.iter().all(|digest| digest.len() == 64));
        let count = digests.len();
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), count);
    }

    #[test]
    fn only_what_was_approved_is_done() {
        let request = parse("sandbox_exec", r#"{"command":"make"}"#).unwrap();
        let binding = || Binding::begin(&request, Path::new("/w"));
        let approved = binding().finish();
        assert_eq!(binding().check(Some(&approved)), Ok(()));
        assert_eq!(binding().check(None), Ok(()));
        let stale = binding().part(b"more").check(Some(&approved)).unwrap_err();
        assert_eq!(stale.kind, FaultKind::ApprovalStale);
    }
}
