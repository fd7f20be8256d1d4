//! Pi session files of deleted sessions: files that pushd created are removed; imported files are listed and kept,
//! unless `--with-pi-files` is given.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::context::Context;
use super::format::size;
use super::sanitize::sanitize_line;
use crate::client::PiFile;
use crate::runtime::session_files::index::SessionFileIndex;
use crate::runtime::session_files::store::Store;

/// Lists, for the prompt, which files of the sessions to delete are removed and which are kept.
pub(crate) fn prompt_lines<'a>(files: impl Iterator<Item = &'a PiFile>, with_imported: bool) -> String {
    files.take(SHOWN).map(|file| line(&file.path, file.bytes, with_imported || file.created)).collect()
}

/// Reports which files of deleted sessions were removed.
pub(crate) fn report<'a>(files: impl Iterator<Item = &'a PiFile>, context: &mut Context) {
    for file in files {
        let path = sanitize_line(&file.path);
        if let Some(problem) = &file.problem {
            context.console.warn(&format!("{path} was not removed: {}", sanitize_line(problem)));
        } else if file.removed {
            context.console.note(&format!("removed {path}"));
        } else {
            context.console.warn(&kept_message(&path));
        }
    }
}

/// The Pi session files of all sessions.
#[derive(Debug, Default)]
pub(crate) struct PiFiles {
    /// Size by path, and whether pushd created the file.
    files: BTreeMap<PathBuf, (u64, bool)>,
}

impl PiFiles {
    /// Reads the index of session files; if that fails, it prints a warning and returns no files.
    pub(crate) fn read(state: &Path, context: &mut Context) -> Self {
        let records = match SessionFileIndex::new(state).all() {
            Ok(records) => records,
            Err(error) => {
                let problem = sanitize_line(&error.to_string());
                context.console.warn(&format!("Pi session files are not removed: {problem}"));
                Vec::new()
            }
        };
        let store = store();
        let mut files = BTreeMap::new();
        for record in records {
            let Ok(Some(bytes)) = store.size(&record.path) else { continue };
            let (_, created) = files.entry(record.path).or_insert((bytes, false));
            *created |= record.created.is_some();
        }
        Self { files }
    }

    /// Lists, for the prompt, which files are removed and which are kept.
    pub(crate) fn prompt_lines(&self, with_imported: bool) -> String {
        let lines = self
            .files
            .iter()
            .take(SHOWN)
            .map(|(path, (bytes, created))| line(&path.display().to_string(), *bytes, *created || with_imported));
        let more = self.files.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!("  and {more} more Pi session files\n") } else { String::new() };
        lines.collect::<String>() + &more
    }

    /// Returns the total size of the files to remove.
    pub(crate) fn bytes(&self, with_imported: bool) -> u64 {
        let going = self.files.values().filter(|(_, created)| *created || with_imported);
        going.fold(0, |sum, (bytes, _)| sum.saturating_add(*bytes))
    }

    /// Removes files, reports those that are kept, and returns the number of bytes removed.
    pub(crate) fn remove(&self, with_imported: bool, context: &mut Context) -> u64 {
        let (store, mut removed) = (store(), 0_u64);
        for (path, (_, created)) in &self.files {
            let name = sanitize_line(&path.display().to_string());
            if !created && !with_imported {
                context.console.warn(&kept_message(&name));
                continue;
            }
            match store.remove(path) {
                Ok(bytes) => removed = removed.saturating_add(bytes.unwrap_or_default()),
                Err(error) => {
                    let problem = sanitize_line(&error.to_string());
                    context.console.warn(&format!("{name} was not removed: {problem}"));
                }
            }
        }
        removed
    }
}

fn store() -> Store {
    Store::new(std::env::home_dir().unwrap_or_else(|| PathBuf::from("/")))
}

fn line(path: &str, bytes: u64, goes: bool) -> String {
    let path = sanitize_line(path);
    if goes {
        format!("  {:>10}  removes {path}\n", size(bytes))
    } else {
        format!("  {:>10}  keeps {path}, which was imported (--with-pi-files removes it)\n", size(bytes))
    }
}

fn kept_message(path: &str) -> String {
    format!("{path} was imported and is kept; --with-pi-files removes such files")
}

/// How many files the prompt lists.
const SHOWN: usize = 20;
