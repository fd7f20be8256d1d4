//! The instructions for agents in a project's own file.

use std::io::Read;
use std::path::Path;

use crate::bounded_io::FileTasks;
use crate::redact::Redactor;
use crate::sandbox::ground::Ground;

/// Reads the project's file, redacted; a long one is truncated with a note.
pub(super) async fn read(files: &FileTasks, ground: &Ground, redactor: &Redactor) -> Option<String> {
    let opened = ground.clone();
    let bytes = files.run_in(ground.path(), move || beginning(&opened)).await.ok().flatten()?;
    // Redacted before the truncation: half a secret would not be recognised.
    let text = redactor.text(&String::from_utf8_lossy(&bytes)).into_owned();
    Some(if bytes.len() > LIMIT { cut(text) } else { text })
}

fn beginning(ground: &Ground) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = ground.file(Path::new(FILE)).ok()?;
    file.take((LIMIT + EDGE) as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn cut(mut text: String) -> String {
    let mut end = LIMIT.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
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
const EDGE: usize = 4 * 1024;
