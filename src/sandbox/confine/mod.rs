//! What a confined command may reach, as plain values.
//!
//! Nothing is enforced here: a [`Confinement`] is what the daemon wants, `Walls` is what the keeper of one step is told,
//! [`plan`] says which mounts that takes and [`bubblewrap`] how they are said to the program of that name.

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

/// Where a confined command finds its temporary files.
pub const TEMP: &str = "/tmp";

/// The directory in a run's own one that stands at [`TEMP`].
pub(crate) const FILES: &str = "files";

/// The empty file in a run's own directory.
pub(crate) const BLANK: &str = "blank";

/// The directories of a workspace that no command may change: what they hold is run or believed by others.
pub const PROTECTED: [&str; 2] = [".git", ".push"];

/// How a command is confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The program bubblewrap builds the namespaces.
    Bubblewrap,
    /// The keeper builds them itself.
    Namespaces,
    /// There are none: rules for files and system calls have to do.
    Rules,
}

impl Way {
    /// Every way, the best first.
    ///
    /// The first two are as strong. Bubblewrap takes three times as long for every command, and is there for systems that
    /// let nobody else make namespaces.
    pub const ALL: [Self; 3] = [Self::Namespaces, Self::Bubblewrap, Self::Rules];

    /// Returns the word for it.
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

/// How much a command may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// How many processes it may have at once.
    pub processes: u64,
    /// How many bytes of memory: of each process, and of all together where a cgroup counts them.
    pub memory: u64,
    /// How many bytes a file may have that it writes.
    pub file: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { processes: 1024, memory: 8 * GIB, file: 16 * GIB }
    }
}

const GIB: u64 = 1024 * 1024 * 1024;

/// What the commands of a room may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// The directory that may be written.
    pub workspace: PathBuf,
    /// What the file system calls that directory, where it must be this one and no other in its place.
    pub workspace_id: Option<FileId>,
    /// Further directories that may be written.
    pub writable: Vec<PathBuf>,
    /// Homes: nothing in them is seen, except for what is opened, the workspace and what may be written.
    pub homes: Vec<PathBuf>,
    /// What toolchains need of homes, read-only; what may not be opened is left out.
    pub opened: Vec<PathBuf>,
    /// What the owner opens beside that, read-only, also inside of what is hidden.
    pub readable: Vec<PathBuf>,
    /// Caches of which commands get a private copy.
    pub caches: Vec<Cache>,
    /// Where private copies of caches are kept; without it there are none.
    pub cache_root: Option<PathBuf>,
    /// Files and directories that are not to be seen; what is hidden stays so inside the workspace.
    pub hidden: Vec<PathBuf>,
    /// Which of these the configuration names: nothing but the configuration opens them.
    pub hide: Vec<PathBuf>,
    /// What the daemon believes or keeps secret: hidden too, and there are no walls where it could be made or moved.
    pub own: Vec<PathBuf>,
    /// Whether the network of the machine is there.
    pub network: bool,
    /// Whether sockets of the machine may be talked to by path.
    pub unix_sockets: bool,
    /// How much may be used.
    pub bounds: Bounds,
    /// Names of variables that commands are not given, beside those that nobody is.
    pub unset: Vec<String>,
}

impl Confinement {
    /// Confines to `workspace` and hides nothing.
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

    /// Returns the environment of a confined command: without ways to other programs of the user, with a place for
    /// temporary files.
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

    /// Returns what the keeper of one step is told; `scratch` is the run's own directory, with [`FILES`] and [`BLANK`] in it.
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

/// Addresses of agents, buses and displays: who talks to them acts outside.
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

/// What one step may do beyond its room.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leave {
    /// Use the machine's network.
    pub network: bool,
    /// Write here too, also where it is protected.
    pub writable: Vec<PathBuf>,
    /// Change nothing here, although it lies where may be written; it must be there.
    pub closed: Vec<PathBuf>,
    /// Run outside of the walls, where there are any.
    pub outside: bool,
}

/// What the keeper of one step is told of its walls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Walls {
    pub(crate) way: Way,
    pub(crate) workspace: PathBuf,
    /// What the file system calls the workspace; it is compared with what was mounted.
    pub(crate) workspace_id: Option<FileId>,
    /// The directory that stands at [`TEMP`].
    pub(crate) temp: PathBuf,
    /// The empty file that stands for those that are hidden.
    pub(crate) blank: PathBuf,
    /// Where the private copies of this workspace's caches are; empty where there are none.
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

/// Tells whether `path` is `place` or lies in it, by its words.
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
