//! A project's configuration, which can only restrict the user's.

use std::path::{Path, PathBuf};

use super::file::{self, ConfigError, ConfigFile, ContentError};
use super::sandbox::{SandboxKind, SandboxSettings};
use super::settings::rule::{Effect, Rule};
use super::settings::{Preset, ProviderKind, Settings, Switch};

/// The restrictions of a project; `None` is no restriction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProjectRestrictions {
    /// The most lenient preset.
    pub preset: Option<Preset>,
    /// Rules that ask or deny.
    pub rules: Vec<Rule>,
    /// The maximum number of turns.
    pub max_turns: Option<u32>,
    /// The maximum number of tokens.
    pub max_tokens: Option<u64>,
    /// The maximum cost, in millionths of a US dollar.
    pub max_cost_micro_usd: Option<u64>,
    /// Whether the fetch tool may be enabled.
    pub fetch: Option<Switch>,
    /// The restrictions of the sandbox; values that the project omits are the most lenient ones.
    pub sandbox: Option<SandboxSettings>,
}

/// A project file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectConfig {
    /// Its path.
    pub path: PathBuf,
    /// Its content.
    pub file: ConfigFile,
}

impl ProjectConfig {
    /// Accepts a file that sets only keys a project may set.
    pub fn new(path: PathBuf, file: ConfigFile) -> Result<Self, ConfigError> {
        let foreign = file.lines.iter().find(|(key, _)| !is_project_key(key));
        if let Some((key, line)) = foreign {
            let error = ContentError::NotForProjects { key: key.clone() };
            return Err(ConfigError::Invalid { path, line: *line, error });
        }
        let allows = |rule: &Rule| rule.effect == Effect::Allow;
        if let Some((index, rule)) = file.settings.rules.user.iter().enumerate().find(|(_, rule)| allows(rule)) {
            let line = file.lines.get(&format!("{RULES}.{}", index + 1)).copied().unwrap_or(1);
            let error = ContentError::AllowsInProject { rule: rule.to_string() };
            return Err(ConfigError::Invalid { path, line, error });
        }
        Ok(Self { path, file })
    }

    /// Returns its restrictions.
    pub fn tightening(&self) -> ProjectRestrictions {
        let settings = &self.file.settings;
        let says = |key: &str| self.file.lines.contains_key(key);
        ProjectRestrictions {
            preset: says(PRESET).then_some(settings.approvals),
            rules: settings.rules.user.clone(),
            max_turns: settings.limits.max_turns,
            max_tokens: settings.limits.max_tokens,
            max_cost_micro_usd: settings.limits.max_cost_micro_usd,
            fetch: says(FETCH).then_some(settings.tools.fetch),
            sandbox: self.sandbox(),
        }
    }

    /// The sandbox settings of the project, with the most lenient value for each key it omits.
    fn sandbox(&self) -> Option<SandboxSettings> {
        let says = |key: &str| self.file.lines.contains_key(key);
        if !self.file.lines.keys().any(|key| key.starts_with("sandbox.")) {
            return None;
        }
        let mut requested = self.file.settings.sandbox.clone();
        if !says("sandbox.provider") {
            requested.provider = SandboxKind::None;
        }
        if !says("sandbox.network") {
            requested.network = Switch::On;
        }
        if !says("sandbox.unix_sockets") {
            requested.unix_sockets = Switch::On;
        }
        Some(requested)
    }
}

/// Returns settings that are never more lenient than either side.
pub fn tighten(mut settings: Settings, by: ProjectRestrictions) -> Settings {
    settings.approvals = stricter(settings.approvals, by.preset);
    settings.rules.projects.extend(by.rules.into_iter().filter(|rule| rule.effect != Effect::Allow));
    settings.tools.fetch = stricter(settings.tools.fetch, by.fetch);
    if let Some(sandbox) = &by.sandbox {
        settings.sandbox = settings.sandbox.tightened(sandbox);
    }
    let limits = &mut settings.limits;
    limits.max_turns = lower(limits.max_turns, by.max_turns);
    limits.max_tokens = lower(limits.max_tokens, by.max_tokens);
    limits.max_cost_micro_usd = lower(limits.max_cost_micro_usd, by.max_cost_micro_usd);
    settings
}

/// Reads the project files for a directory: its own and those of its parents, up to the root of the repository.
///
/// `home` is the user's home, whose `.push` belongs to the daemon and not to a project; `kinds` are the known kinds of
/// providers.
pub fn load_for(directory: &Path, home: &Path, kinds: &[ProviderKind]) -> Result<Vec<ProjectConfig>, ConfigError> {
    // One directory may have two paths.
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (directory, home) = (real(directory), real(home));
    let mut found = Vec::new();
    for folder in config_directories(&directory, &home, &|folder| folder.join(".git").exists()) {
        let path = folder.join(".push").join("config.toml");
        let file = file::read(&path, kinds)?;
        if file != ConfigFile::default() {
            found.push(ProjectConfig::new(path, file)?);
        }
    }
    Ok(found)
}

