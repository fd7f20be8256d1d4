//! Random histories whose entries were recorded from an earlier implementation: their messages, ids and order do not
//! change.

use std::fmt::Write as _;

use pushd::kernel::event::Event;
use pushd::protocol::command_protocol::SessionProjection;
use pushd::protocol::pi::encode;
use pushd::protocol::pi::projection::Projection;

use crate::pi_adapter::session::RandomSession;
use crate::support::random::Random;

/// One line for each seed: the digests of the projection after every part of its history.
const RECORDED: &str = include_str!("recorded.txt");
const STEPS: usize = 160;
/// The number of parts after which a history is compared.
const PARTS: usize = 8;

#[test]
fn recorded_histories_have_the_recorded_entries() {
    let mut changed = Vec::new();
    for (seed, line) in (0..).zip(RECORDED.lines()) {
        if digests(seed) != line {
            changed.push(seed);
        }
    }
    assert!(RECORDED.lines().count() > 100, "the histories are recorded");
    assert_eq!(changed, [0_u64; 0], "the entries of these seeds changed");
}

/// Returns the digests of the projection of a seed.
fn digests(seed: u64) -> String {
    let events = RandomSession::generate(&mut Random::new(seed), STEPS);
    let mut projection = Projection::default();
    let mut line = String::new();
    for part in events.chunks(events.len().div_ceil(PARTS)) {
        let mut described = describe_events(&mut projection, part);
        described.push_str(&describe(&projection));
        write!(line, "{:016x} ", digest(&described)).unwrap();
    }
    line.trim_end().to_owned()
}

/// Projects events and returns the protocol events.
fn describe_events(projection: &mut Projection, events: &[Event]) -> String {
    let projected = projection.project(events);
    projected.iter().map(|event| String::from_utf8_lossy(event.body()).into_owned() + "\n").collect()
}

/// Describes everything that a projection returns about a conversation.
fn describe(projection: &Projection) -> String {
    let mut text = String::new();
    for entry in projection.entries() {
        let branch = projection.branch_before(entry.seq);
        let (id, last, at) = (entry.id(), entry.last_seq, entry.at.0);
        writeln!(text, "{id} {last} {at} {:?} {:?} {branch:?} {}", entry.role, entry.origin, entry.json()).unwrap();
    }
    writeln!(text, "{}", encode::messages(projection.messages()).as_str()).unwrap();
    writeln!(text, "{:?} {:?}", projection.fork_messages(), projection.summary()).unwrap();
    writeln!(text, "{:?} {:?}", projection.stats(), projection.context_tokens()).unwrap();
    writeln!(text, "{:?} {} {}", projection.last_text(), projection.message_count(), projection.is_streaming())
        .unwrap();
    text
}

/// Returns the FNV-1a hash of a text.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
