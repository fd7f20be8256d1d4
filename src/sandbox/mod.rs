//! Where tools run: steps as real processes of this machine, and files of the working directory.
//!
//! A step is `/bin/sh -c COMMAND` under a [`keeper`]: this program, executed once more, small and synchronous,
//! which owns every process the step brings forth and ends them all when it is told to, or when the daemon dies.
//! A [`RunTree`] holds the keepers of one run. On Linux they are children of one holder process, which ends what a killed keeper
//! leaves behind.
//!
//! There is no namespace around a step that is the user's own words: a pid namespace would hide the machine's processes
//! from a runbook's `ps` and `kill`, a user namespace would break `sudo` and every other setuid program. Nothing is kept
//! from such a step which its user may do; it only cannot outlive the run. What a model chose stands behind walls as
//! [`confine`] describes them, as far as the machine has them.
//!
//! [`SandboxProvider`] is the seam: [`Local`] runs steps here, [`Unconfined`] the same without walls.

pub mod address;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux confines commands"))]
pub mod caches;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has walls"))]
pub mod confine;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has walls"))]
mod disk;
pub mod ground;
#[cfg(target_os = "linux")]
mod hold;
pub mod judge;
pub mod keeper;
mod lineage;
mod local;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has walls to report"))]
mod message;
pub mod output;
mod pending_checks;
pub(crate) mod program;
mod provider;
mod pump;
mod removal;
pub(crate) mod repository;
mod scratch;
pub mod shell;
mod step;
mod supervised;
mod tree;

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

pub use disk::HomeAccess;
pub use keeper::layers;
pub use lineage::{Lineage, Origin};
pub use local::{Local, Unconfined};
pub use pending_checks::{PendingCheck, PendingChecks};
pub use provider::{Doing, Layers, Room, SandboxProvider, Strength, Terms};
pub use step::{Chunk, Left, Outputs, Step, StepEnd, StepError, Stream};
pub use tree::RunTree;
