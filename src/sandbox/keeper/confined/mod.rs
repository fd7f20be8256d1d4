//! Enforces the confinement of a step on Linux: namespaces, mounts, and rules for files and system calls.
//!
//! A step in namespaces has its own [`init`] process, which installs the rules for itself, starts the shell, reaps, and
//! reports through a pipe how the shell ended; when it exits, the kernel kills all remaining processes of the
//! namespace. The supervisor creates the namespaces itself ([`namespaces`]) or executes bubblewrap ([`bubblewrap`]),
//! which then executes this program once more. If any part fails, the failure is reported and the step does not run.

mod arguments;
mod bubble;
mod direct;
mod filter;
mod guard;
mod init;
mod rights;
mod rules;
mod slot;
mod system;
mod workspace;

use std::cell::RefCell;
use std::io::Read;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{ForkResult, Pid};

use super::{Room, leave};
use crate::sandbox::confine::plan::{self, Flaw, Mount, Survey};
use crate::sandbox::confine::{Walls, Way};
use crate::sandbox::disk::Disk;
use crate::sandbox::keeper::os::Said;
use crate::sandbox::message::{Obstacle, Order, Part, REPORT_LEN, Report};
use direct::Oneself;
use guard::Guards;
use slot::CacheSlot;

pub(in super::super::super) use init::main as inside;
pub(in super::super::super) use rules::seal;

/// The supervisor's state of a step in namespaces.
pub(in super::super) struct Inside {
    /// The pipe with the reports of the init process.
    word: OwnedFd,
    /// The placeholders that exist while the step runs.
    guards: RefCell<Guards>,
    /// The private caches, locked while the step runs.
    caches: RefCell<Option<CacheSlot>>,
}

/// Starts the init process of a step's namespaces.
pub(in super::super) fn start_inside(
    order: &Order,
    body: &[u8],
    walls: &Walls,
    room: Option<&Room>,
) -> Result<(Pid, Inside), Report> {
    let caches = CacheSlot::take(walls).map_err(|error| {
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or_default());
        obstacle(Part::Caches, errno)
    })?;
    let slotted = Walls {
        cache_store: caches.as_ref().map(|slot| slot.path.clone()).unwrap_or_default(),
        ..walls.clone()
    };
    let walls = &slotted;
    let survey = Survey::of(walls, &Disk);
    let plan = || plan::plan(walls, &Disk, &survey).map_err(|flaw| obstacle(part(flaw), Errno::UnknownErrno));
    // The first pass only validates, so that no placeholder is created for a step that cannot be confined; the second
    // pass includes the placeholders.
    plan()?;
    let guards = Guards::take(walls).map_err(|errno| {
        let part = if errno == Errno::ESTALE { Part::Replaced } else { Part::Guard };
        obstacle(part, errno)
    })?;
    let plan = plan()?;
    let (word, tell) =
        nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(|errno| obstacle(Part::Namespaces, errno))?;
    let oneself = Oneself::now();
    let born = match walls.way {
        Way::Bubblewrap => bubble::fork(room),
        Way::Namespaces | Way::Rules => direct::fork(walls, room),
    };
    match born.map_err(|errno| obstacle(Part::Namespaces, errno))? {
        ForkResult::Parent { child } => {
            Ok((child, Inside { word, guards: RefCell::new(guards), caches: RefCell::new(caches) }))
        }
        ForkResult::Child => {
            let failed = become_inside((order, body), walls, &plan, oneself, &tell);
            say(&tell, Report::NoWalls(failed));
            leave()
        }
    }
}

/// Turns this forked process into the init process; returns only on failure.
fn become_inside(
    (order, body): (&Order, &[u8]),
    walls: &Walls,
    plan: &[Mount],
    oneself: Oneself,
    tell: &OwnedFd,
) -> Obstacle {
    match walls.way {
        Way::Bubblewrap => bubble::become_it(body, walls, plan, tell),
        Way::Namespaces | Way::Rules => match direct::enter(walls, plan, oneself, tell) {
            Ok(()) => init::run(order, walls, tell),
            Err(obstacle) => obstacle,
        },
    }
}

impl Inside {
    /// Returns the layers that were in force and how the shell ended, given the exit status of the process outside.
    pub(in super::super) fn end(&self, outside: Report) -> Said {
        // All processes inside are dead. The placeholders are released before the end is reported.
        drop(self.guards.take());
        if let Some(slot) = self.caches.take() {
            slot.release();
        }
        let mut said = Vec::new();
        let copy = self.word.try_clone().map(std::fs::File::from);
        // Every writer has exited or will write nothing more: the pipe contains all reports.
        let _as_far_as_said = copy.and_then(|mut word| {
            system::never_wait(&word)?;
            word.read_to_end(&mut said)
        });
        let (mut standing, mut end) = (None, None);
        for record in said.as_chunks::<REPORT_LEN>().0 {
            match Report::decode(*record) {
                Some(Report::Walled(more)) => standing = Some(more.with(standing.unwrap_or_default())),
                // A shell that failed to start also has an exit code; the first report counts.
                Some(other) => end = end.or(Some(other)),
                None => {}
            }
        }
        // A killed process could not report; bubblewrap writes its own error message to the step's output.
        let lost = if matches!(outside, Report::Signaled(_)) {
            outside
        } else {
            Report::NoWalls(Obstacle { part: Part::Bubblewrap, errno: 0 })
        };
        (standing, end.unwrap_or(lost))
    }
}

fn part(flaw: Flaw) -> Part {
    match flaw {
        Flaw::WorkspaceIsRoot => Part::Root,
        Flaw::WorkspaceIsMissing => Part::Missing,
        Flaw::WorkspaceIsReplaced => Part::Replaced,
        Flaw::WorkspaceIsHidden => Part::Hidden,
        Flaw::ProtectedIsLink => Part::Link,
        Flaw::OwnIsWritable => Part::Own,
        Flaw::WorkspaceIsHome => Part::Home,
    }
}

fn obstacle(part: Part, errno: Errno) -> Report {
    Report::NoWalls(Obstacle { part, errno: errno as i32 })
}

/// Sends a report to the supervisor.
fn say(tell: &OwnedFd, report: Report) {
    // If the supervisor is dead, the report is not needed, and this process dies too.
    let _unheard = nix::unistd::write(tell, &report.encode());
}
