//! What a confined command may access, as plain values.
//!
//! Nothing is enforced here. A [`Confinement`] is the policy of a run, `ConfinementSpec` is what the supervisor of one
//! step receives, [`plan`] computes the mounts and [`bubblewrap`] the arguments of the program of that name.

pub mod bubblewrap;
pub(crate) mod entries;
pub(crate) mod hint;
mod home;
pub mod plan;
pub mod toolchain;
pub(crate) mod view;
mod wire;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::ground::FileId;
pub use entries::{HiddenEntries, OpenedPaths};
pub use home::{credential_stores, system_credentials};
use toolchain::Cache;

/// The directory in which a confined command finds its temporary files.
pub const TEMP: &str = "/tmp";

/// The subdirectory of a run's scratch directory that is mounted at [`TEMP_DIR`].
pub(crate) const FILES: &str = "files";

/// The empty file in a run's scratch directory. It is mounted over hidden files.
pub(crate) const BLANK: &str = "blank";

/// The directories of a workspace that no command may change: git and push execute or trust their content.
pub const PROTECTED: [&str; 2] = [".git", ".push"];

/// The mechanism that confines a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The program bubblewrap creates the namespaces.
    Bubblewrap,
    /// The supervisor creates the namespaces itself.
    Namespaces,
    /// No namespaces: only Landlock rules and system call filters.
    Rules,
}

impl Way {
    /// Every mechanism, in order of preference.
    ///
    /// The first two are equally strong. Bubblewrap takes three times as long for every command. It is needed on
    /// systems that allow no other program to create namespaces.
    pub const ALL: [Self; 3] = [Self::Namespaces, Self::Bubblewrap, Self::Rules];

    /// Returns the name of the mechanism.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bubblewrap => "bubblewrap",
            Self::Namespaces => "namespaces",
            Self::Rules => "rules",
        }
    }

    fn parse(word: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.word().as_bytes() == word)
    }
}

/// The resource limits of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The maximum number of concurrent processes.
    pub processes: u64,
    /// The memory limit in bytes: for each process, and for all processes together where a cgroup is available.
    pub memory: u64,
    /// The maximum size in bytes of a file that the command writes.
    pub file: u64,
}

impl Default for Bounds {
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
    pub opened: Vec<PathBuf>,
    /// Further paths that the configuration opens read-only, also inside hidden directories.
    pub readable: Vec<PathBuf>,
    /// Caches of which commands get a private, writable copy.
    pub caches: Vec<Cache>,
    /// The directory that holds the private copies of caches. Without it commands get no copies.
    pub cache_root: Option<PathBuf>,
    /// Files and directories that are hidden, also inside the workspace.
    pub hidden: Vec<PathBuf>,
    /// The subset of the hidden paths that the configuration names. Only the configuration can open them.
    pub hide: Vec<PathBuf>,
    /// Files that the daemon trusts or keeps secret. They are hidden, and no command is confined to a workspace in
    /// which it could create or move them.
    pub own: Vec<PathBuf>,
    /// Whether commands have access to the network of the machine.
    pub network: bool,
    /// Whether commands may connect to Unix sockets of the machine.
    pub unix_sockets: bool,
    /// The resource limits.
    pub bounds: Bounds,
    /// Names of further environment variables that are removed from the environment of commands.
    pub unset: Vec<String>,
}

impl Confinement {
    /// Creates a policy that confines commands to `workspace` and hides nothing.
    pub fn of(workspace: PathBuf) -> Self {
        Self {
            workspace,
            workspace_id: None,
            writable: Vec::new(),
            homes: Vec::new(),
            opened: Vec::new(),
            readable: Vec::new(),
            caches: Vec::new(),
            cache_root: None,
            hidden: Vec::new(),
            hide: Vec::new(),
            own: Vec::new(),
            network: false,
            unix_sockets: false,
            bounds: Bounds::default(),
            unset: Vec::new(),
        }
    }

    /// Returns the environment of a confined command: without addresses of services outside the sandbox, and with
    /// `TMPDIR` set to `temp`.
    pub fn environment(&self, env: &[(OsString, OsString)], temp: &Path) -> Vec<(OsString, OsString)> {
        let leads_out = |name: &OsStr| {
            let name = name.to_string_lossy();
            LEADING_OUT.contains(&&*name)
                || LEADING_OUT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
                || self.unset.iter().any(|unset| *unset == name)
                || TEMPS.contains(&&*name)
        };
        let kept = env.iter().filter(|(name, _)| !leads_out(name)).cloned();
        kept.chain([("TMPDIR".into(), temp.into())]).collect()
    }

