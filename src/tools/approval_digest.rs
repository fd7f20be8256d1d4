//! The digest that binds an approval to what is done. It is computed for the question and again before the call is
//! made.
//!
//! It covers the parsed call, the workspace, the hidden entries that its paths lead to, and for files their current
//! and their new content.

use std::fmt::{self, Write as _};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::edit::PlannedChange;
use super::error::{ToolError, ToolErrorKind};
use crate::sandbox::workspace::WorkspaceDir;

/// A digest in progress.
pub struct ApprovalDigest(Sha256);

impl ApprovalDigest {
    /// Starts with a call in a workspace, and the hidden entries that its paths lead to.
    ///
    /// The text of the call is its debug format: it contains every field, and is stable within one version of the
    /// program.
    pub(super) fn new(call: &str, workspace: &WorkspaceDir) -> Self {
        let started = Self::start(call, workspace.path());
        workspace
            .approved_paths()
            .iter()
            .fold(started, |digest, path| digest.add_bytes(path.as_os_str().as_encoded_bytes()))
    }

    fn start(call: &str, workspace: &Path) -> Self {
        Self(Sha256::new()).add_bytes(call.as_bytes()).add_bytes(workspace.as_os_str().as_encoded_bytes())
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
    #[must_use]
    pub fn add_bytes(mut self, bytes: &[u8]) -> Self {
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
        let message =
            "the approval is stale: the workspace has changed since the call was approved; make the call again";
        Err(ToolError::new(ToolErrorKind::ApprovalStale, message))
    }
}

impl fmt::Debug for ApprovalDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApprovalDigest").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::ToolSet;
    use super::*;

    #[test]
    fn every_difference_changes_the_digest() {
        let request = |args| call_text("sandbox_exec", args);
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
        let request = call_text("sandbox_exec", r#"{"command":"make"}"#);
        let digest = || ApprovalDigest::start(&request, Path::new("/w"));
        let approved = digest().finish();
        assert_eq!(digest().verify(Some(&approved)), Ok(()));
        assert_eq!(digest().verify(None), Ok(()));
        let stale = digest().add_bytes(b"more").verify(Some(&approved)).unwrap_err();
        assert_eq!(stale.kind, ToolErrorKind::ApprovalStale);
    }

    #[test]
    fn the_text_of_a_call_stays_the_same() {
        // An approval that was given before an update of the program must fit the call after it.
        for (tool, args, text) in [
            (
                "sandbox_read_file",
                r#"{"path":"a","limit":3}"#,
                r#"Read(Args { path: "a", offset: None, limit: Some(3) })"#,
            ),
            ("sandbox_list_dir", r#"{"path":"a"}"#, r#"List(Args { path: Some("a"), depth: None })"#),
            (
                "sandbox_search",
                r#"{"pattern":"a"}"#,
                r#"Search(Args { pattern: Some("a"), literal: None, ignore_case: None, glob: None, path: None })"#,
            ),
            ("sandbox_write_file", r#"{"path":"a","content":"b\n"}"#, r#"Write(Args { path: "a", content: "b\n" })"#),
            (
                "sandbox_edit_file",
                r#"{"path":"a","old":"b","new":"c"}"#,
                r#"Edit(Replace { path: "a", old: "b", new: "c", which: Only })"#,
            ),
            (
                "sandbox_exec",
                r#"{"command":"make","outside":true}"#,
                "Exec(Args { command: \"make\", cwd: None, timeout_seconds: None, network: None, outside: Some(true), \
                 shell: Sh })",
            ),
            ("sandbox_git_status", "{}", "Status(Args)"),
            ("sandbox_git_diff", r#"{"staged":true}"#, "Diff(Args { staged: Some(true), paths: None })"),
            (
                "sandbox_git_commit",
                r#"{"message":"m","paths":["a"]}"#,
                r#"Commit(Args { message: "m", paths: Some(["a"]), all: None })"#,
            ),
            ("sandbox_fetch", r#"{"url":"https://a.org/"}"#, r#"Fetch(Args { url: "https://a.org/" })"#),
        ] {
            assert_eq!(call_text(tool, args), text);
        }
        let patch = call_text("sandbox_edit_file", r#"{"patch":"--- a\n+++ a\n@@ -1 +1 @@\n-b\n+c\n"}"#);
        assert!(patch.starts_with("Edit(Patch(Patch { files: [FilePatch { path: \"a\""), "{patch}");
    }

    fn call_text(tool: &str, args: &str) -> String {
        format!("{:?}", ToolSet::builtin().parse(tool, args).unwrap())
    }
}
