//! The sandbox policy of commands that models run, derived from the configuration.
//!
//! The daemon's own secrets (socket, tokens, database, keys) are hidden under every configuration.

use std::path::{Path, PathBuf};

use super::model_config::RunConfig;
use crate::config::paths::Paths;
use crate::config::sandbox::{self, DEFAULT_MEMORY, DEFAULT_PROCESSES, SandboxKind, SandboxMechanism};
use crate::config::settings::{Settings, Switch};
use crate::kernel::event::Opening;
use crate::kernel::id::Json;
use crate::protocol::error::{Code, ErrorBody};
use crate::provider::dialect::BUILT_IN;
use crate::provider::registry::key_variable;
use crate::sandbox::confinement::toolchain::{self, EnvironmentLookup};
use crate::sandbox::confinement::{Confinement, Mechanism, ResourceLimits, credential_stores, system_credentials};
use crate::sandbox::workspace::DeniedPaths;
use crate::sandbox::{
    ConfinementStrength, HomeAccess, Layers, LocalSandbox, SandboxProvider, SupervisorRegistry, UnconfinedSandbox,
};

/// The sandboxes of a daemon.
#[derive(Debug)]
pub struct Sandboxes {
    local: LocalSandbox,
    /// The same with one mechanism each, in the order of [`Mechanism::ALL`].
    restricted: [LocalSandbox; Mechanism::ALL.len()],
    unconfined: UnconfinedSandbox,
    /// The owner's home directories.
    homes: Vec<PathBuf>,
    /// Toolchain directories named by the daemon's own environment, for requests that describe a default session.
    toolchains: Vec<PathBuf>,
    /// The directory of the private cache copies.
    caches: PathBuf,
    /// Paths that no command of a model can see or create.
    daemon_paths: Vec<PathBuf>,
}

impl Sandboxes {
    /// Runs commands with `local`, and hides the daemon's files at `paths` and the credentials in `homes`.
    pub fn new(local: LocalSandbox, paths: &Paths, homes: Vec<PathBuf>) -> Self {
        let local = local.with_scratch_root(scratch_directory(paths));
        let mut daemon_paths = vec![
            paths.home.clone(),
            paths.socket.clone(),
            paths.lock.clone(),
            paths.pid.clone(),
            paths.config.clone(),
            paths.keys_dir().join("keys.toml"),
        ];
        // A directory that the user chose may be a home directory with unrelated files.
        if paths.keys_dir().file_name().is_some_and(|name| name == "push") {
            daemon_paths.push(paths.keys_dir().to_owned());
        }
        Self {
            unconfined: UnconfinedSandbox::new(local.clone()),
            restricted: Mechanism::ALL.map(|mechanism| local.clone().with_mechanism(mechanism)),
            local,
            homes,
            toolchains: Vec::new(),
            caches: paths.caches_dir(),
            daemon_paths,
        }
    }

    /// Sets the toolchain directories of a session that inherits the daemon's environment.
    #[must_use]
    pub fn with_toolchains(self, toolchains: Vec<PathBuf>) -> Self {
        Self { toolchains, ..self }
    }

    /// Returns the sandbox provider that runs the commands of models.
    pub fn provider(&self, choice: SandboxKind, mechanism: SandboxMechanism) -> &dyn SandboxProvider {
        let [namespaces, bubblewrap, rules] = &self.restricted;
        match (choice, mechanism) {
            (SandboxKind::None, _) => &self.unconfined,
            (SandboxKind::Local, SandboxMechanism::Auto) => &self.local,
            (SandboxKind::Local, SandboxMechanism::Namespaces) => namespaces,
            (SandboxKind::Local, SandboxMechanism::Bubblewrap) => bubblewrap,
            (SandboxKind::Local, SandboxMechanism::Landlock) => rules,
        }
    }

    /// Returns the sandbox provider that runs the commands of users.
    pub const fn local(&self) -> &LocalSandbox {
        &self.local
    }

    /// Returns the registry of processes that descend from commands of models.
    pub const fn supervisors(&self) -> &SupervisorRegistry {
        self.local.supervisors()
    }

    /// Returns the directories outside the workspace that commands of a model may write.
    pub fn writable_directories(&self, settings: &Settings, home: Option<&Path>) -> Vec<PathBuf> {
        let home = home.or(self.homes.first().map(PathBuf::as_path)).unwrap_or(Path::new(""));
        settings.sandbox.writable.iter().map(|text| sandbox::expand_home(text, home)).collect()
    }

