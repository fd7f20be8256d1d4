//! The user's settings for the confinement of a model's commands.

use std::path::{Path, PathBuf};

use super::settings::Switch;

/// The sandbox settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxSettings {
    /// The sandbox that runs the commands.
    pub provider: SandboxKind,
    /// The mechanism that confines the commands; a project cannot set it.
    pub mechanism: SandboxMechanism,
    /// Whether commands have network access.
    pub network: Switch,
    /// Whether commands may connect to Unix sockets of the host.
    pub unix_sockets: Switch,
    /// Paths that commands cannot see, in addition to the built-in ones; `~/` is the home.
    pub hide: Vec<String>,
    /// Directories that commands may write, in addition to the workspace; `~/` is the home.
    pub writable: Vec<String>,
    /// Paths in the home that commands may read, in addition to those of toolchains; `~/` is the home.
    pub readable: Vec<String>,
    /// The memory limit of a command in bytes; the default is [`DEFAULT_MEMORY`].
    pub memory: Option<u64>,
    /// The process limit of a command; the default is [`DEFAULT_PROCESSES`].
    pub processes: Option<u64>,
}

/// The default memory limit of a command, in bytes.
pub const DEFAULT_MEMORY: u64 = 8 * 1024 * 1024 * 1024;

/// The default process limit of a command.
pub const DEFAULT_PROCESSES: u64 = 1024;

/// The sandbox that runs a model's commands; ordered from strict to lenient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum SandboxKind {
    /// On this machine, with all the confinement it supports.
    #[default]
    Local,
    /// On this machine, without confinement.
    None,
}

impl SandboxKind {
    /// Every value with its name in the file.
    pub const ALL: &[(&str, Self)] = &[("local", Self::Local), ("none", Self::None)];

    /// Returns the name in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::None => "none",
        }
    }

    /// Parses a name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == word).map(|(_, choice)| *choice)
    }
}

/// The mechanism that confines commands in the local sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxMechanism {
    /// The best one that works on this machine.
    #[default]
    Auto,
    /// Only namespaces that the daemon's own program creates.
    Namespaces,
    /// Only bubblewrap.
    Bubblewrap,
    /// Only Landlock and system call filters, without namespaces.
    Landlock,
}

impl SandboxMechanism {
    /// Every value with its name in the file.
    pub const ALL: &[(&str, Self)] = &[
        ("auto", Self::Auto),
        ("namespaces", Self::Namespaces),
        ("bubblewrap", Self::Bubblewrap),
        ("landlock", Self::Landlock),
    ];

    /// Returns the name in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Namespaces => "namespaces",
            Self::Bubblewrap => "bubblewrap",
            Self::Landlock => "landlock",
        }
    }

    /// Parses a name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == word).map(|(_, choice)| *choice)
    }
}

impl SandboxSettings {
    /// Returns the settings restricted by those of a project: never more lenient than either side.
    #[must_use]
    pub fn tightened(mut self, by: &Self) -> Self {
        self.provider = self.provider.min(by.provider);
        self.network = self.network.min(by.network);
        self.unix_sockets = self.unix_sockets.min(by.unix_sockets);
        let more: Vec<String> = by.hide.iter().filter(|path| !self.hide.contains(path)).cloned().collect();
        self.hide.extend(more);
        self.memory = lower(self.memory, by.memory, DEFAULT_MEMORY);
        self.processes = lower(self.processes, by.processes, DEFAULT_PROCESSES);
        self
    }
}

/// Returns the lower of two limits. A user who configured none has the default, which a project cannot raise.
fn lower(own: Option<u64>, requested: Option<u64>, default: u64) -> Option<u64> {
    match requested {
        Some(requested) => Some(own.unwrap_or(default).min(requested)),
        None => own,
    }
}

/// Returns the path that a value of the configuration names; `~/` is relative to `home`.
pub fn expand_home(text: &str, home: &Path) -> PathBuf {
    match text.strip_prefix("~/") {
        Some(inner) => home.join(inner),
        None => PathBuf::from(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_never_loosens_and_may_hide_more() {
        let own = SandboxSettings {
            provider: SandboxKind::None,
            mechanism: SandboxMechanism::Bubblewrap,
            network: Switch::On,
            unix_sockets: Switch::Off,
            hide: vec!["~/a".into()],
            writable: vec!["/w".into()],
            readable: vec!["~/notes".into()],
            memory: Some(8),
            processes: None,
        };
        let project = SandboxSettings {
            mechanism: SandboxMechanism::Landlock,
            unix_sockets: Switch::On,
            hide: vec!["~/a".into(), "~/b".into()],
            writable: vec!["/evil".into()],
            readable: vec!["~/.ssh".into()],
            memory: Some(9),
            processes: Some(5),
            ..SandboxSettings::default()
        };
        let tight = own.tightened(&project);
        assert_eq!((tight.provider, tight.mechanism), (SandboxKind::Local, SandboxMechanism::Bubblewrap));
        assert_eq!((tight.network, tight.unix_sockets), (Switch::Off, Switch::Off));
        assert_eq!(tight.hide, ["~/a", "~/b"]);
        assert_eq!((tight.writable, tight.readable), (vec!["/w".to_owned()], vec!["~/notes".to_owned()]));
        assert_eq!((tight.memory, tight.processes), (Some(8), Some(5)));
    }

    #[test]
    fn a_project_cannot_raise_a_limit_that_the_user_left_at_its_default() {
        let wanting = |memory, processes| SandboxSettings { memory, processes, ..SandboxSettings::default() };
        let limits = |own: SandboxSettings, by: &SandboxSettings| {
            let tight = own.tightened(by);
            (tight.memory.unwrap_or(DEFAULT_MEMORY), tight.processes.unwrap_or(DEFAULT_PROCESSES))
        };
        let default = (DEFAULT_MEMORY, DEFAULT_PROCESSES);
        assert_eq!(limits(wanting(None, None), &wanting(Some(u64::MAX), Some(u64::MAX))), default);
        assert_eq!(limits(wanting(None, None), &wanting(Some(DEFAULT_MEMORY + 1), None)), default);
        assert_eq!(limits(wanting(None, None), &wanting(Some(5), Some(6))), (5, 6));
        assert_eq!(limits(wanting(None, None), &wanting(None, None)), default);
        // A limit that the user raised is kept, unless the project sets a lower one.
        let raised = wanting(Some(2 * DEFAULT_MEMORY), Some(9_000));
        assert_eq!(limits(raised.clone(), &wanting(None, None)), (2 * DEFAULT_MEMORY, 9_000));
        assert_eq!(limits(raised, &wanting(Some(u64::MAX), Some(8_000))), (2 * DEFAULT_MEMORY, 8_000));
    }

    #[test]
    fn a_path_may_begin_at_the_home() {
        let home = Path::new("/home/ann");
        assert_eq!(expand_home("~/x", home), Path::new("/home/ann/x"));
        assert_eq!(expand_home("/x", home), Path::new("/x"));
        for (word, choice) in SandboxKind::ALL {
            assert_eq!((SandboxKind::parse(word), choice.as_str()), (Some(*choice), *word));
        }
        for (word, choice) in SandboxMechanism::ALL {
            assert_eq!((SandboxMechanism::parse(word), choice.as_str()), (Some(*choice), *word));
        }
    }
}
