//! Session files on a real disk: reading, writing, listing, and refusals.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod attacks;
mod listing;
mod memory;
mod writing;

use std::fs;
use std::path::{Path, PathBuf};

use pushd::kernel::time::Now;
use pushd::protocol::pi::session_file::{Change, Content, Entry, Header, Limits, Message, User, parse};
use pushd::runtime::session_files::store::{Store, StoreError, TornLine};
use tempfile::TempDir;

/// A temporary home, and a project next to it.
struct Fixture {
    dir: TempDir,
    store: Store,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Temporary directories may themselves be behind a link.
        let real = dir.path().canonicalize().unwrap();
        for folder in ["home", "project/.pi/sessions", "outside"] {
            fs::create_dir_all(real.join(folder)).unwrap();
        }
        let store = Store::new(real.join("home"));
        store.prepare().unwrap();
        Self { dir, store }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(path)
    }

    fn user_session(&self, name: &str) -> PathBuf {
        self.store.directory().join(name)
    }

    fn project_session(&self, name: &str) -> PathBuf {
        self.path("project/.pi/sessions").join(name)
    }

    /// Writes a session as another program would.
    fn session(&self, path: &Path, id: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, session(id)).unwrap();
    }

    /// Reads a file that must be refused, and returns the reason.
    fn refusal(&self, path: impl AsRef<Path>) -> String {
        let path = path.as_ref();
        let read = self.store.read(path).expect_err("it is not read").to_string();
        let written = self.store.write(path, &header(), &[]).expect_err("it is not written").to_string();
        assert_eq!(read.replace("cannot read", "cannot write"), written, "{}", path.display());
        let stored = parse(session("s-1").as_bytes(), &Limits::default()).unwrap();
        let extended =
            self.store.extend(path, &stored, &[], TornLine::Wait).expect_err("it is not added to").to_string();
        assert_eq!(written, extended);
        let removed = self.store.remove(path);
        assert!(matches!(removed, Ok(None) | Err(_)), "{removed:?} {}", path.display());
        read
    }
}

const OUTSIDE: &str = "sessionPath must be under an allowed session directory";

fn header() -> Header {
    Header::new("s-1", "/work", Now(1_772_272_800_000))
}

fn session(id: &str) -> String {
    format!(
        "{{\"type\":\"session\",\"version\":3,\"id\":\"{id}\",\"timestamp\":\"2026-02-28T10:00:00.000Z\",\"cwd\":\"/work\"}}\n\
         {{\"type\":\"message\",\"id\":\"a\",\"parentId\":null,\"message\":{{\"role\":\"user\",\"content\":\"{id}\"}}}}\n"
    )
}

fn entry(id: &str, parent: Option<&str>, text: &str) -> Entry {
    let content = vec![Content::Text(text.to_owned())];
    Entry {
        id: id.to_owned(),
        parent: parent.map(str::to_owned),
        at: Now(1_772_272_801_000),
        change: Change::Message(Message::User(User { content, at: Now(1_772_272_801_000) })),
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn is_link(error: &StoreError) -> bool {
    matches!(error, StoreError::Link { .. })
}
