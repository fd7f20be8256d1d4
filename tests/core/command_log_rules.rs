//! Rules of the command log, one scenario each.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod fixture;

use fixture::{Fixture, LIMITS, after, anonymous, command, in_session, keyed, stored_with_effect, with_other_content};
use pushd::kernel::command_log::{
    CommandLogLimits, CommandOutcome, CommandRecord, Effect, Input, RateClass, RowId, Scheduling, StoredCommand,
    Submission, SubmissionId,
};
use pushd::kernel::id::{Fingerprint, SessionId};
use pushd::kernel::rate::RateLimits;
use pushd::kernel::time::Now;

fn overtaking(submission: Submission) -> Submission {
    Submission { scheduling: Scheduling::Bypass, ..submission }
}

fn limited(millis: u64, submission: Submission) -> Submission {
    Submission { time_limit: Some(millis), ..submission }
}

#[test]
fn a_command_is_accepted_run_and_finished() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.submit(command(1, "a")), ["accepted 1", "run 1"]);
    assert_eq!(fixture.succeed(1, "r"), ["later a ok r", "finished 1 ok r"]);
    assert_eq!(fixture.succeed(1, "twice"), [""; 0]);
}

#[test]
fn a_stored_command_is_answered_when_its_outcome_is_on_disk_and_written_at_once_while_it_waits() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.submit(stored_with_effect(1, "a")), ["accepted 1", "run 1"]);
    assert_eq!(fixture.submit(stored_with_effect(2, "b")), ["accepted 2", "keep b"], "it runs behind the first");
    assert_eq!(fixture.succeed(1, "r"), ["settle 1 ok r"]);
    assert_eq!(fixture.apply(Input::OutcomePersisted(SubmissionId(1))), ["finished 1 ok r", "run 2"]);
    let committed = Input::FinishedWithEffect(SubmissionId(2), CommandOutcome::succeeded("r", None));
    assert_eq!(fixture.apply(committed), ["finished 2 ok r"], "its effect has stored it");
}

#[test]
fn an_outcome_that_cannot_be_written_is_still_reported() {
    let mut fixture = Fixture::new();
    fixture.submit(stored_with_effect(1, "a"));
    fixture.succeed(1, "r");
    assert_eq!(fixture.apply(Input::OutcomeFailed(SubmissionId(1))), ["finished 1 ok r"]);
    assert_eq!(fixture.submit(stored_with_effect(2, "a")), ["accepted 2", "finished 2 again ok r"]);
}

#[test]
fn a_lane_runs_one_command_at_a_time_in_the_order_of_admission() {
    let mut fixture = Fixture::new();
    fixture.submit(command(1, "a"));
    assert_eq!(fixture.submit(command(2, "b")), ["accepted 2"]);
    assert_eq!(fixture.submit(command(3, "c")), ["accepted 3"]);
    assert_eq!(fixture.submit(in_session("t", command(4, "d"))), ["accepted 4", "run 4"]);
    assert_eq!(fixture.fail(1, "e"), ["later a failed e", "finished 1 failed e", "run 2"]);
    assert_eq!(fixture.succeed(2, "r"), ["later b ok r", "finished 2 ok r", "run 3"]);
}

#[test]
fn a_read_waits_for_changes_before_it_and_runs_during_a_long_command() {
    let mut fixture = Fixture::new();
    let with = |order, submission| Submission { scheduling: order, ..submission };
    assert_eq!(fixture.submit(command(1, "a")), ["accepted 1", "run 1"]);
    assert_eq!(fixture.submit(with(Scheduling::LongWrite, command(2, "b"))), ["accepted 2"]);
    assert_eq!(fixture.submit(with(Scheduling::Read, command(3, "c"))), ["accepted 3"]);
    assert_eq!(fixture.succeed(1, "r"), ["later a ok r", "finished 1 ok r", "run 2", "run 3"]);
    assert_eq!(fixture.submit(command(4, "d")), ["accepted 4"]);
    assert_eq!(fixture.submit(with(Scheduling::Read, command(5, "e"))), ["accepted 5"], "a change is before it");
    assert_eq!(fixture.succeed(2, "r"), ["later b ok r", "finished 2 ok r"], "a read still runs");
    assert_eq!(fixture.succeed(3, "r"), ["later c ok r", "finished 3 ok r", "run 4"]);
    assert_eq!(fixture.succeed(4, "r"), ["later d ok r", "finished 4 ok r", "forget 1", "run 5"]);
}

