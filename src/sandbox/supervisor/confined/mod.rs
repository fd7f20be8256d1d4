//! Enforces the confinement of a step on Linux: namespaces, mounts, and rules for files and system calls.
//!
//! A step in namespaces has its own [`init`] process, which installs the rules for itself, starts the shell, reaps, and
//! reports through a socket how the shell ended; when it exits, the kernel kills all remaining processes of the
//! namespace. The supervisor creates the namespaces itself ([`namespaces`]) or executes bubblewrap ([`bubblewrap`]),
//! which then executes this program once more. If any part fails, the failure is reported and the step does not run.

mod argument_rules;
mod bubblewrap;
mod cache_slot;
mod init;
mod namespaces;
mod placeholders;
mod privileges;
mod restrictions;
mod seccomp;
mod syscalls;
mod workspace_check;

use std::cell::RefCell;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{ForkResult, Pid};

use super::{StepCgroup, close_fds_except, exit_child};
use crate::sandbox::confinement::plan::{self, Mount, PlanError, ResolvedPaths};
use crate::sandbox::confinement::{ConfinementSpec, Mechanism};
use crate::sandbox::host_fs::HostFileSystem;
use crate::sandbox::supervisor::os::InitReports;
use crate::sandbox::supervisor_protocol::{ConfinementFailure, FailureCause, REPORT_LEN, Report, StepRequest};
use cache_slot::CacheSlot;
use namespaces::ProcessIds;
use placeholders::Placeholders;

pub(in super::super::super) use init::main as inside;
pub(in super::super::super) use restrictions::restrict_self;

/// The supervisor's state of a step in namespaces.
pub(in super::super) struct NamespacedStep {
    /// The socket with the reports of the init process.
    reports: OwnedFd,
    /// The placeholders that exist while the step runs.
    placeholders: RefCell<Placeholders>,
    /// The private caches, locked while the step runs.
    caches: RefCell<Option<CacheSlot>>,
}

/// Starts the init process of a step's namespaces.
pub(in super::super) fn start_in_namespaces(
    request: &StepRequest,
    body: &[u8],
    spec: &ConfinementSpec,
    cgroup: Option<&StepCgroup>,
) -> Result<(Pid, NamespacedStep), Report> {
    let caches = CacheSlot::acquire(spec).map_err(|error| {
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or_default());
        confinement_failed(FailureCause::Caches, errno)
    })?;
    let slotted_spec = ConfinementSpec {
        cache_store: caches.as_ref().map(|slot| slot.path.clone()).unwrap_or_default(),
        ..spec.clone()
    };
    let spec = &slotted_spec;
    let paths = ResolvedPaths::resolve(spec, &HostFileSystem);
    let plan = || {
        plan::plan(spec, &HostFileSystem, &paths)
            .map_err(|flaw| confinement_failed(failure_cause(flaw), Errno::UnknownErrno))
    };
    // The first pass only validates, so that no placeholder is created for a step that cannot be confined; the second
    // pass includes the placeholders.
    plan()?;
    let placeholders = Placeholders::create_missing(spec).map_err(|errno| {
        let part = if errno == Errno::ESTALE { FailureCause::WorkspaceIsReplaced } else { FailureCause::Placeholder };
        confinement_failed(part, errno)
    })?;
    let plan = plan()?;
    // A socket: processes inside can open a pipe of the init process by its path in /proc, and would report in its place.
    let (reports, report_fd) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
        .map_err(|errno| confinement_failed(FailureCause::Namespaces, errno))?;
    let ids = ProcessIds::current();
    let born = match spec.mechanism {
        Mechanism::Bubblewrap => bubblewrap::fork(cgroup),
        Mechanism::Namespaces | Mechanism::Rules => namespaces::fork(spec, cgroup),
    };
    match born.map_err(|errno| confinement_failed(FailureCause::Namespaces, errno))? {
        ForkResult::Parent { child } => Ok((
            child,
            NamespacedStep { reports, placeholders: RefCell::new(placeholders), caches: RefCell::new(caches) },
        )),
        ForkResult::Child => {
            let failed = become_init((request, body), spec, &plan, ids, &report_fd);
            send_report(&report_fd, Report::ConfinementFailed(failed));
            exit_child()
        }
    }
}

/// Turns this forked process into the init process; returns only on failure.
fn become_init(
    (request, body): (&StepRequest, &[u8]),
    spec: &ConfinementSpec,
    plan: &[Mount],
    ids: ProcessIds,
    report_fd: &OwnedFd,
) -> ConfinementFailure {
    match spec.mechanism {
        Mechanism::Bubblewrap => bubblewrap::exec_bubblewrap(body, spec, plan, report_fd),
        Mechanism::Namespaces | Mechanism::Rules => match namespaces::set_up(spec, plan, ids, report_fd) {
            Ok(()) => {
                // Processes inside can look into the descriptors of the init process.
                close_fds_except(Some(report_fd.as_fd()));
                init::run(request, spec, report_fd)
            }
            Err(failure) => failure,
        },
    }
}

impl NamespacedStep {
    /// Returns the layers that were in force and how the shell ended, given the exit status of the process outside.
    pub(in super::super) fn finish(&self, outside: Report) -> InitReports {
        // All processes inside are dead. The placeholders are released before the end is reported.
        drop(self.placeholders.take());
        if let Some(slot) = self.caches.take() {
            slot.release();
        }
        let mut bytes = Vec::new();
        let copy = self.reports.try_clone().map(std::fs::File::from);
        // Every writer has exited or will write nothing more: the socket contains all reports.
        let _as_far_as_said = copy.and_then(|mut reports| {
            syscalls::set_nonblocking(&reports)?;
            reports.read_to_end(&mut bytes)
        });
        let (mut layers, mut end) = (None, None);
        for record in bytes.as_chunks::<REPORT_LEN>().0 {
            match Report::decode(*record) {
                Some(Report::Confined(more)) => layers = Some(more.union(layers.unwrap_or_default())),
                // A shell that failed to start also has an exit code; the first report counts.
                Some(other) => end = end.or(Some(other)),
                None => {}
            }
        }
        // A killed process could not report; bubblewrap writes its own error message to the step's output.
        let lost = if matches!(outside, Report::Signaled(_)) {
            outside
        } else {
            Report::ConfinementFailed(ConfinementFailure { cause: FailureCause::Bubblewrap, errno: 0 })
        };
        (layers, end.unwrap_or(lost))
    }
}

fn failure_cause(flaw: PlanError) -> FailureCause {
    match flaw {
        PlanError::WorkspaceIsRoot => FailureCause::WorkspaceIsRoot,
        PlanError::WorkspaceIsMissing => FailureCause::WorkspaceIsMissing,
        PlanError::WorkspaceIsReplaced => FailureCause::WorkspaceIsReplaced,
        PlanError::WorkspaceIsHidden => FailureCause::WorkspaceIsHidden,
        PlanError::ProtectedIsLink => FailureCause::ProtectedIsLink,
        PlanError::DaemonPathIsWritable => FailureCause::DaemonPathIsWritable,
        PlanError::WorkspaceIsHome => FailureCause::WorkspaceIsHome,
    }
}

fn confinement_failed(part: FailureCause, errno: Errno) -> Report {
    Report::ConfinementFailed(ConfinementFailure { cause: part, errno: errno as i32 })
}

/// Sends a report to the supervisor.
fn send_report(report_fd: &OwnedFd, report: Report) {
    // If the supervisor is dead, the report is not needed, and this process dies too.
    let _unheard = nix::unistd::write(report_fd, &report.encode());
}
