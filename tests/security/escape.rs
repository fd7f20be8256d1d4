//! Escape attempts: out of the sandbox, out of the workspace, and attempts of a command to approve itself.
//!
//! Each attempt is a command as a model could choose it. It runs under bubblewrap, under our own namespaces, and in
//! `rules_mode.rs` with Landlock alone, as root and as an ordinary user. The test checks the result from outside:
//! nothing there may have changed, no secret may appear in the output, and no listener outside may have been reached.
//! Harmless attempts also run without confinement, where they must succeed: an attempt that can never succeed proves
//! nothing.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../agents/model_runs/calls.rs"]
mod agent_calls;
mod attempts;
mod attempts_calls;
mod attempts_home;
mod attempts_limits;
mod calls;
mod calls_process;
mod credentials;
mod daemon_attempts;
mod daemon_fixture;
mod fixture;
mod git_directory;
mod home_view;
mod inside;
mod names;
mod outside;
mod page;
mod rules_mode;
mod workspaces;

use std::collections::BTreeSet;

use crate::support::ordinary_user::with_an_ordinary_user;
use attempts::{ATTEMPTS, Attempt, Group, UnconfinedRun};
use attempts_calls::CALL_ATTEMPTS;
use attempts_home::HOME_ATTEMPTS;
use fixture::Fixture;
use pushd::sandbox::confinement::Mechanism;

#[test]
fn every_attempt_has_a_unique_name_and_none_is_removed() {
    let names: BTreeSet<&str> = all().map(|attempt| attempt.name).collect();
    assert_eq!(names.len(), all().count());
    // Raised with every attempt that is added.
    assert!(names.len() >= MIN_ATTEMPTS, "{}", names.len());
}

#[test]
fn no_file_outside_of_the_workspace_is_changed_or_read() {
    assert_refused(no_file_outside_of_the_workspace_is_changed_or_read, Group::Files);
}

#[test]
fn nothing_that_git_or_push_runs_is_changed() {
    assert_refused(nothing_that_git_or_push_runs_is_changed, Group::Protected);
}

#[test]
fn no_process_outside_is_seen_signalled_or_traced() {
    assert_refused(no_process_outside_is_seen_signalled_or_traced, Group::Processes);
}

#[test]
fn no_socket_outside_is_reached() {
    assert_refused(no_socket_outside_is_reached, Group::Sockets);
}

#[test]
fn the_machine_is_not_changed() {
    assert_refused(the_machine_is_not_changed, Group::Machine);
}

#[test]
fn nothing_outlives_its_command_or_exhausts_the_machine() {
    assert_refused(nothing_outlives_its_command_or_exhausts_the_machine, Group::Resources);
}

#[test]
fn harmless_attempts_succeed_without_confinement() {
    let harmless = grouped().filter(|attempt| attempt.unconfined == UnconfinedRun::Harmless);
    let without_effect = harmless.filter(|attempt| Fixture::new().attempt(None, attempt).is_ok());
    let names: Vec<&str> = without_effect.map(|attempt| attempt.name).collect();
    assert_eq!(names, [""; 0], "these prove nothing: they never succeed");
}

/// Runs inside a step, for attempts that need more than a shell. Run as a plain test it does nothing.
#[test]
fn a_call_from_inside() {
    if let Ok(name) = std::env::var("ATTEMPT_CALL") {
        calls::run_call(&name);
    }
}

/// The minimum number of attempts.
const MIN_ATTEMPTS: usize = 205;

/// Every attempt.
fn all() -> impl Iterator<Item = &'static Attempt> {
    grouped().chain(attempts_limits::all())
}

/// The attempts that run group by group. Attempts at limits run in `attempts_limits.rs`.
fn grouped() -> impl Iterator<Item = &'static Attempt> {
    ATTEMPTS.iter().chain(HOME_ATTEMPTS).chain(CALL_ATTEMPTS)
}

/// Runs every attempt of a group with both mechanisms, as root and as an ordinary user.
fn assert_refused(test: impl Fn(), group: Group) {
    with_an_ordinary_user(test, || assert_group_refused(group));
}

fn assert_group_refused(group: Group) {
    let fixture = Fixture::new();
    for mechanism in
        [Mechanism::Bubblewrap, Mechanism::Namespaces].into_iter().filter(|mechanism| fixture.works(*mechanism))
    {
        for attempt in grouped().filter(|attempt| attempt.group == group) {
            if let Err(happened) = fixture.attempt(Some(mechanism), attempt) {
                panic!("{} with {}: {happened}", attempt.name, mechanism.as_str());
            }
        }
    }
}