#[test]
fn an_overtaking_command_does_not_wait_for_its_lane() {
    let mut fixture = Fixture::new();
    fixture.submit(command(1, "a"));
    assert_eq!(fixture.submit(overtaking(command(2, "b"))), ["accepted 2", "run 2"]);
    assert_eq!(fixture.succeed(2, "r"), ["later b ok r", "finished 2 ok r"]);
    assert_eq!(fixture.submit(command(3, "c")), ["accepted 3"], "the lane is still taken");
}

#[test]
fn a_duplicate_gets_the_outcome_and_does_not_run() {
    let mut fixture = Fixture::new();
    fixture.submit(command(1, "a"));
    fixture.fail(1, "broke");
    assert_eq!(fixture.submit(command(2, "a")), ["accepted 2", "finished 2 again failed broke"]);
}

#[test]
fn a_duplicate_of_an_active_command_waits_for_its_outcome() {
    let mut fixture = Fixture::new();
    fixture.submit(command(1, "a"));
    assert_eq!(fixture.submit(command(2, "a")), ["accepted 2"]);
    assert_eq!(fixture.succeed(1, "r"), ["later a ok r", "finished 1 ok r", "finished 2 again ok r"]);
}

#[test]
fn a_name_reused_for_another_command_is_a_conflict_and_is_not_recorded() {
    let mut fixture = Fixture::new();
    fixture.submit(keyed("k", command(1, "a")));
    let fault = |identity: &str, name: &str| {
        format!("failed Conflict {{ matched_by: {identity}, name: {name:?}, earlier: \"work\", requested: \"other\" }}")
    };
    let by_id = format!("finished 2 {}", fault("Id", "a"));
    assert_eq!(fixture.submit(with_other_content(command(2, "a"))), ["accepted 2", &by_id], "while it is under way");
    fixture.succeed(1, "r");
    let by_key = format!("finished 3 {}", fault("Key", "k"));
    assert_eq!(fixture.submit(with_other_content(keyed("k", command(3, "b")))), ["accepted 3", &by_key]);
    assert_eq!(fixture.submit(with_other_content(command(4, "b"))), ["accepted 4", "run 4"], "b was not taken");
}

#[test]
fn a_key_is_looked_up_before_the_id() {
    let mut fixture = Fixture::new();
    fixture.submit(keyed("k", command(1, "a")));
    fixture.succeed(1, "first");
    fixture.submit(with_other_content(command(2, "b")));
    fixture.succeed(2, "second");
    assert_eq!(fixture.submit(keyed("k", command(3, "b"))), ["accepted 3", "finished 3 again ok first"]);
}

#[test]
fn a_key_is_scoped_to_its_session() {
    let mut fixture = Fixture::new();
    fixture.submit(keyed("k", anonymous(command(1, ""))));
    assert_eq!(fixture.succeed(1, "r"), ["later k ok r", "finished 1 ok r"]);
    assert_eq!(fixture.submit(keyed("k", anonymous(command(2, "")))), ["accepted 2", "finished 2 again ok r"]);
    assert_eq!(fixture.submit(in_session("t", keyed("k", anonymous(command(3, ""))))), ["accepted 3", "run 3"]);
    let server = Submission { session: None, ..keyed("k", anonymous(command(4, ""))) };
    assert_eq!(fixture.submit(server), ["accepted 4", "run 4"]);
}