/// Returns the directories that may contain a project file; outside a repository only the directory itself.
fn config_directories<'a>(directory: &'a Path, home: &Path, is_repository: &dyn Fn(&Path) -> bool) -> Vec<&'a Path> {
    let below_home: Vec<&Path> = directory.ancestors().take_while(|folder| *folder != home).collect();
    match below_home.iter().position(|folder| is_repository(folder)) {
        Some(root) => below_home.into_iter().take(root + 1).collect(),
        None => below_home.into_iter().take(1).collect(),
    }
}

fn stricter<T: Ord>(own: T, project: Option<T>) -> T {
    match project {
        Some(project) => own.min(project),
        None => own,
    }
}

fn lower<T: Ord>(own: Option<T>, project: Option<T>) -> Option<T> {
    match (own, project) {
        (Some(own), Some(project)) => Some(own.min(project)),
        (own, project) => own.or(project),
    }
}

const PRESET: &str = "approvals.preset";

const RULES: &str = "approvals.rules";
const FETCH: &str = "tools.fetch";

const PROJECT_KEYS: &[&str] = &[
    PRESET,
    FETCH,
    "limits.max_turns",
    "limits.max_tokens",
    "limits.max_cost_usd",
    "sandbox.provider",
    "sandbox.network",
    "sandbox.unix_sockets",
    "sandbox.memory_mb",
    "sandbox.processes",
];

