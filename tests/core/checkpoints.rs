//! Checkpoints of an earlier version are read, and those of a later version are not.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use pushd::kernel::command::{Caller, Command, Prompt};
use pushd::kernel::effect::Ticket;
use pushd::kernel::event::{Adjustment, Budget, Opening};
use pushd::kernel::id::{ConnectionId, Fingerprint};
use pushd::kernel::limits::Limits;
use pushd::kernel::session::{Input, Session};
use pushd::kernel::time::Now;
use pushd::record::checkpoint::{self, CheckpointError};
use serde_json::{Value, json};

#[test]
fn version_1_is_decoded_completely() {
    let (mut session, now) = (Session::new(Limits::default()), Now(7));
    let opening = Opening { provider: "p".into(), model: Some("m".into()), ..Opening::default() };
    apply(&mut session, Command::Open(Box::new(opening)), now);
    apply(&mut session, Command::Prompt(Box::new(prompt())), now);
    let mut state = session.state().clone();
    let mut written: Value = serde_json::from_slice(&checkpoint::encode(&state)).unwrap();
    assert_eq!(written["version"], 2);
    written["version"] = json!(1);
    for name in ["session_version", "adjusted", "asides", "compaction"] {
        assert!(written.as_object_mut().unwrap().remove(name).is_some(), "{name}");
    }
    for name in ["voice", "retrying"] {
        assert!(written["run"].as_object_mut().unwrap().remove(name).is_some(), "{name}");
    }
    let read = checkpoint::decode(written.to_string().as_bytes()).unwrap();
    assert_eq!(read.version, 0, "nobody counted");
    state.version = 0;
    assert_eq!(read, state, "whoever the session names answers in its run");
}

#[test]
fn settings_are_encoded_and_a_later_version_is_rejected() {
    let (mut session, now) = (Session::new(Limits::default()), Now(7));
    apply(&mut session, Command::Open(Box::default()), now);
    let adjustment = Adjustment { thinking: Some("low".into()), auto_retry: Some(false), ..Adjustment::default() };
    apply(&mut session, Command::Adjust(Box::new(adjustment)), now);
    let bytes = checkpoint::encode(session.state());
    assert_eq!(&checkpoint::decode(&bytes).unwrap(), session.state());
    let mut later: Value = serde_json::from_slice(&bytes).unwrap();
    later["version"] = json!(3);
    let error = checkpoint::decode(later.to_string().as_bytes()).unwrap_err();
    assert!(matches!(error, CheckpointError::Version(3)), "{error}");
}

#[test]
fn a_checkpoint_written_without_the_effect_of_a_known_event_is_rejected() {
    let mut session = Session::new(Limits::default());
    apply(&mut session, Command::Open(Box::default()), Now(7));
    let mut state = session.state().clone();
    let later = br#"{"seq":9,"ts":8,"type":"merge_proposed","payload":{}}"#;
    state.fold(&pushd::record::decode_event(later).unwrap(), &Limits::default());
    let bytes = checkpoint::encode(&state);
    assert_eq!(checkpoint::decode(&bytes).unwrap(), state, "the version that wrote it can use it");
    // To the version that knows the event, the checkpoint looks like this one looks here.
    let known = String::from_utf8(bytes).unwrap().replace("merge_proposed", "session_renamed");
    let error = checkpoint::decode(known.as_bytes()).unwrap_err();
    assert!(matches!(&error, CheckpointError::Incomplete(kind) if kind == "session_renamed"), "{error}");
}

fn apply(session: &mut Session, command: Command, now: Now) {
    let caller = Caller::owner(ConnectionId(1), "cli".into());
    let input = Input::Command { ticket: Ticket(1), caller, command, if_version: None };
    assert!(!session.apply(input, now).is_empty());
}

fn prompt() -> Prompt {
    Prompt {
        run: "run_1".into(),
        message: "msg_1".into(),
        text: "go".into(),
        images: Vec::new(),
        criteria: Vec::new(),
        time_limit: None,
        budget: Budget::default(),
        rules: Vec::new(),
        needs_environment: false,
        fingerprint: Fingerprint(1),
    }
}
