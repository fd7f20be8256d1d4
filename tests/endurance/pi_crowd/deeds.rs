//! What commands did: what each may have come to, given what else was done before, after and beside it.

use std::collections::BTreeMap;

use crate::pi_crowd::COMMAND_MILLIS;
use crate::pi_crowd::command::{Asks, bumps, is_limited};
use crate::pi_crowd::model::{Known, Model};
use crate::pi_crowd::trace::Outcome;

/// What is counted on the way.
#[derive(Debug, Default)]
pub(crate) struct Deeds {
    pub(crate) executed: usize,
    pub(crate) succeeded: usize,
    pub(crate) planned_timeouts: usize,
    pub(crate) other_timeouts: usize,
    pub(crate) stale: usize,
    pub(crate) interrupted: usize,
    pub(crate) refused_by_breaker: usize,
}

/// Everything that was executed in one session, in the order in which it began.
struct Lane<'a> {
    executed: Vec<&'a Known>,
    /// How many changes nobody heard of.
    unheard: u64,
    /// Whether nobody may have heard that it was made.
    perhaps_made: bool,
}

/// Judges everything that was executed.
///
/// Of what is `unheard` it is not known whether it was done when the daemon was killed.
pub(crate) fn judge(model: &Model, unheard: &[&Asks]) -> Deeds {
    let mut lanes: BTreeMap<Option<&str>, Vec<&Known>> = BTreeMap::new();
    let mut executed: Vec<&Known> = model.known.iter().filter(|known| known.started.is_some()).collect();
    executed.sort_by_key(|known| known.started);
    for known in executed {
        lanes.entry(known.asks.session.as_deref()).or_default().push(known);
    }
    let mut deeds = Deeds::default();
    for (session, executed) in lanes {
        let here = || unheard.iter().filter(|asks| asks.session.as_deref() == session);
        let unheard = here().filter(|asks| bumps(&asks.kind)).count() as u64;
        let perhaps_made = here().any(|asks| asks.kind == "create_session");
        let lane = Lane { executed, unheard, perhaps_made };
        if session.is_some() {
            versions_rise_by_one(&lane);
        }
        for known in &lane.executed {
            judge_one(known, &lane, &mut deeds);
        }
        bash_is_refused_after_three_timeouts(&lane);
    }
    deeds
}

/// The last moment at which it may have done something.
fn end(known: &Known) -> usize {
    known.finished.unwrap_or(usize::MAX)
}

fn begin(known: &Known) -> usize {
    known.started.unwrap_or(usize::MAX)
}

/// Whether it may have changed something without saying so.
fn is_silent(known: &Known) -> bool {
    known.finished.is_none() || known.outcome.as_ref().is_some_and(Outcome::is_timeout)
}

/// Every success is one version, and none is left out but those that somebody may have made who did not say so.
fn versions_rise_by_one(lane: &Lane<'_>) {
    let changes = || lane.executed.iter().filter(|known| bumps(&known.asks.kind));
    let silent = changes().filter(|known| is_silent(known)).count();
    let of = |known: &&&Known| known.outcome.as_ref().filter(|outcome| outcome.is_success())?.version;
    let mut versions: Vec<u64> =
        changes().filter(|known| known.finished.is_some()).filter_map(|known| of(&known)).collect();
    let count = versions.len();
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), count, "two changes have one version: {:?}", lane.executed);
    let highest = versions.last().copied().unwrap_or(0) as usize;
    assert!(
        highest >= count && highest <= count + silent + lane.unheard as usize,
        "{count} changes ({silent} untold) and version {highest} in {:?}",
        lane.executed.first()
    );
}

fn judge_one(known: &Known, lane: &Lane<'_>, deeds: &mut Deeds) {
    deeds.executed += 1;
    let Some(outcome) = &known.outcome else {
        // Nobody asked for it after the daemon had died.
        return deeds.interrupted += 1;
    };
    let (asks, error) = (&known.asks, outcome.error.as_deref());
    let is_slow = asks.rest.contains("sleep 60");
    if known.finished.is_none() && error == Some("interrupted by restart") {
        return deeds.interrupted += 1;
    }
    if error == Some(format!("Command '{}' timed out after {COMMAND_MILLIS}ms", asks.kind).as_str()) {
        assert!(is_limited(&asks.kind), "no limit for {known:?}");
        *(if is_slow { &mut deeds.planned_timeouts } else { &mut deeds.other_timeouts }) += 1;
        return;
    }
    // Whoever asks for the health names a session only to stand in its lane.
    if asks.session.is_none() || asks.kind == "health_check" {
        return succeeds(known, outcome, deeds);
    }
    let there = Presence::of(known, lane);
    let missing = missing(known);
    let stale = asks.if_version.and_then(|wanted| Some((wanted, got(error?, wanted)?)));
    match (error, stale) {
        (_, Some((wanted, found))) => {
            assert!(there.may && wanted != found, "not stale: {known:?}");
            assert!(range(known, lane).contains(&found), "{found} not in {:?}: {known:?}", range(known, lane));
            deeds.stale += 1;
        }
        (Some(error), None) if error == missing => assert!(!there.must, "it is there: {known:?}"),
        (Some("Bash circuit breaker open"), None) if asks.kind == "bash" => deeds.refused_by_breaker += 1,
        (Some(error), None) if asks.kind == "create_session" && error.ends_with("already exists") => {
            assert!(there.may, "it was not there: {known:?}");
        }
        (Some(error), None) if asks.kind == "prompt" && error.starts_with("Agent is already processing") => {}
        (Some(_), None) => panic!("nothing says why it failed: {known:?}"),
        (None, None) => {
            if asks.kind == "create_session" {
                assert!(!there.must, "it was there: {known:?}");
            } else {
                assert!(there.may, "it is not there: {known:?}");
                versioned(known, outcome, lane);
            }
            assert!(!is_slow || asks.kind == "abort_bash" || was_aborted(known, lane), "not slow: {known:?}");
            succeeds(known, outcome, deeds);
        }
    }
}