/// Whether a project may set a key; the items of the lists of rules and hidden paths have numbers.
fn is_project_key(key: &str) -> bool {
    let listed = |list: &str| key.strip_prefix(list).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    PROJECT_KEYS.contains(&key) || listed(RULES) || listed("sandbox.hide")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::settings::{ApprovalRules, OptionalTools, RunLimits, TEST_KINDS};

    #[test]
    fn no_combination_loosens_anything() {
        let presets = [Preset::Strict, Preset::Standard, Preset::Trusted];
        for own in presets {
            for project in presets.map(Some).into_iter().chain([None]) {
                let settings = Settings { approvals: own, ..Settings::default() };
                let tight =
                    tighten(settings, ProjectRestrictions { preset: project, ..ProjectRestrictions::default() });
                assert!(tight.approvals <= own, "{own:?} {project:?}");
                assert!(project.is_none_or(|project| tight.approvals <= project), "{own:?} {project:?}");
            }
        }
        for own in [None, Some(1), Some(5), Some(9)] {
            for project in [None, Some(1), Some(5), Some(9)] {
                let limits = RunLimits { max_turns: own, ..RunLimits::default() };
                let settings = Settings { limits, ..Settings::default() };
                let by = ProjectRestrictions { max_turns: project, ..ProjectRestrictions::default() };
                let turns = tighten(settings, by).limits.max_turns.unwrap_or(u32::MAX);
                let bound = own.unwrap_or(u32::MAX).min(project.unwrap_or(u32::MAX));
                assert_eq!(turns, bound, "{own:?} {project:?}");
            }
        }
    }

    #[test]
    fn a_project_can_disable_the_network_and_never_enable_it() {
        for (own, project, left) in [
            (Switch::On, Some(Switch::Off), Switch::Off),
            (Switch::Off, Some(Switch::On), Switch::Off),
            (Switch::On, None, Switch::On),
        ] {
            let settings = Settings { tools: OptionalTools { fetch: own }, ..Settings::default() };
            let tight = tighten(settings, ProjectRestrictions { fetch: project, ..ProjectRestrictions::default() });
            assert_eq!(tight.tools.fetch, left);
        }
    }

    #[test]
    fn a_project_makes_the_sandbox_stricter_and_nothing_else() {
        let own = file::parse(
            "[sandbox]\nprovider = 'none'\nnetwork = true\nwritable = ['~/.cargo']\n",
            Path::new("own.toml"),
            &TEST_KINDS,
        );
        let own = own.unwrap().settings;
        let restrictions = project("[sandbox]\nhide = ['/srv/keys']\nunix_sockets = true\n").unwrap();
        let tight = tighten(own.clone(), restrictions.tightening()).sandbox;
        assert_eq!((tight.provider, tight.network), (SandboxKind::None, Switch::On));
        assert_eq!((tight.unix_sockets, tight.hide.as_slice()), (Switch::Off, &["/srv/keys".to_owned()][..]));
        let restrictions = project("[sandbox]\nprovider = 'local'\nnetwork = false\nprocesses = 9\n").unwrap();
        let tight = tighten(own, restrictions.tightening()).sandbox;
        assert_eq!((tight.provider, tight.network), (SandboxKind::Local, Switch::Off));
        assert_eq!((tight.processes, tight.writable.len()), (Some(9), 1));
        assert!(project("[sandbox]\nwritable = ['/']\n").is_err());
        assert!(project("[sandbox]\nwritable = ['~/x']\n").is_err());
        assert!(project("[sandbox]\nreadable = ['~/x']\n").is_err());
    }

    #[test]
    fn settings_that_a_project_omits_stay_unchanged() {
        let project = project("[limits]\nmax_turns = 3\n").unwrap();
        let own =
            Settings { approvals: Preset::Trusted, tools: OptionalTools { fetch: Switch::On }, ..Settings::default() };
        let tight = tighten(own.clone(), project.tightening());
        assert_eq!((tight.approvals, tight.tools.fetch), (Preset::Trusted, Switch::On));
        assert_eq!(tight.limits.max_turns, Some(3));
        assert_eq!(tighten(own.clone(), ProjectRestrictions::default()), own);
    }

    #[test]
    fn settings_reserved_for_the_user_are_refused_with_their_line() {
        for (text, line) in [
            ("[approvals]\npreset = 'strict'\n[providers.openai]\nbase_url = 'http://evil.example'\n", 4),
            ("model = 'x'\n", 1),
            ("[limits]\ncompact_at = 0.5\n", 2),
        ] {
            let error = project(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("p.toml, line {line}: ")), "{error}");
            assert!(error.contains("for your own configuration"), "{error}");
        }
    }

    #[test]
    fn a_project_asks_and_denies_and_cannot_allow() {
        let rules = "[approvals]\nrules = [\n 'deny: write(.env*)',\n 'ask: git',\n]\n";
        let own = Settings {
            rules: ApprovalRules { user: rules_of(&["allow: exec"]), projects: Vec::new() },
            ..Settings::default()
        };
        let tight = tighten(own, project(rules).unwrap().tightening());
        assert_eq!(tight.rules.user, rules_of(&["allow: exec"]));
        assert_eq!(tight.rules.projects, rules_of(&["deny: write(.env*)", "ask: git"]));
        let error = project("[approvals]\nrules = ['ask: git',\n 'allow: exec(ls)']\n").unwrap_err().to_string();
        assert!(error.starts_with("p.toml, line 3: `allow: exec(ls)` is an `allow` rule"), "{error}");
        let by = ProjectRestrictions { rules: rules_of(&["allow: exec"]), ..ProjectRestrictions::default() };
        assert_eq!(tighten(Settings::default(), by), Settings::default());
    }

    fn rules_of(rules: &[&str]) -> Vec<Rule> {
        rules.iter().map(|rule| rule.parse().unwrap()).collect()
    }

    #[test]
    fn a_project_is_its_repository_and_never_the_home() {
        let repository = |folder: &Path| folder == Path::new("/home/ann/code/app");
        let found = |directory: &'static str, home: &str| {
            config_directories(Path::new(directory), Path::new(home), &repository)
        };
        let paths = |list: &[&'static str]| list.iter().map(|path| Path::new(*path)).collect::<Vec<_>>();
        assert_eq!(
            found("/home/ann/code/app/src", "/home/ann"),
            paths(&["/home/ann/code/app/src", "/home/ann/code/app"])
        );
        assert_eq!(found("/home/ann/code", "/home/ann"), paths(&["/home/ann/code"]));
        assert_eq!(found("/home/ann", "/home/ann"), paths(&[]));
        assert_eq!(found("/home/ann/code/app", "/home/ann/code/app"), paths(&[]));
        assert_eq!(found("/srv/x", "/home/ann"), paths(&["/srv/x"]));
    }

    #[test]
    fn project_files_of_parent_directories_are_read_except_in_the_home() {
        let home = tempfile::tempdir().unwrap();
        let app = home.path().join("app");
        let inner = app.join("inner");
        for (folder, text) in [
            (home.path(), "nonsense"),
            (&app, "[approvals]\npreset = 'strict'\n"),
            (&inner, "[tools]\nfetch = false\n"),
        ] {
            fs::create_dir_all(folder.join(".push")).unwrap();
            fs::write(folder.join(".push/config.toml"), text).unwrap();
        }
        fs::create_dir(app.join(".git")).unwrap();
        let found = load_for(&inner, home.path(), &TEST_KINDS).unwrap();
        let restrictions: Vec<ProjectRestrictions> = found.iter().map(ProjectConfig::tightening).collect();
        assert_eq!(restrictions[0].fetch, Some(Switch::Off));
        assert_eq!(restrictions[1].preset, Some(Preset::Strict));
        assert_eq!(restrictions.len(), 2);
        assert!(load_for(home.path(), home.path(), &TEST_KINDS).unwrap().is_empty());
        fs::write(inner.join(".push/config.toml"), "x").unwrap();
        assert!(load_for(&inner, home.path(), &TEST_KINDS).is_err());
    }

    fn project(text: &str) -> Result<ProjectConfig, ConfigError> {
        let path = Path::new("p.toml");
        ProjectConfig::new(path.to_owned(), file::parse(text, path, &TEST_KINDS)?)
    }
}