    /// Returns the specification for the supervisor of one step. `scratch` is the run's scratch directory, which
    /// contains [`TEMP_SOURCE`] and [`EMPTY_FILE`].
    pub(super) fn walls(&self, way: Way, scratch: &Path, leave: &Leave) -> Walls {
        let mut writable = self.writable.clone();
        writable.extend(leave.writable.iter().cloned());
        let mut protected = PROTECTED.map(|name| self.workspace.join(name)).to_vec();
        protected.retain(|path| !leave.writable.contains(path));
        protected.extend(leave.closed.iter().cloned());
        Walls {
            way,
            workspace: self.workspace.clone(),
            workspace_id: self.workspace_id,
            temp: scratch.join(FILES),
            blank: scratch.join(BLANK),
            cache_store: PathBuf::new(),
            protected,
            writable,
            homes: self.homes.clone(),
            opened: self.opened.clone(),
            readable: self.readable.clone(),
            caches: Vec::new(),
            hidden: self.hidden.clone(),
            own: self.own.clone(),
            network: self.network || leave.network,
            unix_sockets: self.unix_sockets,
            bounds: self.bounds,
        }
    }
}

/// Variables with addresses of agents, buses and displays. A command that connects to one acts outside the sandbox.
const LEADING_OUT: [&str; 9] = [
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
const LEADING_OUT_PREFIXES: [&str; 2] = ["TMUX", "PUSH"];
const TEMPS: [&str; 4] = ["TMPDIR", "TMP", "TEMP", "TEMPDIR"];

/// Permissions of one step beyond the confinement of its run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leave {
    /// The step may use the machine's network.
    pub network: bool,
    /// Further paths that the step may write, also if they are protected.
    pub writable: Vec<PathBuf>,
    /// Paths that are read-only although they lie in a writable directory. They must exist.
    pub closed: Vec<PathBuf>,
    /// The step runs without confinement.
    pub outside: bool,
}

/// The confinement of one step, as the supervisor receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Walls {
    pub(crate) way: Way,
    pub(crate) workspace: PathBuf,
    /// The identity of the workspace; the supervisor compares it with the mounted directory.
    pub(crate) workspace_id: Option<FileId>,
    /// The directory that is mounted at [`TEMP_DIR`].
    pub(crate) temp: PathBuf,
    /// The empty file that is mounted over hidden files.
    pub(crate) blank: PathBuf,
    /// The directory with the private copies of this workspace's caches; empty if there are none.
    pub(crate) cache_store: PathBuf,
    pub(crate) writable: Vec<PathBuf>,
    pub(crate) protected: Vec<PathBuf>,
    pub(crate) homes: Vec<PathBuf>,
    pub(crate) opened: Vec<PathBuf>,
    pub(crate) readable: Vec<PathBuf>,
    pub(crate) caches: Vec<Cache>,
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) own: Vec<PathBuf>,
    pub(crate) network: bool,
    pub(crate) unix_sockets: bool,
    pub(crate) bounds: Bounds,
}

/// Returns whether `path` is `place` or lies below it, lexically.
fn within(path: &Path, place: &Path) -> bool {
    path.starts_with(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_command_is_not_told_of_agents_buses_and_keys() {
        let mut confinement = Confinement::of("/w".into());
        confinement.unset.push("OPENAI_API_KEY".to_owned());
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
        let kept = confinement.environment(&env, Path::new(TEMP));
        let kept: Vec<String> =
            kept.iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect();
        assert_eq!(kept, ["PATH=x", "HOME=x", "TMPDIR=/tmp"]);
    }

    #[test]
    fn what_a_step_has_leave_to_write_is_not_protected() {
        let confinement = Confinement::of("/w".into());
        let walls = confinement.walls(Way::Namespaces, Path::new("/t"), &Leave::default());
        assert_eq!(walls.protected, [Path::new("/w/.git"), Path::new("/w/.push")]);
        assert!(!walls.network && walls.writable.is_empty());
        let (writable, closed) = (vec!["/w/.git".into()], vec!["/w/.git/hooks".into()]);
        let leave = Leave { network: true, writable, closed, outside: false };
        let walls = confinement.walls(Way::Namespaces, Path::new("/t"), &leave);
        assert_eq!(walls.protected, [Path::new("/w/.push"), Path::new("/w/.git/hooks")]);
        assert_eq!(walls.writable, [Path::new("/w/.git")]);
        assert!(walls.network);
    }

    #[test]
    fn every_way_has_a_word_of_its_own() {
        for way in Way::ALL {
            assert_eq!(Way::parse(way.word().as_bytes()), Some(way));
        }
        assert_eq!(Way::parse(b""), None);
    }
}