#[test]
fn a_key_expires_and_the_id_does_not() {
    let mut fixture = Fixture::new();
    fixture.submit(keyed("k", command(1, "a")));
    fixture.succeed(1, "r");
    fixture.now = fixture.now.after(599);
    assert_eq!(fixture.submit(keyed("k", anonymous(command(2, "")))), ["accepted 2", "finished 2 again ok r"]);
    fixture.now = fixture.now.after(1);
    assert_eq!(fixture.submit(with_other_content(keyed("k", anonymous(command(3, ""))))), ["accepted 3", "run 3"]);
    assert_eq!(fixture.submit(command(4, "a")), ["accepted 4", "finished 4 again ok r"]);
}

#[test]
fn a_duplicate_under_a_new_name_registers_that_name() {
    let mut fixture = Fixture::new();
    fixture.submit(keyed("k", command(1, "a")));
    assert_eq!(fixture.submit(keyed("k", command(2, "b"))), ["accepted 2"]);
    assert_eq!(fixture.succeed(1, "r"), ["later a ok r", "finished 1 ok r", "later b ok r", "finished 2 again ok r"]);
    assert_eq!(fixture.submit(command(3, "b")), ["accepted 3", "finished 3 again ok r"]);
    let first = fixture.submit(keyed("k", command(4, "c")));
    assert_eq!(first, ["accepted 4", "later c ok r", "finished 4 again ok r"]);
    let conflict = fixture.submit(with_other_content(command(5, "c")));
    assert!(conflict.iter().any(|word| word.contains("Conflict")), "{conflict:?}");
}

#[test]
fn a_new_name_of_a_stored_command_is_written_before_it_is_answered() {
    let mut fixture = Fixture::new();
    fixture.submit(keyed("k", stored_with_effect(1, "a")));
    fixture.submit(keyed("k", stored_with_effect(2, "b")));
    fixture.succeed(1, "r");
    assert_eq!(fixture.apply(Input::OutcomePersisted(SubmissionId(1))), ["finished 1 ok r", "settle 2 ok r"]);
    assert_eq!(fixture.submit(stored_with_effect(3, "b")), ["accepted 3"], "it is under way until it is written");
    assert_eq!(
        fixture.apply(Input::OutcomePersisted(SubmissionId(2))),
        ["finished 2 again ok r", "finished 3 again ok r"]
    );
}

#[test]
fn a_command_waits_for_what_it_depends_on() {
    let mut fixture = Fixture::new();
    fixture.submit(in_session("t", command(1, "a")));
    fixture.submit(in_session("u", command(2, "b")));
    assert_eq!(fixture.submit(after(&["a", "b"], command(3, "c"))), ["accepted 3"]);
    assert_eq!(fixture.submit(command(4, "d")), ["accepted 4"], "its lane waits with it");
    fixture.succeed(1, "r");
    assert_eq!(fixture.succeed(2, "r"), ["later b ok r", "finished 2 ok r", "run 3"]);
}

#[test]
fn a_dependency_that_cannot_be_fulfilled_fails_the_command_for_good() {
    let mut fixture = Fixture::new();
    let failed = |words: Vec<String>, fault: &str| {
        assert_eq!(words.last().map(|word| word.contains(fault)), Some(true), "{words:?}");
        assert!(words.iter().all(|word| !word.starts_with("run")), "{words:?}");
    };
    failed(fixture.submit(after(&["x"], command(1, "a"))), "UnknownDependency { dependency: \"x\" }");
    failed(fixture.submit(after(&["b"], command(2, "b"))), "SelfDependency { name: \"b\" }");
    failed(fixture.submit(after(&["x"], command(3, "a"))), "again failed UnknownDependency");
    let chained = fixture.submit(after(&["a"], command(4, "c")));
    failed(chained, "DependencyFailed { dependency: \"a\", error: \"Unknow\" }");
}

