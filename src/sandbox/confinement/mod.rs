//! What a confined command may access, as plain values.
//!
//! Nothing is enforced here. A [`Confinement`] is the policy of a run, `ConfinementSpec` is what the supervisor of one
//! step receives, [`plan`] computes the mounts and [`bubblewrap`] the arguments of the program of that name.

pub mod bubblewrap;
mod credentials;
pub(crate) mod entries;
pub(crate) mod hint;
pub mod plan;
pub mod toolchain;
pub(crate) mod view;
mod wire;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::workspace::FileId;
pub use credentials::{credential_stores, system_credentials};
pub use entries::{HiddenEntries, OpenedPaths};
use toolchain::Cache;

/// The directory in which a confined command finds its temporary files.
pub const TEMP_DIR: &str = "/tmp";

/// The subdirectory of a run's scratch directory that is mounted at [`TEMP_DIR`].
pub(crate) const TEMP_SOURCE: &str = "files";

/// The empty file in a run's scratch directory. It is mounted over hidden files.
pub(crate) const EMPTY_FILE: &str = "blank";

/// The directories of a workspace that no command may change: git and push execute or trust their content.
pub const PROTECTED: [&str; 2] = [".git", ".push"];

/// The mechanism that confines a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    /// The program bubblewrap creates the namespaces.
    Bubblewrap,
    /// The supervisor creates the namespaces itself.
    Namespaces,
    /// No namespaces: only Landlock rules and system call filters.
    Rules,
}

impl Mechanism {
    /// Every mechanism, in order of preference.
    ///
    /// The first two are equally strong. Bubblewrap takes three times as long for every command. It is needed on
    /// systems that allow no other program to create namespaces.
    pub const ALL: [Self; 3] = [Self::Namespaces, Self::Bubblewrap, Self::Rules];

    /// Returns the name of the mechanism.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bubblewrap => "bubblewrap",
            Self::Namespaces => "namespaces",
            Self::Rules => "rules",
        }
    }

    fn parse(word: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.as_str().as_bytes() == word)
    }
}

/// The resource limits of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimits {
    /// The maximum number of concurrent processes.
    pub processes: u64,
    /// The memory limit in bytes: for each process, and for all processes together where a cgroup is available.
    pub memory: u64,
    /// The maximum size in bytes of a file that the command writes.
    pub file: u64,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self { processes: 1024, memory: 8 * GIB, file: 16 * GIB }
    }
}

const GIB: u64 = 1024 * 1024 * 1024;

/// The confinement policy for the commands of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// The directory that commands may write.
    pub workspace: PathBuf,
    /// The identity of that directory, if another directory at the same path must be refused.
    pub workspace_id: Option<FileId>,
    /// Further directories that commands may write.
    pub writable: Vec<PathBuf>,
    /// Home directories. Only opened paths, the workspace and writable directories are visible in them.
    pub homes: Vec<PathBuf>,
    /// Paths in homes that toolchains read. They are exposed read-only; paths that may not be opened are skipped.
    pub toolchain_paths: Vec<PathBuf>,
    /// Further paths that the configuration opens read-only, also inside hidden directories.
    pub readable: Vec<PathBuf>,
    /// Caches of which commands get a private, writable copy.
    pub caches: Vec<Cache>,
    /// The directory that holds the private copies of caches. Without it commands get no copies.
    pub cache_root: Option<PathBuf>,
    /// Files and directories that are hidden, also inside the workspace.
    pub hidden: Vec<PathBuf>,
    /// The subset of the hidden paths that the configuration names. Only the configuration can open them.
    pub hidden_by_config: Vec<PathBuf>,
    /// Files that the daemon trusts or keeps secret. They are hidden, and no command is confined to a workspace in
    /// which it could create or move them.
    pub daemon_paths: Vec<PathBuf>,
    /// Whether commands have access to the network of the machine.
    pub network: bool,
    /// Whether commands may connect to Unix sockets of the machine.
    pub unix_sockets: bool,
    /// The resource limits.
    pub limits: ResourceLimits,
    /// Names of further environment variables that are removed from the environment of commands.
    pub unset_variables: Vec<String>,
}

impl Confinement {
    /// Creates a policy that confines commands to `workspace` and hides nothing.
    pub fn new(workspace: PathBuf) -> Self {
        Self {
            workspace,
            workspace_id: None,
            writable: Vec::new(),
            homes: Vec::new(),
            toolchain_paths: Vec::new(),
            readable: Vec::new(),
            caches: Vec::new(),
            cache_root: None,
            hidden: Vec::new(),
            hidden_by_config: Vec::new(),
            daemon_paths: Vec::new(),
            network: false,
            unix_sockets: false,
            limits: ResourceLimits::default(),
            unset_variables: Vec::new(),
        }
    }

    /// Returns the environment of a confined command: without addresses of services outside the sandbox, and with
    /// `TMPDIR` set to `temp`.
    pub fn environment(&self, env: &[(OsString, OsString)], temp: &Path) -> Vec<(OsString, OsString)> {
        let leads_out = |name: &OsStr| {
            let name = name.to_string_lossy();
            HOST_SERVICE_VARIABLES.contains(&&*name)
                || HOST_SERVICE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                || self.unset_variables.iter().any(|unset| *unset == name)
                || TEMP_VARIABLES.contains(&&*name)
        };
        let retained = env.iter().filter(|(name, _)| !leads_out(name)).cloned();
        retained.chain([("TMPDIR".into(), temp.into())]).collect()
    }

