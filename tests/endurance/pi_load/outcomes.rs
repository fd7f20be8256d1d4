//! Checks outcomes: which ones a command may have, given the commands before it and concurrent with it.

use std::collections::BTreeMap;

use crate::pi_load::COMMAND_MILLIS;
use crate::pi_load::command::{Request, changes_version, has_time_limit};
use crate::pi_load::model::{Model, TrackedCommand};
use crate::pi_load::trace::Outcome;

/// Statistics of the executed commands.
#[derive(Debug, Default)]
pub(crate) struct ExecutionCounts {
    pub(crate) executed: usize,
    pub(crate) succeeded: usize,
    pub(crate) planned_timeouts: usize,
    pub(crate) other_timeouts: usize,
    pub(crate) stale: usize,
    pub(crate) interrupted: usize,
    pub(crate) refused_by_breaker: usize,
}

/// The executed commands of one session, in the order of their start.
struct Lane<'a> {
    executed: Vec<&'a TrackedCommand>,
    /// How many changes were not observed.
    unobserved: u64,
    /// Whether its creation may not have been observed.
    possibly_created: bool,
}

/// Checks every executed command.
///
/// It is not known whether the commands in `unobserved` were executed before the daemon was killed.
pub(crate) fn check(model: &Model, unobserved: &[&Request]) -> ExecutionCounts {
    let mut lanes: BTreeMap<Option<&str>, Vec<&TrackedCommand>> = BTreeMap::new();
    let mut executed: Vec<&TrackedCommand> = model.known.iter().filter(|known| known.started.is_some()).collect();
    executed.sort_by_key(|known| known.started);
    for known in executed {
        lanes.entry(known.request.session.as_deref()).or_default().push(known);
    }
    let mut executions = ExecutionCounts::default();
    for (session, executed) in lanes {
        let here = || unobserved.iter().filter(|request| request.session.as_deref() == session);
        let unobserved = here().filter(|request| changes_version(&request.kind)).count() as u64;
        let possibly_created = here().any(|request| request.kind == "create_session");
        let lane = Lane { executed, unobserved, possibly_created };
        if session.is_some() {
            versions_rise_by_one(&lane);
        }
        for known in &lane.executed {
            check_one(known, &lane, &mut executions);
        }
        bash_is_refused_after_three_timeouts(&lane);
    }
    executions
}

/// The last position at which it may have had an effect.
fn end(known: &TrackedCommand) -> usize {
    known.finished.unwrap_or(usize::MAX)
}

fn begin(known: &TrackedCommand) -> usize {
    known.started.unwrap_or(usize::MAX)
}

/// Whether it may have changed something without a reported success.
fn may_be_unreported(known: &TrackedCommand) -> bool {
    known.finished.is_none() || known.outcome.as_ref().is_some_and(Outcome::is_timeout)
}

/// Every success has one version, and none is skipped except by changes that may be unreported.
fn versions_rise_by_one(lane: &Lane<'_>) {
    let changes = || lane.executed.iter().filter(|known| changes_version(&known.request.kind));
    let unreported = changes().filter(|known| may_be_unreported(known)).count();
    let of = |known: &&&TrackedCommand| known.outcome.as_ref().filter(|outcome| outcome.is_success())?.version;
    let mut versions: Vec<u64> =
        changes().filter(|known| known.finished.is_some()).filter_map(|known| of(&known)).collect();
    let count = versions.len();
    versions.sort_unstable();
    versions.dedup();
    assert_eq!(versions.len(), count, "two changes have one version: {:?}", lane.executed);
    let highest = versions.last().copied().unwrap_or(0) as usize;
    assert!(
        highest >= count && highest <= count + unreported + lane.unobserved as usize,
        "{count} changes ({unreported} unreported) and version {highest} in {:?}",
        lane.executed.first()
    );
}

fn check_one(known: &TrackedCommand, lane: &Lane<'_>, executions: &mut ExecutionCounts) {
    executions.executed += 1;
    let Some(outcome) = &known.outcome else {
        // It was not repeated after the daemon was killed.
        return executions.interrupted += 1;
    };
    let (request, error) = (&known.request, outcome.error.as_deref());
    let is_slow = request.rest.contains("sleep 60");
    if known.finished.is_none() && error == Some("interrupted by restart") {
        return executions.interrupted += 1;
    }
    if error == Some(format!("Command '{}' timed out after {COMMAND_MILLIS}ms", request.kind).as_str()) {
        assert!(has_time_limit(&request.kind), "no limit for {known:?}");
        *(if is_slow { &mut executions.planned_timeouts } else { &mut executions.other_timeouts }) += 1;
        return;
    }
    // A health check names a session only to select its lane.
    if request.session.is_none() || request.kind == "health_check" {
        return assert_success(known, outcome, executions);
    }
    let there = Presence::of(known, lane);
    let not_found_error = not_found_error(known);
    let stale = request.if_version.and_then(|wanted| Some((wanted, mismatched_version(error?, wanted)?)));
    match (error, stale) {
        (_, Some((wanted, found))) => {
            assert!(there.may && wanted != found, "not stale: {known:?}");
            assert!(range(known, lane).contains(&found), "{found} not in {:?}: {known:?}", range(known, lane));
            executions.stale += 1;
        }
        (Some(error), None) if error == not_found_error => assert!(!there.must, "it is there: {known:?}"),
        (Some("Bash circuit breaker open"), None) if request.kind == "bash" => executions.refused_by_breaker += 1,
        (Some(error), None) if request.kind == "create_session" && error.ends_with("already exists") => {
            assert!(there.may, "it was not there: {known:?}");
        }
        (Some(error), None) if request.kind == "prompt" && error.starts_with("Agent is already processing") => {}
        (Some(_), None) => panic!("unexpected failure: {known:?}"),
        (None, None) => {
            if request.kind == "create_session" {
                assert!(!there.must, "it was there: {known:?}");
            } else {
                assert!(there.may, "it is not there: {known:?}");
                check_version(known, outcome, lane);
            }
            assert!(!is_slow || request.kind == "abort_bash" || was_aborted(known, lane), "not slow: {known:?}");
            assert_success(known, outcome, executions);
        }
    }
}

