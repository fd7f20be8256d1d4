//! Starts supervisors on Unix systems other than Linux: as children of the daemon.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use tokio::process::{Child, Command};

use super::Descriptors;
use crate::sandbox::supervisor;

/// Starts supervisors.
#[derive(Debug, Default)]
pub(in super::super) struct Spawner;

impl Spawner {
    /// Does nothing: these systems have no subreapers.
    pub(in super::super) const fn enable_orphan_adoption(&self) {}

    /// Executes `program` as a supervisor.
    pub(super) async fn start(&self, program: &Path, descriptors: Descriptors<'_>) -> io::Result<Process> {
        let Descriptors { socket, stdout, stderr, .. } = descriptors;
        let child = Command::new(program)
            .arg0("push")
            .arg(supervisor::ARGUMENT)
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(socket))
            .stdout(stdout)
            .stderr(stderr)
            .spawn()?;
        Ok(Process(child))
    }
}

/// A supervisor's process.
pub(in super::super) struct Process(Child);

impl Process {
    /// Its process id.
    pub(super) fn pid(&self) -> io::Result<u32> {
        self.0.id().ok_or(io::ErrorKind::NotFound.into())
    }

    /// The start time is not read on these systems.
    pub(super) const fn start_time(&self) -> u64 {
        0
    }

    /// Waits for its end, which also reaps it.
    pub(in super::super) async fn wait(&mut self) {
        let _status = self.0.wait().await;
    }

    /// Kills it.
    pub(in super::super) async fn kill(&mut self) {
        let _dead = self.0.start_kill();
    }
}
