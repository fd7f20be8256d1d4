//! The attempts without namespaces, with Landlock and the system call filter alone.
//!
//! That protects less, and every command needs approval. `UNDEFENDED` names what is missing, as `docs/sandbox.md`
//! documents it: each of these attempts is made too, and must succeed, so that the list stays true. Everything else
//! must hold.

use pushd::sandbox::confinement::Mechanism;

use super::attempts::{Attempt, Group};
use super::fixture::Fixture;
use crate::support::ordinary_user::with_an_ordinary_user;

#[test]
fn without_namespaces_no_file_outside_of_the_workspace_is_changed_or_read() {
    assert_refused(without_namespaces_no_file_outside_of_the_workspace_is_changed_or_read, Group::Files);
}

#[test]
fn without_namespaces_no_process_outside_is_signalled_or_traced() {
    assert_refused(without_namespaces_no_process_outside_is_signalled_or_traced, Group::Processes);
}

#[test]
fn without_namespaces_no_socket_is_reached_by_path() {
    assert_refused(without_namespaces_no_socket_is_reached_by_path, Group::Sockets);
}

#[test]
fn without_namespaces_the_machine_is_not_changed() {
    assert_refused(without_namespaces_the_machine_is_not_changed, Group::Machine);
}

#[test]
fn without_namespaces_nothing_outlives_its_run_or_exhausts_the_machine() {
    assert_refused(without_namespaces_nothing_outlives_its_run_or_exhausts_the_machine, Group::Resources);
}

#[test]
fn without_namespaces_attempts_that_are_not_defended_succeed() {
    let test = without_namespaces_attempts_that_are_not_defended_succeed;
    with_an_ordinary_user(test, assert_undefended);
}

fn assert_undefended() {
    if !Fixture::new().works(Mechanism::Rules) {
        return;
    }
    let is_root = nix::unistd::geteuid().is_root();
    let undefended = super::grouped().filter(|attempt| match outcome(attempt) {
        Outcome::Succeeds(_) => true,
        Outcome::SucceedsUnlessRoot(_) => !is_root,
        Outcome::Refused | Outcome::NotMadeAsRoot(_) | Outcome::NotMade(_) => false,
    });
    // Each succeeds and changes what others need.
    let refused: Vec<&str> = undefended
        .filter(|attempt| Fixture::new().attempt(Some(Mechanism::Rules), attempt).is_ok())
        .map(|attempt| attempt.name)
        .collect();
    assert_eq!(refused, [""; 0], "these are refused with Landlock alone: they do not belong in the list");
}

#[test]
fn every_exception_is_the_name_of_an_attempt() {
    for (name, _) in UNDEFENDED {
        assert!(super::grouped().any(|attempt| attempt.name == *name), "{name}");
    }
}

fn assert_refused(test: impl Fn(), group: Group) {
    with_an_ordinary_user(test, || assert_group_refused(group));
}

fn assert_group_refused(group: Group) {
    let fixture = Fixture::new();
    if !fixture.works(Mechanism::Rules) {
        return;
    }
    let is_root = nix::unistd::geteuid().is_root();
    let defended = super::grouped().filter(|attempt| {
        attempt.group == group
            && match outcome(attempt) {
                Outcome::Refused => true,
                Outcome::SucceedsUnlessRoot(_) => is_root,
                Outcome::NotMadeAsRoot(_) => !is_root,
                Outcome::Succeeds(_) | Outcome::NotMade(_) => false,
            }
    });
    let failed: Vec<String> = defended
        .filter_map(|attempt| {
            let happened = fixture.attempt(Some(Mechanism::Rules), attempt).err()?;
            Some(format!("{}: {happened}", attempt.name))
        })
        .collect();
    assert!(failed.is_empty(), "with Landlock alone:\n{}", failed.join("\n"));
}

/// What happens to an attempt without namespaces, and why.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Refused,
    Succeeds(&'static str),
    /// Refused for root.
    SucceedsUnlessRoot(&'static str),
    /// Refused for an ordinary user, and too dangerous for root.
    NotMadeAsRoot(&'static str),
    NotMade(&'static str),
}

/// Returns what happens to an attempt without namespaces.
pub(crate) fn outcome(attempt: &Attempt) -> Outcome {
    let listed = UNDEFENDED.iter().find(|(name, _)| *name == attempt.name);
    match (listed, attempt.group) {
        (Some((_, outcome)), _) => *outcome,
        (None, Group::Protected) => Outcome::Succeeds("a rule cannot exclude a part of the workspace"),
        (None, Group::Files | Group::Processes | Group::Sockets | Group::Machine | Group::Resources) => {
            Outcome::Refused
        }
    }
}

/// What is missing without namespaces, attempt by attempt, in addition to the group `Protected`: `.git` and `.push` can
/// be changed.
const UNDEFENDED: &[(&str, Outcome)] = &[
    ("make a file outside writable for all", Outcome::Succeeds("no rule is about the modes of files")),
    ("change times outside", Outcome::Succeeds("no rule is about the times of files")),
    ("see the processes outside", Outcome::Succeeds("they are seen")),
    ("name a process outside", Outcome::Succeeds("they are seen")),
    (
        "kill the first process inside",
        Outcome::NotMade("it is the machine's; not tried, as older kernels let it happen"),
    ),
    ("disks", Outcome::NotMade("their names are seen where the machine has any")),
    (
        "capabilities of root",
        Outcome::SucceedsUnlessRoot("only root can shrink the set of rights that no program can gain any more"),
    ),
    ("the machine's loopback", Outcome::Succeeds("the network is the machine's")),
    ("the machine's loopback by IPv6", Outcome::Succeeds("the network is the machine's")),
    ("a datagram on the machine's loopback", Outcome::Succeeds("the network is the machine's")),
    ("sockets of services", Outcome::NotMade("they are seen where the machine has any, and cannot be talked to")),
    ("thousands of processes", Outcome::NotMadeAsRoot(NO_LIMIT_FOR_ROOT)),
    ("a fork bomb", Outcome::NotMadeAsRoot(NO_LIMIT_FOR_ROOT)),
];

const NO_LIMIT_FOR_ROOT: &str = "the kernel limits the processes of root in a cgroup alone";
