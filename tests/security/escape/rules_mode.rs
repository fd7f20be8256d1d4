//! The attempts without namespaces, with Landlock and the system call filter alone.
//!
//! That protects less, and every command needs approval. `UNDEFENDED` names what is missing, as `docs/sandbox.md`
//! documents it. Everything else must hold.

use pushd::sandbox::confinement::Mechanism;

use super::attempts::{Attempt, Group};
use super::fixture::Fixture;
use crate::support::ordinary_user::also_as_an_ordinary_user;

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
fn every_exception_is_the_name_of_an_attempt() {
    for (name, _) in UNDEFENDED {
        assert!(super::grouped().any(|attempt| attempt.name == *name), "{name}");
    }
}

fn assert_refused(test: impl Fn(), group: Group) {
    also_as_an_ordinary_user(test);
    let fixture = Fixture::new();
    if !fixture.works(Mechanism::Rules) {
        return;
    }
    let defended = super::grouped().filter(|attempt| attempt.group == group && undefended(attempt).is_none());
    let failed: Vec<String> = defended
        .filter_map(|attempt| {
            let happened = fixture.attempt(Some(Mechanism::Rules), attempt).err()?;
            Some(format!("{}: {happened}", attempt.name))
        })
        .collect();
    assert!(failed.is_empty(), "with Landlock alone:\n{}", failed.join("\n"));
}

/// Why an attempt is not refused without namespaces, or not made there.
pub(crate) fn undefended(attempt: &Attempt) -> Option<&'static str> {
    UNDEFENDED.iter().find(|(name, _)| *name == attempt.name).map(|(_, why)| *why)
}

/// What is missing without namespaces, attempt by attempt. The groups `Protected` and `Resources` are missing
/// completely: `.git` and `.push` can be changed, and background processes of a command live until its run ends.
const UNDEFENDED: &[(&str, &str)] = &[
    ("open a file outside to all", "no rule is about the modes of files"),
    ("change times outside", "no rule is about the times of files"),
    ("see the processes outside", "they are seen"),
    ("name a process outside", "they are seen"),
    ("kill the first process inside", "it is the machine's; not tried, as older kernels let it happen"),
    ("the machine's shared memory", "it is the machine's"),
    ("disks", "their names are seen"),
    ("rights of root", "only root can shrink the set of rights that no program can gain any more"),
    ("the machine's loopback", "the network is the machine's"),
    ("the machine's loopback, newer", "the network is the machine's"),
    ("a datagram on the machine's loopback", "the network is the machine's"),
    ("sockets of services", "they are seen, and cannot be talked to"),
];
