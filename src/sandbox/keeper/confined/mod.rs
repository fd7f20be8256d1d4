//! Walls around a step on Linux: namespaces, mounts, and rules for files and system calls.
//!
//! A step in namespaces has a first process of its own, [`init`], which lays the rules down for itself, starts the shell,
//! reaps, and says through a pipe how the shell ended; when it leaves, the kernel ends whatever is left in there. The
//! namespaces are made by the keeper itself ([`direct`]) or by bubblewrap ([`bubble`]), which then executes this program once
//! more. Whatever cannot be built is reported, and the step does not run.

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

/// What the keeper knows of a step in namespaces.
pub(in super::super) struct Inside {
    /// What was said inside.
    word: OwnedFd,
    /// The places held while the step runs.
    guards: RefCell<Guards>,
    /// The private caches, held as long.
    caches: RefCell<Option<CacheSlot>>,
}

/// Starts the first process of a step's namespaces.
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
    // Nothing is made where nothing can be confined; what is made then belongs to the plan.
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

/// Turns this process, just forked, into the first one inside; returns only when that failed.
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
    /// Says which walls stood and how the shell ended, given the end of the process outside.
    pub(in super::super) fn end(&self, outside: Report) -> Said {
        // Everything inside is dead by then; whoever hears of the end finds the places free.
        drop(self.guards.take());
        if let Some(slot) = self.caches.take() {
            slot.release();
        }
        let mut said = Vec::new();
        let copy = self.word.try_clone().map(std::fs::File::from);
        // Whoever could write is gone, or is about to say nothing more: what is there is everything.
        let _as_far_as_said = copy.and_then(|mut word| {
            system::never_wait(&word)?;
            word.read_to_end(&mut said)
        });
        let (mut standing, mut end) = (None, None);
        for record in said.as_chunks::<REPORT_LEN>().0 {
            match Report::decode(*record) {
                Some(Report::Walled(more)) => standing = Some(more.with(standing.unwrap_or_default())),
                // A shell that never was has an exit code too; what went before it counts.
                Some(other) => end = end.or(Some(other)),
                None => {}
            }
        }
        // Whoever was killed could not say anything; bubblewrap says to the user what it cannot do.
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

/// Says something to the keeper.
fn say(tell: &OwnedFd, report: Report) {
    // A keeper that is gone needs no word, and its end is ours.
    let _unheard = nix::unistd::write(tell, &report.encode());
}