    /// Returns the confinement of a session with the daemon's environment, in a workspace that grants no access.
    pub fn default_confinement(&self, settings: &Settings) -> Confinement {
        let workspace = self.caches.parent().unwrap_or(&self.caches);
        let mut confinement = self.confinement(settings, workspace, &|_| None);
        confinement.toolchain_paths.extend(self.toolchains.iter().cloned());
        confinement
    }

    /// Returns what the commands of a model may access in a workspace; `variable` looks up the session's environment.
    ///
    /// A client sets that environment, so the paths it names are opened only as far as a toolchain needs them.
    pub fn confinement(&self, settings: &Settings, workspace: &Path, variable: EnvironmentLookup<'_>) -> Confinement {
        let chosen = &settings.sandbox;
        let client_home = variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let mut homes: Vec<PathBuf> = client_home.into_iter().chain(self.homes.iter().cloned()).collect();
        homes.dedup();
        // Without a known home directory, paths that start with it match nothing.
        let home = homes.first().cloned().unwrap_or_default();
        let resolve = |text: &String| sandbox::expand_home(text, &home);
        let hide: Vec<PathBuf> = chosen.hide.iter().map(resolve).collect();
        let mut readable: Vec<PathBuf> = chosen.readable.iter().map(resolve).collect();
        readable.retain(|path| !hide.iter().any(|hide| path.starts_with(hide)));
        let mut hidden: Vec<PathBuf> = homes.iter().flat_map(|home| credential_stores(home)).collect();
        hidden.extend(hide.iter().cloned());
        let mut opened: Vec<PathBuf> = homes.iter().flat_map(|home| toolchain::default_paths(home)).collect();
        opened.extend(toolchain::paths_from_environment(variable));
        let kinds = BUILT_IN.iter().map(|dialect| dialect.name());
        let names = kinds.chain(settings.providers.keys().map(String::as_str));
        Confinement {
            workspace: workspace.to_owned(),
            workspace_id: None,
            writable: chosen.writable.iter().map(resolve).collect(),
            caches: toolchain::caches(&home, variable),
            cache_root: Some(self.caches.clone()),
            homes,
            toolchain_paths: opened,
            readable,
            hidden,
            hidden_by_config: hide,
            daemon_paths: self.daemon_paths.clone(),
            network: chosen.network == Switch::On,
            unix_sockets: chosen.unix_sockets == Switch::On,
            limits: ResourceLimits {
                memory: chosen.memory.unwrap_or(DEFAULT_MEMORY),
                processes: chosen.processes.unwrap_or(DEFAULT_PROCESSES),
                ..ResourceLimits::default()
            },
            unset_variables: names.map(key_variable).collect(),
        }
    }
}

impl Sandboxes {
    /// Returns the paths that are denied to file tools in every workspace: those that are hidden from commands.
    pub fn denied_paths(&self, settings: &Settings, variable: EnvironmentLookup<'_>) -> DeniedPaths {
        let Confinement {
            mut hidden,
            hidden_by_config: hide,
            daemon_paths: own,
            readable,
            homes,
            toolchain_paths: mut opened,
            caches,
            ..
        } = self.confinement(settings, Path::new(""), variable);
        hidden.retain(|path| !hide.contains(path));
        hidden.extend(system_credentials());
        opened.extend(caches.into_iter().map(|cache| cache.path));
        DeniedPaths {
            credential_stores: hidden,
            hidden_by_config: hide,
            daemon_paths: own,
            exceptions: readable,
            homes,
            toolchains: opened,
        }
    }
}

/// Returns the sandbox that a session was opened with.
pub fn session_choice(opening: Option<&Opening>) -> SandboxKind {
    opening.and_then(|opening| SandboxKind::parse(&opening.sandbox)).unwrap_or_default()
}

/// Returns the sandbox of a new session: the requested one, else the configured one.
///
/// If the project requires a sandbox, a request for none is refused.
pub fn resolve_choice(word: Option<&str>, rules: &RunConfig) -> Result<SandboxKind, ErrorBody> {
    let Some(word) = word else { return Ok(rules.settings.sandbox.provider) };
    let unavailable = |message: String, detail: String| {
        Err(ErrorBody::permanent(Code::SandboxUnavailable, message).with_detail(detail))
    };
    match SandboxKind::parse(word) {
        Some(SandboxKind::None) if rules.requires_sandbox => {
            let message = "the project requires a sandbox; a session without one cannot start".to_owned();
            unavailable(message, "sandbox.provider in its .push/config.toml".to_owned())
        }
        Some(choice) => Ok(choice),
        None => {
            let known: Vec<_> = SandboxKind::ALL.iter().map(|(word, _)| *word).collect();
            unavailable(format!("unknown sandbox {word:?}"), format!("available: {}", known.join(", ")))
        }
    }
}

