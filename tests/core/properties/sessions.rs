//! The parser of session files: no bytes make it panic or allocate more than their size, and a parsed session
//! round-trips.
//!
//! An input is a file.

use pushd::protocol::pi::session_file::{Change, Limits, ParsedSession, parse, render, summarize};

/// Checks one input.
pub(crate) fn check(input: &[u8]) {
    let limits = Limits { bytes: 4096, line: 1024, depth: 8, entries: 12, blocks: 16 };
    let summed = summarize(input, &limits);
    let stored = match parse(input, &limits) {
        Ok(stored) => stored,
        Err(error) => {
            let text = error.to_string();
            assert!(text.chars().count() < 300 && !text.contains('\n'), "an error is a sentence: {text}");
            return;
        }
    };
    let summed = summed.expect("what can be read can be listed");
    assert_eq!(summed.header, stored.header);
    assert!(stored.entries.len() <= limits.entries);
    check_tree(&stored);
    let conversation = stored.conversation();
    assert!(conversation.messages.len() <= stored.entries.len());
    check_round_trip(stored, &limits);
}

/// The entries form a tree whose branch ends at the last of them.
fn check_tree(stored: &ParsedSession) {
    let branch = stored.branch();
    assert_eq!(branch.last().map(|entry| entry.id.as_str()), stored.leaf());
    assert!(branch.first().is_none_or(|entry| entry.parent.is_none()), "a branch begins at a root");
    for pair in branch.windows(2) {
        assert_eq!(pair[1].parent.as_ref(), Some(&pair[0].id));
    }
}

/// Every entry that is not skipped is written with the same meaning.
fn check_round_trip(mut stored: ParsedSession, limits: &Limits) {
    let known = |change: &Change| match change {
        Change::Other { .. } => false,
        Change::Message(_)
        | Change::Model { .. }
        | Change::Thinking { .. }
        | Change::Compaction { .. }
        | Change::BranchSummary { .. }
        | Change::CustomMessage { .. }
        | Change::Name(_) => true,
    };
    if !stored.entries.iter().all(|entry| known(&entry.change)) {
        return;
    }
    // A timestamp has a four-digit year in text form.
    for entry in &mut stored.entries {
        entry.at.0 = entry.at.0.min(253_402_300_799_999);
    }
    stored.header.created.0 = stored.header.created.0.min(253_402_300_799_999);
    stored.header.version = 3;
    let bytes = render(&stored.header, &stored.entries).expect("what was read can be written");
    assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), stored.entries.len() + 1);
    let wide = Limits { bytes: 1 << 20, line: 1 << 20, blocks: 1 << 10, ..*limits };
    let again = parse(&bytes, &wide).expect("what was written can be read");
    assert_eq!(again.header, stored.header);
    assert_eq!(again.entries, stored.entries);
    assert_eq!(again.skipped, 0, "nothing is written that is not known");
}
