//! Runs tools: steps as processes of this machine, and access to the files of the working directory.
//!
//! A step is `/bin/sh -c COMMAND` under a [`supervisor`]: this program, executed once more, small and synchronous. The
//! supervisor owns every process that the step starts and kills them all on request or when the daemon dies. A
//! [`RunTree`] tracks the supervisors of one run. On Linux the supervisors are children of one holder process, which
//! kills the processes that a killed supervisor leaves behind.
//!
//! A step with the user's own command runs in no namespace: a pid namespace would hide the machine's processes from a
//! runbook's `ps` and `kill`, and a user namespace would break `sudo` and every other setuid program. Such a step may
//! do whatever its user may do, but it cannot outlive the run. A command that a model chose runs in the [`confinement`]
//! that the machine supports.
//!
//! [`SandboxProvider`] is the interface: [`LocalSandbox`] runs steps on this machine, [`UnconfinedSandbox`] does so
//! without confinement.

pub mod address;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux confines commands"))]
pub mod caches;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux confines commands"))]
pub mod confinement;
#[cfg(target_os = "linux")]
mod holder_protocol;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux confines commands"))]
mod host_fs;
mod local;
pub mod output;
mod pending_checks;
mod process_origin;
pub(crate) mod program;
mod provider;
mod pump;
mod removal;
pub(crate) mod repository;
pub mod risk;
mod scratch;
pub mod shell;
mod step;
pub mod supervisor;
mod supervisor_handle;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux reports confinement"))]
mod supervisor_protocol;
mod tree;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux confines commands"))]
mod tree_size;
pub mod workspace;

#[cfg(unix)]
#[path = "unix.rs"]
mod os;
#[cfg(windows)]
#[path = "windows.rs"]
mod os;

pub use host_fs::HomeAccess;
pub use local::{LocalSandbox, UnconfinedSandbox};
pub use pending_checks::{PendingCheck, PendingChecks};
pub use process_origin::{ProcessOrigin, SupervisorRegistry};
pub use provider::{BoxFuture, ConfinementStrength, ExecutionPolicy, Layers, RunSandbox, SandboxProvider};
pub use step::{Chunk, OutputMode, Step, StepEnd, StepError, StopTimeoutError, Stream};
pub use supervisor::process_layers;
pub use tree::RunTree;
