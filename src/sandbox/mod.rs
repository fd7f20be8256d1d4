//! Where tools run: steps as real processes of this machine, and files of the working directory.
//!
//! A step is `/bin/sh -c COMMAND` under a [`keeper`]: this program, executed once more, small and synchronous,
//! which owns every process the step brings forth and ends them all when it is told to, or when the daemon dies.
//! A [`RunTree`] holds the keepers of one run.
//!
//! There is no pid or user namespace around a step: the first would hide the machine's processes from a runbook's
//! `ps` and `kill`, the second would break `sudo` and every other setuid program. This module therefore keeps
//! nothing from a step which its user may do; it only sees to it that nothing of a step outlives the run.

pub mod ground;
pub mod judge;
pub mod keeper;
mod message;
pub mod output;
mod pump;
pub mod shell;
mod step;
pub mod tools;
mod tree;

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

pub use keeper::layers;
pub use step::{Chunk, Left, Step, StepEnd, StepError, Stream};
pub use tree::{Local, RunTree};
