//! The digest that binds an approval to what is done. It is computed for the question and again before the call is
//! made.
//!
//! It covers the parsed call, the workspace, the hidden entries that its paths lead to, and for files their current
//! and their new content.

use std::fmt::Write as _;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::edit::PlannedChange;
use super::error::{ToolError, ToolErrorKind};
use super::request::Request;
use crate::sandbox::workspace::WorkspaceDir;

/// A digest in progress.
pub(super) struct ApprovalDigest(Sha256);

impl ApprovalDigest {
    /// Starts with a call in a workspace, and the hidden entries that its paths lead to.
    pub(super) fn new(request: &Request, workspace: &WorkspaceDir) -> Self {
        let started = Self::start(request, workspace.path());
        workspace
            .approved_paths()
            .iter()
            .fold(started, |digest, path| digest.add_bytes(path.as_os_str().as_encoded_bytes()))
    }

    fn start(request: &Request, workspace: &Path) -> Self {
        let digest = Self(Sha256::new());
        // The debug format contains every field, and is stable within one version of the program.
        digest.add_bytes(format!("{request:?}").as_bytes()).add_bytes(workspace.as_os_str().as_encoded_bytes())
    }

    /// Adds the change of a file.
    pub(super) fn add_file(self, file: &PlannedChange) -> Self {
        let side = |digest: Self, side: &Option<Vec<u8>>| match side {
            Some(bytes) => digest.add_bytes(b"file").add_bytes(bytes),
            None => digest.add_bytes(b"none"),
        };
        let digest = self.add_bytes(file.path.as_bytes());
        side(side(digest, &file.before), &file.after)
    }

    /// Adds bytes with their length, so that different splits give different digests.
    pub(super) fn add_bytes(mut self, bytes: &[u8]) -> Self {
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
    pub(super) fn verify(self, approved: Option<&str>) -> Result<(), ToolError> {
        if approved.is_none_or(|approved| approved == self.finish()) {
            return Ok(());
        }
        Err(stale_approval())
    }
}

/// Returns the error for a call that differs from the approved one.
pub(super) fn stale_approval() -> ToolError {
    let message = "the approval is stale: the workspace has changed since the call was approved; make the call again";
    ToolError::new(ToolErrorKind::ApprovalStale, message)
}

#[cfg(test)]
mod tests {
    use super::super::request::parse;
    use super::*;

    #[test]
    fn every_difference_changes_the_digest() {
        let request = |args| parse("sandbox_exec", args).unwrap();
        let file = |path: &str, before: Option<&str>, after: Option<&str>| PlannedChange {
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
            ApprovalDigest::start(&plain, Path::new("/w")).finish(),
            ApprovalDigest::start(&plain, Path::new("/v")).finish(),
            ApprovalDigest::start(&request(r#"{"command":"make "}"#), Path::new("/w")).finish(),
            ApprovalDigest::start(&request(r#"{"command":"make","cwd":"a"}"#), Path::new("/w")).finish(),
        ];
        digests.extend(files.iter().map(|file| ApprovalDigest::start(&plain, Path::new("/w")).add_file(file).finish()));
        assert!(digests.iter().all(|digest| digest.len() == 64));
        let count = digests.len();
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), count);
    }

    #[test]
    fn only_the_approved_digest_is_accepted() {
        let request = parse("sandbox_exec", r#"{"command":"make"}"#).unwrap();
        let digest = || ApprovalDigest::start(&request, Path::new("/w"));
        let approved = digest().finish();
        assert_eq!(digest().verify(Some(&approved)), Ok(()));
        assert_eq!(digest().verify(None), Ok(()));
        let stale = digest().add_bytes(b"more").verify(Some(&approved)).unwrap_err();
        assert_eq!(stale.kind, ToolErrorKind::ApprovalStale);
    }
}