#[test]
fn an_unfinished_dependency_in_the_same_lane_fails_at_once() {
    let mut fixture = Fixture::new();
    fixture.submit(command(1, "a"));
    let words = fixture.submit(after(&["a"], command(2, "b")));
    assert!(words.last().expect("it ends").contains("SameLane { dependency: \"a\" }"), "{words:?}");
    fixture.succeed(1, "r");
    assert_eq!(fixture.submit(after(&["a"], command(3, "c"))), ["accepted 3", "run 3"]);
}

#[test]
fn a_failure_fails_all_dependents_and_releases_their_turns() {
    let mut fixture = Fixture::with_limits(CommandLogLimits { error_bytes: 100, ..LIMITS });
    fixture.submit(in_session("t", command(1, "a")));
    fixture.submit(after(&["a"], command(2, "b")));
    fixture.submit(command(3, "c"));
    fixture.submit(in_session("u", after(&["b"], command(4, "d"))));
    let ended = fixture.fail(1, "e");
    assert_eq!(ended.first().map(String::as_str), Some("later a failed e"));
    let ends: Vec<&String> = ended.iter().filter(|word| word.starts_with("finished")).collect();
    assert_eq!(ends[1], "finished 2 failed DependencyFailed { dependency: \"a\", error: \"e\" }");
    assert!(ends[2].starts_with("finished 4 failed DependencyFailed { dependency: \"b\""), "{ended:?}");
    assert!(ended.contains(&"run 3".to_owned()), "{ended:?}");
}

#[test]
fn a_chain_of_any_length_fails_without_a_deep_stack() {
    let mut fixture = Fixture::with_limits(CommandLogLimits {
        in_flight: 10_000,
        outcomes: 10_000,
        rate: RateLimits { session: 20_000, overall: 20_000, window_millis: 1 },
        ..LIMITS
    });
    fixture.submit(in_session("0", command(0, "0")));
    for n in 1..10_000_u64 {
        let before = (n - 1).to_string();
        fixture.submit(in_session(&n.to_string(), after(&[&before], command(n, &n.to_string()))));
    }
    assert_eq!(fixture.fail(0, "e").len(), 20_000);
    assert_eq!(fixture.log.stats().in_flight, 0);
    assert_eq!(fixture.log.stats().lanes, 0);
}

#[test]
fn the_wait_for_a_dependency_is_limited_from_the_moment_of_its_turn() {
    let mut fixture = Fixture::new();
    fixture.submit(in_session("t", command(1, "a")));
    fixture.submit(command(2, "b"));
    fixture.submit(after(&["a"], command(3, "c")));
    assert_eq!(fixture.log.next_deadline(), None, "it is not its turn");
    fixture.now = fixture.now.after(100);
    fixture.succeed(2, "r");
    let ended = fixture.deadline_in(30);
    let end = ended.last().expect("it ends");
    assert!(end.contains("failed DependencyTimeout { dependency: \"a\", millis: 30 }"), "{ended:?}");
    assert_eq!(fixture.log.next_deadline(), None);
    assert_eq!(fixture.succeed(1, "r"), ["later a ok r", "finished 1 ok r"]);
}

#[test]
fn a_wait_that_is_over_leaves_no_deadline_behind() {
    let mut fixture = Fixture::new();
    fixture.submit(in_session("t", command(1, "a")));
    fixture.submit(after(&["a"], command(2, "b")));
    assert!(fixture.log.next_deadline().is_some());
    assert_eq!(fixture.succeed(1, "r"), ["later a ok r", "finished 1 ok r", "run 2"]);
    assert_eq!(fixture.log.next_deadline(), None);
}

