//! Unified diffs of changed files, for approvals and for the results of calls.

use similar::TextDiff;

use super::context::RedactFn;
use super::edit::PlannedChange;
use crate::kernel::event::Diff;

/// The diff of one file, with the numbers of its lines.
pub(super) struct FileDiff {
    /// The inserted lines.
    pub(super) insertions: usize,
    /// The deleted lines.
    pub(super) deletions: usize,
    /// The unified diff, not redacted; one line for a binary file.
    pub(super) text: String,
}

impl FileDiff {
    /// Compares the current content of a file with the new one.
    pub(super) fn new(file: &PlannedChange) -> Self {
        let text = |side: &Option<Vec<u8>>| String::from_utf8_lossy(side.as_deref().unwrap_or_default()).into_owned();
        let (before, after) = (text(&file.before), text(&file.after));
        let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(&before, &after);
        let (insertions, deletions) = diff.iter_all_changes().fold((0, 0), |(more, less), change| match change.tag() {
            similar::ChangeTag::Insert => (more + 1, less),
            similar::ChangeTag::Delete => (more, less + 1),
            similar::ChangeTag::Equal => (more, less),
        });
        if before.contains('\0') || after.contains('\0') {
            return Self { insertions, deletions, text: format!("binary file {} changed\n", file.path) };
        }
        let name = |side: &Option<Vec<u8>>| if side.is_some() { file.path.as_str() } else { "/dev/null" };
        let unified = diff.unified_diff().context_radius(3).header(name(&file.before), name(&file.after)).to_string();
        Self { insertions, deletions, text: unified }
    }
}

/// Redacts the diff of a completed call and truncates it; an empty one is none.
pub(super) fn result_diff(text: &str, redact: &RedactFn, max_bytes: usize) -> Option<Diff> {
    // A secret that is redacted first cannot be cut in two.
    let mut text = redact(text);
    let cut = text.floor_char_boundary(max_bytes);
    let truncated = cut < text.len();
    text.truncate(cut);
    (!text.is_empty()).then_some(Diff { text, truncated })
}

/// How long a minimal diff is searched; after that a larger one is used.
const DIFF_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(500);
