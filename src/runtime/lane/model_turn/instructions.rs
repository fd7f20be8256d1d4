//! The instructions for agents in a project's own file.

use std::io::Read;
use std::path::Path;

use crate::bounded_io::FileTasks;
use crate::redact::Redactor;
use crate::sandbox::workspace::WorkspaceDir;

/// Reads the project's file, redacted; a long one is truncated with a note.
pub(super) async fn read(files: &FileTasks, workspace: &WorkspaceDir, redactor: &Redactor) -> Option<String> {
    let opened = workspace.clone();
    let bytes = files.run_in(workspace.path(), move || read_prefix(&opened)).await.ok().flatten()?;
    // Redacted before the truncation: half a secret would not be recognised.
    let text = redactor.redact(&String::from_utf8_lossy(&bytes)).into_owned();
    Some(if bytes.len() > LIMIT { truncate(text) } else { text })
}

fn read_prefix(workspace: &WorkspaceDir) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = workspace.open_file(Path::new(FILE)).ok()?;
    file.take((LIMIT + OVERLAP) as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn truncate(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LIMIT));
    if let Some(line) = text.rfind('\n') {
        text.truncate(line);
    }
    text.push_str(&format!("\n[{FILE} is longer; only its first {LIMIT} bytes are shown]"));
    text
}

/// The name of the file.
const FILE: &str = "AGENTS.md";
/// The maximum size of the instructions.
const LIMIT: usize = 32 * 1024;
/// How much more is read, so that a secret at the limit is recognised.
const OVERLAP: usize = 4 * 1024;