#[test]
fn a_time_limit_is_an_outcome_that_nothing_changes() {
    let mut fixture = Fixture::new();
    fixture.submit(limited(50, command(1, "a")));
    fixture.submit(command(2, "b"));
    let late = "failed late TimedOut { name: \"a\", kind: \"work\", millis: 50 }";
    let words = fixture.deadline_in(50);
    assert_eq!(words, ["abandon 1", &format!("later a {late}"), &format!("finished 1 {late}"), "run 2"]);
    assert_eq!(fixture.succeed(1, "late"), [""; 0]);
    assert_eq!(fixture.submit(command(3, "a")), ["accepted 3", &format!("finished 3 again {late}")]);
}

#[test]
fn a_late_report_does_not_change_a_time_limit_that_is_being_written() {
    let mut fixture = Fixture::new();
    fixture.submit(limited(50, stored_with_effect(1, "a")));
    let words = fixture.deadline_in(50);
    assert!(words.iter().any(|word| word.starts_with("settle 1 failed late")), "{words:?}");
    assert_eq!(fixture.succeed(1, "late"), [""; 0]);
    let effects = fixture.apply(Input::OutcomePersisted(SubmissionId(1)));
    assert!(effects[0].starts_with("finished 1 failed late"), "{effects:?}");
}

#[test]
fn a_time_limit_counts_from_the_start() {
    let mut fixture = Fixture::new();
    fixture.submit(command(1, "a"));
    fixture.submit(limited(50, command(2, "b")));
    assert_eq!(fixture.log.next_deadline(), None);
    fixture.now = fixture.now.after(500);
    fixture.succeed(1, "r");
    assert_eq!(fixture.deadline_in(50).first().map(String::as_str), Some("abandon 2"));
}

#[test]
fn too_many_active_commands_are_refused_and_duplicates_count() {
    let mut fixture = Fixture::new();
    fixture.submit(command(1, "a"));
    fixture.submit(command(2, "b"));
    fixture.submit(command(3, "a"));
    fixture.submit(command(4, "a"));
    assert_eq!(fixture.submit(command(5, "c")), ["refuse 5 Busy { limit: 4 }"]);
    assert_eq!(fixture.submit(command(6, "a")), ["refuse 6 Busy { limit: 4 }"]);
    assert_eq!(fixture.log.stats().refused_as_busy, 2);
    fixture.succeed(1, "r");
    assert_eq!(fixture.submit(command(7, "a")), ["accepted 7", "finished 7 again ok r"]);
    assert_eq!(fixture.log.stats().in_flight, 1);
}

#[test]
fn the_oldest_outcomes_are_evicted_with_their_names() {
    let mut fixture = Fixture::new();
    for (ticket, id) in [(1, "a"), (2, "b"), (3, "c")] {
        fixture.submit(keyed(id, command(ticket, id)));
        fixture.succeed(ticket, "r");
    }
    fixture.submit(command(4, "d"));
    assert_eq!(fixture.succeed(4, "r"), ["later d ok r", "finished 4 ok r", "forget 1"]);
    assert_eq!((fixture.log.stats().outcomes, fixture.log.stats().keys), (3, 2));
    assert_eq!(fixture.submit(keyed("a", command(5, "a"))), ["accepted 5", "run 5"]);
}

#[test]
fn large_answers_share_a_bound_and_their_commands_stay_known() {
    let mut fixture = Fixture::with_limits(CommandLogLimits { body_bytes: 8, ..LIMITS });
    for (ticket, id, bytes) in [(1, "a", 20), (2, "b", 20), (3, "c", 9)] {
        fixture.submit(command(ticket, id));
        fixture.succeed(ticket, &"x".repeat(bytes));
    }
    assert_eq!(fixture.submit(command(4, "a")), ["accepted 4", "finished 4 again ok <20 bytes>"]);
    assert!(fixture.submit(command(5, "b"))[1].ends_with(&"x".repeat(20)));
    assert!(fixture.submit(command(6, "c"))[1].ends_with(&"x".repeat(9)));
}

