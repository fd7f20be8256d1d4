//! Where the daemon listens and how it is reached.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::os;

/// A connection to the daemon.
pub(super) type Stream = os::Stream;

/// Where the daemon listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(PathBuf);

impl Address {
    /// Takes the path of a socket, or the name of a pipe.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the path or name.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// Connects to whoever listens at `at`.
pub(super) async fn connect(at: &Address) -> io::Result<Stream> {
    os::connect(at.path()).await
}

/// The places that a client needs to know.
#[derive(Debug, Clone)]
pub struct Place {
    /// Where the daemon listens.
    pub address: Address,
    /// Where it writes its logs.
    pub logs: PathBuf,
}

impl Place {
    /// Finds the places from the environment; none when it names no home.
    pub fn from_environment(lookup: &dyn Fn(&str) -> Option<OsString>) -> Option<Self> {
        let said = |name| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = match said("PUSH_HOME") {
            Some(home) => home,
            None => said(os::HOME)?.join(".push"),
        };
        let socket = said("PUSHD_SOCKET").unwrap_or_else(|| os::default_socket(&home, lookup));
        Some(Self { address: Address::new(socket), logs: home.join("logs") })
    }
}