fn succeeds(known: &Known, outcome: &Outcome, deeds: &mut Deeds) {
    assert!(outcome.is_success(), "it failed: {known:?}");
    deeds.succeeded += 1;
}

/// The version that a success tells is one that the session may have had, and the one that was wanted.
fn versioned(known: &Known, outcome: &Outcome, lane: &Lane<'_>) {
    if known.asks.kind == "delete_session" {
        return assert_eq!(outcome.version, None, "{known:?}");
    }
    let version = outcome.version.unwrap_or_else(|| panic!("no version: {known:?}"));
    let before = version.checked_sub(u64::from(bumps(&known.asks.kind)));
    let before = before.unwrap_or_else(|| panic!("not raised: {known:?}"));
    let range = range(known, lane);
    assert!(range.contains(&before), "{before} not in {range:?}: {known:?}");
    if let Some(wanted) = known.asks.if_version
        && known.asks.kind != "bash"
    {
        assert_eq!(wanted, before, "it was done at another version: {known:?}");
    }
}

/// The versions that the session may have had while a command was executed, before what it did itself.
fn range(known: &Known, lane: &Lane<'_>) -> std::ops::RangeInclusive<u64> {
    let (mut least, mut most, mut untold) = (0, 0, lane.unheard);
    // Who ends a session stops what runs in it first; both are changes that nobody is told the version of.
    let ends = |other: &&&Known| other.asks.kind == "delete_session" && begin(other) < end(known);
    untold += 2 * lane.executed.iter().filter(ends).count() as u64;
    for other in lane.executed.iter().filter(|other| bumps(&other.asks.kind) && begin(other) < end(known)) {
        if std::ptr::eq(*other, known) {
            continue;
        }
        if is_silent(other) {
            untold += 1;
            continue;
        }
        let success = other.outcome.as_ref().filter(|outcome| outcome.is_success());
        let Some(version) = success.and_then(|outcome| outcome.version) else { continue };
        most = most.max(version);
        if end(other) < begin(known) {
            least = least.max(version);
        }
    }
    least..=most + untold
}

fn missing(known: &Known) -> String {
    let session = known.asks.session.as_deref().unwrap_or_default();
    match known.asks.if_version {
        Some(version) => format!("Session {session} not found for ifSessionVersion={version}"),
        None => format!("Session {session} not found"),
    }
}

/// The version that was found, if another was wanted.
fn got(error: &str, wanted: u64) -> Option<u64> {
    error.strip_prefix(&format!("Session version mismatch: expected {wanted}, got "))?.parse().ok()
}

/// Whether a session was there.
struct Presence {
    may: bool,
    must: bool,
}

impl Presence {
    fn of(known: &Known, lane: &Lane<'_>) -> Self {
        let made = |other: &&&Known| other.asks.kind == "create_session" && !std::ptr::eq(**other, known);
        let ended = |other: &&&Known| other.asks.kind == "delete_session" && !std::ptr::eq(**other, known);
        let did = |other: &Known| other.outcome.as_ref().is_some_and(Outcome::is_success);
        let may_have = |other: &Known| did(other) || is_silent(other);
        let told = |other: &Known| did(other) && !is_silent(other);
        let made_for_sure = lane.executed.iter().filter(made).any(|other| told(other) && end(other) < begin(known));
        let perhaps_made = lane.executed.iter().filter(made).any(|other| may_have(other) && begin(other) < end(known));
        let ended_for_sure = lane.executed.iter().filter(ended).any(|other| told(other) && end(other) < begin(known));
        let perhaps_ended =
            lane.executed.iter().filter(ended).any(|other| may_have(other) && begin(other) < end(known));
        let perhaps_made = perhaps_made || lane.perhaps_made;
        Self { may: perhaps_made && !ended_for_sure, must: made_for_sure && !perhaps_ended }
    }
}

fn was_aborted(known: &Known, lane: &Lane<'_>) -> bool {
    let aborts = |other: &&&Known| other.asks.kind == "abort_bash";
    lane.executed.iter().filter(aborts).any(|other| begin(other) < end(known) && end(other) > begin(known))
}

/// Where none of three ran into its limit, the next is not refused for that.
fn bash_is_refused_after_three_timeouts(lane: &Lane<'_>) {
    let (mut in_a_row, mut life) = (0, 0);
    for known in lane.executed.iter().filter(|known| known.asks.kind == "bash") {
        if known.life != life {
            (in_a_row, life) = (0, known.life);
        }
        let Some(outcome) = &known.outcome else { continue };
        if outcome.error.as_deref() == Some("Bash circuit breaker open") {
            assert!(in_a_row >= 3, "refused after {in_a_row} timeouts: {known:?}");
        } else if outcome.is_timeout() {
            in_a_row += 1;
        } else if outcome.is_success() {
            in_a_row = 0;
        }
    }
}