#[test]
fn a_command_without_a_name_is_neither_persisted_nor_cached() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.submit(anonymous(stored_with_effect(1, ""))), ["accepted 1", "run 1"]);
    assert_eq!(fixture.succeed(1, "r"), ["finished 1 ok r"]);
    assert_eq!(fixture.submit(anonymous(stored_with_effect(2, ""))), ["accepted 2", "run 2"]);
    let words = fixture.submit(in_session("t", after(&["anon"], command(3, "b"))));
    assert!(words.last().expect("it ends").contains("UnknownDependency"), "{words:?}");
}

#[test]
fn the_rate_limit_refuses_commands_and_does_not_count_duplicates() {
    let rate = RateLimits { session: 2, overall: 3, window_millis: 100 };
    let mut fixture = Fixture::with_limits(CommandLogLimits { rate, ..LIMITS });
    fixture.submit(command(1, "a"));
    fixture.succeed(1, "r");
    for ticket in 2..10 {
        assert_eq!(fixture.submit(command(ticket, "a")).len(), 2);
    }
    assert_eq!(fixture.submit(with_other_content(command(10, "a"))).len(), 2, "a conflict counts");
    let words = fixture.submit(command(11, "b"));
    assert!(words[0].starts_with("refuse 11 RateLimited(Session"), "{words:?}");
    let words = fixture.submit(with_other_content(command(12, "a")));
    assert!(words[0].starts_with("refuse 12 RateLimited(Session"), "{words:?}");
    let control = |ticket, id| Submission { rate_class: RateClass::Control, ..command(ticket, id) };
    assert_eq!(fixture.submit(control(14, "d")), ["accepted 14", "run 14"], "its budget is its own");
    assert_eq!(fixture.submit(control(15, "e")), ["accepted 15"]);
    let words = fixture.submit(control(16, "f"));
    assert!(words[0].starts_with("refuse 16 RateLimited(Session"), "{words:?}");
    assert_eq!(fixture.log.rate_used(fixture.now), (2, 3));
    fixture.now = fixture.now.after(100);
    assert_eq!(fixture.submit(command(14, "d")), ["accepted 14"]);
}

#[test]
fn too_many_dependencies_are_refused() {
    let mut fixture = Fixture::new();
    let words = fixture.submit(after(&["a", "b", "c"], command(1, "d")));
    assert_eq!(words, ["refuse 1 TooManyDependencies { limit: 2 }"]);
}

#[test]
fn nothing_is_admitted_while_shutting_down_and_active_commands_continue() {
    let mut fixture = Fixture::new();
    fixture.submit(command(1, "a"));
    assert_eq!(fixture.apply(Input::ShuttingDown), [""; 0]);
    assert_eq!(fixture.submit(command(2, "a")), ["refuse 2 ShuttingDown"]);
    assert_eq!(fixture.succeed(1, "r"), ["later a ok r", "finished 1 ok r"]);
}

#[test]
fn outcomes_of_a_deleted_session_are_removed_with_references_to_it() {
    let mut fixture = Fixture::new();
    fixture.submit(keyed("k", command(1, "a")));
    fixture.succeed(1, "own");
    fixture.submit(in_session("t", command(2, "b")));
    fixture.succeed(2, "[\"s\"]");
    fixture.submit(stored_with_effect(3, "c"));
    assert_eq!(fixture.apply(Input::SessionDeleted(SessionId::from("s"))), [""; 0]);
    assert_eq!(fixture.succeed(3, "own"), ["finished 3 ok own"], "nothing of it is written");
    assert_eq!((fixture.log.stats().outcomes, fixture.log.stats().keys), (1, 0));
    assert_eq!(fixture.submit(in_session("t", command(4, "b"))), ["accepted 4", "finished 4 again ok <gone>"]);
    assert_eq!(fixture.submit(keyed("k", command(5, "a"))), ["accepted 5", "run 5"]);
    assert_eq!(fixture.submit(command(6, "c")), ["accepted 6"]);
}

