//! The codec of the journal: no line makes the decoder panic, and a decoded event round-trips.
//!
//! An input is a line of a block.

use pushd::kernel::conversation::Conversation;
use pushd::kernel::id::SessionId;
use pushd::record::event_line;
use pushd::record::{decode_event, seq_of};
use pushd::transport::canonical_json::{Limits, canonicalize};

/// Checks one input.
pub(crate) fn check(input: &[u8]) {
    // A block is split at line ends before decoding.
    let line = input.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let _ = seq_of(line);
    let Ok(event) = decode_event(line) else { return };
    Conversation::default().fold(&event);
    // Written values come from canonical JSON: compact and without duplicate keys.
    let deep = Limits { depth: 126 };
    if canonicalize(line, deep).as_deref() != Ok(line) {
        return;
    }
    let mut written = Vec::new();
    event_line(&SessionId::from("sess_1"), &event, &mut written);
    assert_eq!(written.iter().position(|byte| *byte == b'\n'), Some(written.len() - 1), "one line");
    assert_eq!(canonicalize(&written[..written.len() - 1], deep).as_deref(), Ok(&written[..written.len() - 1]));
    assert_eq!(seq_of(&written), Some(event.seq));
    assert_eq!(decode_event(&written).expect("what was written can be read"), event);
}
