//! What the user has chosen about the walls around a model's commands, as plain values.

use std::path::{Path, PathBuf};

use super::settings::Switch;

/// What holds for the commands of models.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxSettings {
    /// Who runs them.
    pub provider: SandboxChoice,
    /// Whether they have the machine's network.
    pub network: Switch,
    /// Whether they may talk to sockets of the machine by path.
    pub unix_sockets: Switch,
    /// Files and directories that they do not see, beside those that nobody sees; `~/` stands for the home.
    pub hide: Vec<String>,
    /// Directories that they may write, beside the workspace; `~/` stands for the home.
    pub writable: Vec<String>,
    /// How many bytes of memory each of their processes may use.
    pub memory: Option<u64>,
    /// How many processes a command may have.
    pub processes: Option<u64>,
}

/// Who runs a model's commands; the order is from strict to lenient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum SandboxChoice {
    /// This machine, behind as many walls as it has.
    #[default]
    Local,
    /// This machine, without any.
    None,
}

impl SandboxChoice {
    /// Every one of them, with its word.
    pub const ALL: &[(&str, Self)] = &[("local", Self::Local), ("none", Self::None)];

    /// Returns the word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::None => "none",
        }
    }

    /// Reads a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == word).map(|(_, choice)| *choice)
    }
}

impl SandboxSettings {
    /// Returns what holds when a project asks for `by` too: nowhere more than either allows.
    #[must_use]
    pub fn tightened(mut self, by: &Self) -> Self {
        self.provider = self.provider.min(by.provider);
        self.network = self.network.min(by.network);
        self.unix_sockets = self.unix_sockets.min(by.unix_sockets);
        let more: Vec<String> = by.hide.iter().filter(|path| !self.hide.contains(path)).cloned().collect();
        self.hide.extend(more);
        self.memory = lower(self.memory, by.memory);
        self.processes = lower(self.processes, by.processes);
        self
    }
}

fn lower(own: Option<u64>, wanted: Option<u64>) -> Option<u64> {
    match (own, wanted) {
        (Some(own), Some(wanted)) => Some(own.min(wanted)),
        (own, wanted) => own.or(wanted),
    }
}

/// Returns the path that a text of the configuration means; `~/` is seen from `home`.
pub fn path(text: &str, home: &Path) -> PathBuf {
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
            provider: SandboxChoice::None,
            network: Switch::On,
            unix_sockets: Switch::Off,
            hide: vec!["~/a".into()],
            writable: vec!["/w".into()],
            memory: Some(8),
            processes: None,
        };
        let project = SandboxSettings {
            unix_sockets: Switch::On,
            hide: vec!["~/a".into(), "~/b".into()],
            writable: vec!["/evil".into()],
            memory: Some(9),
            processes: Some(5),
            ..SandboxSettings::default()
        };
        let tight = own.tightened(&project);
        assert_eq!(tight.provider, SandboxChoice::Local);
        assert_eq!((tight.network, tight.unix_sockets), (Switch::Off, Switch::Off));
        assert_eq!(tight.hide, ["~/a", "~/b"]);
        assert_eq!(tight.writable, ["/w"]);
        assert_eq!((tight.memory, tight.processes), (Some(8), Some(5)));
    }

    #[test]
    fn a_path_may_begin_at_the_home() {
        let home = Path::new("/home/ann");
        assert_eq!(path("~/x", home), Path::new("/home/ann/x"));
        assert_eq!(path("/x", home), Path::new("/x"));
        for (word, choice) in SandboxChoice::ALL {
            assert_eq!((SandboxChoice::parse(word), choice.word()), (Some(*choice), *word));
        }
    }
}
