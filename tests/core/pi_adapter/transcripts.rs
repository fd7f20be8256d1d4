//! Transcripts: events of a session, and the exact lines that subscribers receive.
//!
//! The files in `transcripts/` have a line `>` for each event and `<` for each line that is sent; adjacent events are
//! one batch. Each line is the event inside of the envelope. With `PUSH_BLESS=1` the files are written
//! again, to be reviewed.

use std::fs;
use std::path::Path;

use pushd::kernel::event::Event;
use pushd::protocol::pi::projection::Projection;

use crate::pi_adapter::event_source::{EventSource, read};

#[test]
fn every_transcript_is_projected_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/core/pi_adapter/transcripts");
    let blessing = std::env::var_os("PUSH_BLESS").is_some();
    let mut checked = 0;
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for path in names {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let written = fs::read_to_string(&path).unwrap().replace("\r\n", "\n");
        assert!(written.starts_with("# "), "{name} has no title");
        let actual = project_transcript(&written);
        if blessing {
            fs::write(&path, &actual).unwrap();
            continue;
        }
        for (number, (expected, found)) in written.lines().zip(actual.lines()).enumerate() {
            assert_eq!(found, expected, "{name}, line {}", number + 1);
        }
        assert_eq!(written.lines().count(), actual.lines().count(), "{name} has another length");
        checked += 1;
    }
    assert!(!blessing, "the transcripts were written: review them, and run this again without PUSH_BLESS");
    assert!(checked >= 20, "only {checked} transcripts were found");
}

/// Projects the events of a transcript, and returns the transcript with the actual lines.
fn project_transcript(written: &str) -> String {
    let mut source = EventSource::default();
    let mut projection = Projection::default();
    let mut actual = String::new();
    let mut batch: Vec<Event> = Vec::new();
    let mut lines = written.lines().filter(|line| !line.starts_with("< ")).peekable();
    while let Some(line) = lines.next() {
        actual.push_str(line);
        actual.push('\n');
        if let Some(event) = line.strip_prefix("> ") {
            batch.push(source.line(event));
        }
        // An empty line, a comment or the end ends a batch.
        if !lines.peek().is_some_and(|next| next.starts_with("> ")) {
            for event in projection.project(&batch) {
                read(&event);
                actual.push_str("< ");
                actual.push_str(std::str::from_utf8(event.body()).unwrap());
                actual.push('\n');
            }
            batch.clear();
        }
    }
    actual
}