fn assert_success(known: &TrackedCommand, outcome: &Outcome, executions: &mut ExecutionCounts) {
    assert!(outcome.is_success(), "it failed: {known:?}");
    executions.succeeded += 1;
}

/// The version of a success is one that the session may have had, and the expected one.
fn check_version(known: &TrackedCommand, outcome: &Outcome, lane: &Lane<'_>) {
    if known.request.kind == "delete_session" {
        return assert_eq!(outcome.version, None, "{known:?}");
    }
    let version = outcome.version.unwrap_or_else(|| panic!("no version: {known:?}"));
    let before = version.checked_sub(u64::from(changes_version(&known.request.kind)));
    let before = before.unwrap_or_else(|| panic!("not raised: {known:?}"));
    let range = range(known, lane);
    assert!(range.contains(&before), "{before} not in {range:?}: {known:?}");
    if let Some(wanted) = known.request.if_version
        && known.request.kind != "bash"
    {
        assert_eq!(wanted, before, "it was done at another version: {known:?}");
    }
}

/// The versions that the session may have had while a command was executed, before its own change.
fn range(known: &TrackedCommand, lane: &Lane<'_>) -> std::ops::RangeInclusive<u64> {
    let (mut least, mut most, mut unreported) = (0, 0, lane.unobserved);
    // A deletion first stops the active run; the versions of both changes are not reported.
    let ends = |other: &&&TrackedCommand| other.request.kind == "delete_session" && begin(other) < end(known);
    unreported += 2 * lane.executed.iter().filter(ends).count() as u64;
    for other in lane.executed.iter().filter(|other| changes_version(&other.request.kind) && begin(other) < end(known))
    {
        if std::ptr::eq(*other, known) {
            continue;
        }
        if may_be_unreported(other) {
            unreported += 1;
            continue;
        }
        let success = other.outcome.as_ref().filter(|outcome| outcome.is_success());
        let Some(version) = success.and_then(|outcome| outcome.version) else { continue };
        most = most.max(version);
        if end(other) < begin(known) {
            least = least.max(version);
        }
    }
    least..=most + unreported
}

fn not_found_error(known: &TrackedCommand) -> String {
    let session = known.request.session.as_deref().unwrap_or_default();
    match known.request.if_version {
        Some(version) => format!("Session {session} not found for ifSessionVersion={version}"),
        None => format!("Session {session} not found"),
    }
}

/// The actual version in the error, if another one was expected.
fn mismatched_version(error: &str, wanted: u64) -> Option<u64> {
    error.strip_prefix(&format!("Session version mismatch: expected {wanted}, got "))?.parse().ok()
}

/// Whether a session existed.
struct Presence {
    may: bool,
    must: bool,
}

impl Presence {
    fn of(known: &TrackedCommand, lane: &Lane<'_>) -> Self {
        let made = |other: &&&TrackedCommand| other.request.kind == "create_session" && !std::ptr::eq(**other, known);
        let ended = |other: &&&TrackedCommand| other.request.kind == "delete_session" && !std::ptr::eq(**other, known);
        let did = |other: &TrackedCommand| other.outcome.as_ref().is_some_and(Outcome::is_success);
        let may_have = |other: &TrackedCommand| did(other) || may_be_unreported(other);
        let reported = |other: &TrackedCommand| did(other) && !may_be_unreported(other);
        let certainly_created =
            lane.executed.iter().filter(made).any(|other| reported(other) && end(other) < begin(known));
        let possibly_created =
            lane.executed.iter().filter(made).any(|other| may_have(other) && begin(other) < end(known));
        let certainly_deleted =
            lane.executed.iter().filter(ended).any(|other| reported(other) && end(other) < begin(known));
        let possibly_deleted =
            lane.executed.iter().filter(ended).any(|other| may_have(other) && begin(other) < end(known));
        let possibly_created = possibly_created || lane.possibly_created;
        Self { may: possibly_created && !certainly_deleted, must: certainly_created && !possibly_deleted }
    }
}

fn was_aborted(known: &TrackedCommand, lane: &Lane<'_>) -> bool {
    let aborts = |other: &&&TrackedCommand| other.request.kind == "abort_bash";
    lane.executed.iter().filter(aborts).any(|other| begin(other) < end(known) && end(other) > begin(known))
}

/// Bash is refused only after three timeouts in a row.
fn bash_is_refused_after_three_timeouts(lane: &Lane<'_>) {
    let (mut in_a_row, mut instance) = (0, 0);
    for known in lane.executed.iter().filter(|known| known.request.kind == "bash") {
        if known.instance != instance {
            (in_a_row, instance) = (0, known.instance);
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