/// Describes the confinement of a model's commands as JSON; `chosen` are the configured provider and mechanism.
pub fn layers_json(chosen: Option<(&str, &str)>, layers: &Layers) -> Json {
    let Layers { strength, names, reason: why } = layers;
    let mut json = serde_json::json!({ "strength": strength.as_str(), "layers": names, "why": why });
    if let Some((provider, mechanism)) = chosen {
        json["provider"] = provider.into();
        json["mechanism"] = mechanism.into();
    }
    Json::new(json.to_string())
}

/// Adds the parts of home directories that commands can access.
pub fn with_home_access(described: &Json, access: &HomeAccess) -> Json {
    let list =
        |paths: &[PathBuf]| -> Vec<String> { paths.iter().map(|path| path.to_string_lossy().into_owned()).collect() };
    let mut json: serde_json::Value = serde_json::from_str(described.as_str()).unwrap_or_default();
    json["hidden"] = list(&access.hidden).into();
    json["readable"] = list(&access.readable).into();
    json["caches"] = list(&access.caches).into();
    Json::new(json.to_string())
}

/// Describes the missing confinement of playbook steps.
pub fn playbook_json() -> Json {
    let why = Some("the user wrote the steps of the playbook".to_owned());
    layers_json(None, &Layers { strength: ConfinementStrength::Missing, names: Vec::new(), reason: why })
}

