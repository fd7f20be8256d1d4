//! Checks that every command succeeds in some transcript and is refused in some transcript.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use pushd::protocol::pi::kind::Kind;

use crate::pi::script::{self, Action};

#[test]
fn every_command_succeeds_and_is_refused_in_some_transcript() {
    let (mut good, mut refused, mut transcripts) = (BTreeSet::new(), BTreeSet::new(), 0);
    for text in transcripts_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/pi")) {
        transcripts += 1;
        let mut last = String::new();
        let mut by_id = BTreeMap::new();
        for step in script::parse(&text) {
            match script::parse_step(&step, &step.rest.replace("${", "$")) {
                Some(Action::Send { command, .. }) => {
                    last = command["type"].as_str().expect("a type").to_owned();
                    if let Some(id) = command["id"].as_str() {
                        by_id.insert(id.to_owned(), last.clone());
                    }
                }
                Some(Action::Ok { id, .. }) => {
                    good.insert(id.and_then(|id| by_id.get(&id).cloned()).unwrap_or_else(|| last.clone()));
                }
                Some(Action::No { id, .. }) => {
                    refused.insert(id.and_then(|id| by_id.get(&id).cloned()).unwrap_or_else(|| last.clone()));
                }
                _ => {}
            }
        }
    }
    let never = |among: &BTreeSet<String>| -> Vec<&str> {
        Kind::ALL.iter().map(|kind| kind.name()).filter(|name| !among.contains(*name)).collect()
    };
    assert_eq!(never(&good), Vec::<&str>::new(), "never succeed");
    // These have no arguments of their own that could be refused.
    assert_eq!(never(&refused), ["get_metrics", "list_stored_sessions"], "are never refused");
    assert!(transcripts >= 250, "{transcripts} transcripts");
}

/// The texts of the transcripts in the files of a folder.
fn transcripts_of(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).expect("the transcripts").flatten();
    let texts = files.map(|file| fs::read_to_string(file.path()).expect("a file"));
    let of_one = |text: String| {
        let parts = text.split("=> r#\"").skip(1).filter_map(|part| part.split("\"#").next());
        parts.map(str::to_owned).collect::<Vec<_>>()
    };
    texts.flat_map(of_one).collect()
}
