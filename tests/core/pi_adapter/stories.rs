//! Transcripts: events of a session, and to the letter what subscribers are told.
//!
//! The files in `stories/` have a line `>` for each event and `<` for each line that is told; what stands together is
//! one batch. What each says is the event of the line, inside of the envelope. With `PUSH_BLESS=1` the files are written
//! anew, as it happened, to be looked at.

use std::fs;
use std::path::Path;

use pushd::kernel::event::Event;
use pushd::protocol::pi::projection::Projection;

use crate::pi_adapter::scene::{Scene, read};

#[test]
fn every_story_is_told_as_it_is_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/core/pi_adapter/stories");
    let blessing = std::env::var_os("PUSH_BLESS").is_some();
    let mut told = 0;
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for path in names {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let written = fs::read_to_string(&path).unwrap().replace("\r\n", "\n");
        assert!(written.starts_with("# "), "{name} does not say what it shows");
        let happened = play(&written);
        if blessing {
            fs::write(&path, &happened).unwrap();
            continue;
        }
        for (number, (expected, found)) in written.lines().zip(happened.lines()).enumerate() {
            assert_eq!(found, expected, "{name}, line {}", number + 1);
        }
        assert_eq!(written.lines().count(), happened.lines().count(), "{name} ends otherwise");
        told += 1;
    }
    assert!(!blessing, "the stories were written anew: look at them, and run this again without PUSH_BLESS");
    assert!(told >= 20, "only {told} stories were found");
}

/// Plays the events of a transcript, and writes it as it happened.
fn play(written: &str) -> String {
    let mut scene = Scene::default();
    let mut story = Projection::default();
    let mut happened = String::new();
    let mut batch: Vec<Event> = Vec::new();
    let mut lines = written.lines().filter(|line| !line.starts_with("< ")).peekable();
    while let Some(line) = lines.next() {
        happened.push_str(line);
        happened.push('\n');
        if let Some(event) = line.strip_prefix("> ") {
            batch.push(scene.line(event));
        }
        // An empty line, a comment or the end ends a batch.
        if !lines.peek().is_some_and(|next| next.starts_with("> ")) {
            for event in story.project(&batch) {
                read(&event);
                happened.push_str("< ");
                happened.push_str(std::str::from_utf8(event.body()).unwrap());
                happened.push('\n');
            }
            batch.clear();
        }
    }
    happened
}