/// Returns the directory of the temporary files of runs.
fn scratch_directory(paths: &Paths) -> PathBuf {
    paths.home.join("tmp")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::config::project::{ProjectConfig, tighten};

    #[test]
    fn daemon_paths_are_hidden_under_every_configuration() {
        let sandboxes = sandboxes(&[]);
        let confinement = confinement(&sandboxes, &Settings::default());
        for path in ["/home/ann/.push", "/home/ann/.config/push", "/home/ann/.config/push/keys.toml"] {
            assert!(confinement.daemon_paths.contains(&path.into()), "{path}");
        }
        for path in ["/home/ann/.ssh", "/home/bob/.ssh"] {
            assert!(confinement.hidden.contains(&path.into()), "{path}");
        }
        assert!(!confinement.network && !confinement.unix_sockets && confinement.writable.is_empty());
        assert!(confinement.unset_variables.contains(&"ANTHROPIC_API_KEY".to_owned()));
    }

    #[test]
    fn every_home_is_hidden_wherever_the_daemon_home_is() {
        for moved in [&[][..], &[("PUSH_HOME", "/srv/push")]] {
            let confinement = confinement(&sandboxes(moved), &Settings::default());
            for home in ["/home/bob", "/home/ann", "/passwd/ann"] {
                assert!(confinement.homes.contains(&home.into()), "{home} {moved:?}");
                assert!(confinement.hidden.contains(&Path::new(home).join(".ssh")), "{home} {moved:?}");
            }
            assert!(!confinement.homes.contains(&"/srv".into()));
        }
    }

    #[test]
    fn toolchains_of_every_home_and_of_the_environment_are_candidates() {
        let confinement = confinement(&sandboxes(&[]), &Settings::default());
        for path in ["/home/bob/.cargo", "/home/ann/.rustup", "/passwd/ann/.gitconfig", "/home/bob/tools"] {
            assert!(confinement.toolchain_paths.contains(&path.into()), "{path}");
        }
        assert!(confinement.caches.iter().all(|cache| cache.path.starts_with("/home/bob")));
        assert_eq!(confinement.cache_root, Some("/home/ann/.push/cache".into()));
    }

    #[test]
    fn a_configured_hide_path_overrides_a_readable_path() {
        let mut settings = Settings::default();
        settings.sandbox.readable = vec!["~/notes".into(), "~/x/y".into(), "~/.ssh".into()];
        settings.sandbox.hide = vec!["~/x".into()];
        let readable = confinement(&sandboxes(&[]), &settings).readable;
        assert_eq!(readable, [Path::new("/home/bob/notes"), Path::new("/home/bob/.ssh")]);
    }

    #[test]
    fn paths_hidden_from_commands_are_denied_to_file_tools() {
        let mut settings = Settings::default();
        settings.sandbox.hide = vec!["~/x".into()];
        settings.sandbox.readable = vec!["~/.ssh/config".into()];
        let variable = |name: &str| match name {
            "HOME" => Some("/home/bob".into()),
            "CARGO_HOME" => Some("/home/bob/c".into()),
            _ => None,
        };
        let closed = sandboxes(&[]).denied_paths(&settings, &variable);
        for store in ["/home/bob/.ssh", "/passwd/ann/.aws", "/etc/shadow"] {
            assert!(closed.credential_stores.contains(&store.into()), "{store}");
        }
        assert!(!closed.credential_stores.contains(&"/home/bob/x".into()));
        assert_eq!(closed.hidden_by_config, [Path::new("/home/bob/x")]);
        assert_eq!(closed.exceptions, [Path::new("/home/bob/.ssh/config")]);
        for home in ["/home/bob", "/home/ann", "/passwd/ann"] {
            assert!(closed.homes.contains(&home.into()), "{home}");
        }
        for toolchain in ["/home/ann/.cargo", "/home/bob/c", "/home/bob/c/registry", "/home/bob/.npm"] {
            assert!(closed.toolchains.contains(&toolchain.into()), "{toolchain}");
        }
        assert!(closed.daemon_paths.contains(&"/home/ann/.push".into()));
    }

    #[test]
    fn a_configuration_in_the_home_does_not_hide_the_home() {
        let sandboxes = sandboxes(&[("PUSH_CONFIG", "/home/ann/c.toml"), ("PUSHD_SOCKET", "/srv/s/p.sock")]);
        let own = confinement(&sandboxes, &Settings::default()).daemon_paths;
        assert!(!own.contains(&"/home/ann".into()), "{own:?}");
        for path in ["/home/ann/c.toml", "/home/ann/keys.toml", "/srv/s/p.sock"] {
            assert!(own.contains(&path.into()), "{path}");
        }
    }

    #[test]
    fn a_project_cannot_raise_a_default_resource_limit() {
        let sandboxes = sandboxes(&[]);
        let usual = confinement(&sandboxes, &Settings::default()).limits;
        assert_eq!(usual, ResourceLimits::default(), "the configuration and the sandbox have the same defaults");
        let text = "[sandbox]\nmemory_mb = 1000000\nprocesses = 1000000\n";
        let file = crate::config::file::parse(text, Path::new("p.toml"), &[]).unwrap();
        let project = ProjectConfig::new("p.toml".into(), file).unwrap();
        let settings = tighten(Settings::default(), project.tightening());
        assert_eq!(confinement(&sandboxes, &settings).limits, usual);
    }

    #[test]
    fn the_configuration_sets_the_confinement() {
        let mut settings = Settings::default();
        settings.sandbox.hide = vec!["~/x".into()];
        settings.sandbox.writable = vec!["~/.cargo".into(), "/srv/w".into()];
        settings.sandbox.network = Switch::On;
        settings.sandbox.processes = Some(7);
        let sandboxes = sandboxes(&[]);
        let confinement = confinement(&sandboxes, &settings);
        assert!(confinement.hidden.contains(&"/home/bob/x".into()));
        assert_eq!(confinement.writable, [Path::new("/home/bob/.cargo"), Path::new("/srv/w")]);
        assert!(confinement.network);
        assert_eq!(confinement.limits.processes, 7);
        for (_, mechanism) in SandboxMechanism::ALL {
            assert_eq!(sandboxes.provider(SandboxKind::Local, *mechanism).name(), "local");
            assert_eq!(sandboxes.provider(SandboxKind::None, *mechanism).name(), "none");
        }
    }

    fn confinement(sandboxes: &Sandboxes, settings: &Settings) -> Confinement {
        let variable = |name: &str| match name {
            "HOME" => Some("/home/bob".into()),
            "PATH" => Some("/home/bob/tools:/usr/bin".into()),
            _ => None,
        };
        sandboxes.confinement(settings, Path::new("/w"), &variable)
    }

    fn sandboxes(variables: &[(&str, &str)]) -> Sandboxes {
        let variable = |name: &str| -> Option<OsString> {
            let given = variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
            given.or_else(|| (name == "HOME").then(|| "/home/ann".into()))
        };
        let paths = Paths::from_environment(&variable).unwrap();
        let homes = vec!["/home/ann".into(), "/passwd/ann".into()];
        Sandboxes::new(LocalSandbox::new("/bin/false".into()), &paths, homes)
    }
}
