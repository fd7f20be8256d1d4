//! The digest that binds an approval to what is done. It is computed for the question and again before the call is
//! made.
//!
//! It covers the parsed call, the workspace, the hidden entries that its paths lead to, and for files their current
//! and their new content.

use std::fmt::Write as _;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::edit::Planned;
use super::fault::{Fault, FaultKind};
use super::request::Request;
use crate::sandbox::ground::Ground;

/// A digest in progress.
pub(super) struct Binding(Sha256);

impl Binding {
    /// Starts with a call in a workspace, and the hidden entries that its paths lead to.
    pub(super) fn of(request: &Request, ground: &Ground) -> Self {
        let begun = Self::begin(request, ground.path());
        ground
            .approved()
            .iter()
            .fold(begun, |binding, path| binding.part(path.as_os_str().as_encoded_bytes()))
    }

    fn begin(request: &Request, workspace: &Path) -> Self {
        let binding = Self(Sha256::new());
        // The debug format contains every field, and is stable within one version of the program.
        binding.part(format!("{request:?}").as_bytes()).part(workspace.as_os_str().as_encoded_bytes())
    }

    /// Adds the change of a file.
    pub(super) fn file(self, file: &Planned) -> Self {
        let side = |binding: Self, side: &Option<Vec<u8>>| match side {
            Some(bytes) => binding.part(b"file").part(bytes),
            None => binding.part(b"none"),
        };
        let binding = self.part(file.path.as_bytes());
        side(side(binding, &file.before), &file.after)
    }

    /// Adds bytes with their length, so that different splits give different digests.
    pub(super) fn part(mut self, bytes: &[u8]) -> Self {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// Returns the digest.
    pub(super) fn finish(self) -> String {
        self.0.finalize().iter().fold(String::with_capacity(64), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    /// Fails if another digest was approved.
    pub(super) fn check(self, approved: Option<&str>) -> Result<(), Fault> {
        if approved.is_none_or(|approved| approved == self.finish()) {
            return Ok(());
        }
        Err(stale())
    }
}

/// Returns the error for a call that differs from the approved one.
pub(super) fn stale() -> Fault {
    let message =
        "the approval is stale: the workspace has changed since the call was approved; make the call again";
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