    /// Returns the specification for the supervisor of one step. `scratch` is the run's scratch directory, which
    /// contains [`TEMP_SOURCE`] and [`EMPTY_FILE`].
    pub(super) fn for_step(
        &self,
        mechanism: Mechanism,
        scratch: &Path,
        permissions: &StepPermissions,
    ) -> ConfinementSpec {
        let mut writable = self.writable.clone();
        writable.extend(permissions.writable.iter().cloned());
        let mut protected = PROTECTED.map(|name| self.workspace.join(name)).to_vec();
        protected.retain(|path| !permissions.writable.contains(path));
        protected.extend(permissions.read_only.iter().cloned());
        ConfinementSpec {
            mechanism,
            workspace: self.workspace.clone(),
            workspace_id: self.workspace_id,
            temp_source: scratch.join(TEMP_SOURCE),
            empty_file: scratch.join(EMPTY_FILE),
            cache_store: PathBuf::new(),
            protected,
            writable,
            homes: self.homes.clone(),
            opened_paths: self.toolchain_paths.clone(),
            readable: self.readable.clone(),
            caches: Vec::new(),
            hidden: self.hidden.clone(),
            daemon_paths: self.daemon_paths.clone(),
            network: self.network || permissions.network,
            unix_sockets: self.unix_sockets,
            limits: self.limits,
        }
    }
}

/// Variables with addresses of agents, buses and displays. A command that connects to one acts outside the sandbox.
const HOST_SERVICE_VARIABLES: [&str; 9] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
];
const HOST_SERVICE_PREFIXES: [&str; 2] = ["TMUX", "PUSH"];
const TEMP_VARIABLES: [&str; 4] = ["TMPDIR", "TMP", "TEMP", "TEMPDIR"];

/// Permissions of one step beyond the confinement of its run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepPermissions {
    /// The step may use the machine's network.
    pub network: bool,
    /// Further paths that the step may write, also if they are protected.
    pub writable: Vec<PathBuf>,
    /// Paths that are read-only although they lie in a writable directory. They must exist.
    pub read_only: Vec<PathBuf>,
    /// The step runs without confinement.
    pub unconfined: bool,
}

/// The confinement of one step, as the supervisor receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfinementSpec {
    pub(crate) mechanism: Mechanism,
    pub(crate) workspace: PathBuf,
    /// The identity of the workspace; the supervisor compares it with the mounted directory.
    pub(crate) workspace_id: Option<FileId>,
    /// The directory that is mounted at [`TEMP_DIR`].
    pub(crate) temp_source: PathBuf,
    /// The empty file that is mounted over hidden files.
    pub(crate) empty_file: PathBuf,
    /// The directory with the private copies of this workspace's caches; empty if there are none.
    pub(crate) cache_store: PathBuf,
    pub(crate) writable: Vec<PathBuf>,
    pub(crate) protected: Vec<PathBuf>,
    pub(crate) homes: Vec<PathBuf>,
    pub(crate) opened_paths: Vec<PathBuf>,
    pub(crate) readable: Vec<PathBuf>,
    pub(crate) caches: Vec<Cache>,
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) daemon_paths: Vec<PathBuf>,
    pub(crate) network: bool,
    pub(crate) unix_sockets: bool,
    pub(crate) limits: ResourceLimits,
}

/// Returns whether `path` is `place` or lies below it, lexically.
fn is_within(path: &Path, directory: &Path) -> bool {
    path.starts_with(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_bus_and_key_variables_are_removed_from_the_environment() {
        let mut confinement = Confinement::new("/w".into());
        confinement.unset_variables.push("OPENAI_API_KEY".to_owned());
        let names = [
            "PATH",
            "SSH_AUTH_SOCK",
            "TMUX_PANE",
            "PUSH_HOME",
            "PUSHD_SOCKET",
            "OPENAI_API_KEY",
            "DISPLAY",
            "TMPDIR",
            "XDG_RUNTIME_DIR",
            "HOME",
        ];
        let env: Vec<(OsString, OsString)> = names.iter().map(|name| (name.into(), "x".into())).collect();
        let environment = confinement.environment(&env, Path::new(TEMP_DIR));
        let environment: Vec<String> =
            environment.iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect();
        assert_eq!(environment, ["PATH=x", "HOME=x", "TMPDIR=/tmp"]);
    }

    #[test]
    fn a_path_that_a_step_may_write_is_not_protected() {
        let confinement = Confinement::new("/w".into());
        let spec = confinement.for_step(Mechanism::Namespaces, Path::new("/t"), &StepPermissions::default());
        assert_eq!(spec.protected, [Path::new("/w/.git"), Path::new("/w/.push")]);
        assert!(!spec.network && spec.writable.is_empty());
        let (writable, closed) = (vec!["/w/.git".into()], vec!["/w/.git/hooks".into()]);
        let permissions = StepPermissions { network: true, writable, read_only: closed, unconfined: false };
        let spec = confinement.for_step(Mechanism::Namespaces, Path::new("/t"), &permissions);
        assert_eq!(spec.protected, [Path::new("/w/.push"), Path::new("/w/.git/hooks")]);
        assert_eq!(spec.writable, [Path::new("/w/.git")]);
        assert!(spec.network);
    }

    #[test]
    fn every_mechanism_has_a_unique_name() {
        for mechanism in Mechanism::ALL {
            assert_eq!(Mechanism::parse(mechanism.as_str().as_bytes()), Some(mechanism));
        }
        assert_eq!(Mechanism::parse(b""), None);
    }
}
