//! The size of a tree on Windows, by path: no command runs there that could create a tree below the longest path.

use std::fs;
use std::path::Path;

/// Returns how many bytes the files below a directory have; links are not followed.
pub(in crate::sandbox) fn tree_size(path: &Path) -> u64 {
    let (mut bytes, mut pending) = (0_u64, vec![path.to_owned()]);
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => pending.push(entry.path()),
                Ok(metadata) => bytes = bytes.saturating_add(metadata.len()),
                Err(_) => {}
            }
        }
    }
    bytes
}