fn stored(row: u64, id: &str, settled: Option<(&str, u64)>) -> StoredCommand {
    StoredCommand {
        record: CommandRecord {
            row: RowId(row),
            id: Some(id.into()),
            key: Some("k".into()),
            kind: "work".into(),
            session: Some(SessionId::from("s")),
            fingerprint: Fingerprint(7),
            admitted_at: Now(1),
        },
        settled: settled.map(|(body, at)| (CommandOutcome::succeeded(body, None), Now(at))),
    }
}

#[test]
fn after_a_restart_active_commands_have_failed_and_outcomes_are_replayed() {
    let rows = vec![stored(5, "b", None), stored(4, "a", Some(("r", 10)))];
    let (mut fixture, words) = Fixture::restored(LIMITS, rows, Now(100));
    assert_eq!(words, ["later b failed Interrupted"]);
    assert_eq!(fixture.submit(command(1, "a")), ["accepted 1", "finished 1 again ok r"]);
    assert_eq!(fixture.submit(command(2, "b")), ["accepted 2", "finished 2 again failed Interrupted"]);
    fixture.submit(command(3, "c"));
    let effects = fixture.log.apply(Input::Finished(SubmissionId(3), CommandOutcome::succeeded("r", None)), Now(101));
    let rows: Vec<u64> = effects
        .iter()
        .filter_map(|effect| if let Effect::PersistOutcomeLater(it) = effect { Some(it.record.row.0) } else { None })
        .collect();
    assert_eq!(rows, [6], "numbers go on above what was found");
}

#[test]
fn after_a_restart_a_key_keeps_its_lifetime() {
    let rows = vec![stored(1, "a", Some(("r", 50)))];
    let (mut fixture, _) = Fixture::restored(LIMITS, rows, Now(100));
    fixture.now = Now(649);
    assert_eq!(fixture.submit(keyed("k", anonymous(command(1, "")))), ["accepted 1", "finished 1 again ok r"]);
    fixture.now = Now(650);
    assert_eq!(fixture.submit(keyed("k", anonymous(command(2, "")))), ["accepted 2", "run 2"]);
}

#[test]
fn a_restart_keeps_no_more_than_the_limit_and_prefers_what_was_admitted_last() {
    let rows = (1..=5).map(|row| stored(row, "a", Some((&row.to_string(), 60 - row)))).collect();
    let (mut fixture, words) = Fixture::restored(LIMITS, rows, Now(100));
    assert_eq!(words, ["forget 5", "forget 4"], "those that ended first go");
    assert_eq!(fixture.submit(command(1, "a")), ["accepted 1", "finished 1 again ok 3"]);
}

#[test]
fn a_command_whose_dependencies_fail_one_by_the_other_ends_once() {
    let mut fixture = Fixture::new();
    fixture.submit(in_session("t", command(1, "a")));
    fixture.submit(in_session("u", after(&["a"], command(2, "b"))));
    fixture.submit(after(&["a", "b"], stored_with_effect(3, "c")));
    let ended = fixture.fail(1, "e");
    assert_eq!(ended.iter().filter(|word| word.starts_with("settle 3")).count(), 1, "{ended:?}");
    assert_eq!(fixture.apply(Input::OutcomePersisted(SubmissionId(3))).len(), 1);
}

#[test]
fn a_released_turn_is_not_given_to_a_command_that_fails_with_it() {
    let mut fixture = Fixture::new();
    fixture.submit(in_session("t", command(1, "a")));
    fixture.submit(after(&["a"], command(2, "b")));
    fixture.submit(after(&["a"], command(3, "c")));
    let ended = fixture.fail(1, "e");
    assert!(ended.iter().all(|word| !word.starts_with("run")), "{ended:?}");
    assert_eq!(fixture.log.stats().in_flight, 0);
}
