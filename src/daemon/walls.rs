//! What stands between a model's commands and the machine, as its owner has configured it.
//!
//! What holds the daemon's own secrets is hidden whatever is configured: the socket, the tokens, the database, the keys.

use std::path::{Path, PathBuf};

use super::models::Rules;
use crate::adapter::push::error::{Code, ErrorBody};
use crate::config::paths::Paths;
use crate::config::sandbox::{self, SandboxChoice};
use crate::config::settings::{ProviderKind, Settings, Switch};
use crate::kernel::event::Opening;
use crate::kernel::id::Json;
use crate::provider::registry::key_variable;
use crate::sandbox::confine::{Bounds, Confinement, credential_stores};
use crate::sandbox::{Layers, Lineage, Local, SandboxProvider, Strength, Terms, Unconfined};

/// The sandboxes of a daemon.
#[derive(Debug)]
pub struct Sandboxes {
    local: Local,
    unconfined: Unconfined,
    /// The owner's home.
    home: PathBuf,
    /// What no command of a model sees, nor could make.
    own: Vec<PathBuf>,
}

impl Sandboxes {
    /// Runs commands by `local`, and hides what is at `paths`.
    pub fn new(local: Local, paths: &Paths) -> Self {
        let local = local.with_scratch(scratch(paths));
        let mut own = vec![
            paths.home.clone(),
            paths.socket.clone(),
            paths.lock.clone(),
            paths.pid.clone(),
            paths.config.clone(),
            paths.keys().join("keys.toml"),
        ];
        // A directory that somebody chose may be a home, with much else in it.
        if paths.keys().file_name().is_some_and(|name| name == "push") {
            own.push(paths.keys().to_owned());
        }
        let home = paths.home.parent().unwrap_or(&paths.home).to_owned();
        Self { unconfined: Unconfined::new(local.clone()), local, home, own }
    }

    /// Returns who runs the commands of models.
    pub fn provider(&self, choice: SandboxChoice) -> &dyn SandboxProvider {
        match choice {
            SandboxChoice::Local => &self.local,
            SandboxChoice::None => &self.unconfined,
        }
    }

    /// Returns who runs the commands of users.
    pub const fn local(&self) -> &Local {
        &self.local
    }

    /// Returns who descends from a model's commands.
    pub const fn lineage(&self) -> &Lineage {
        self.local.lineage()
    }

    /// Says what the commands of a model may reach in a workspace; `home` is that of the session's user, if it is known.
    pub fn terms(&self, settings: &Settings, workspace: &Path, home: Option<&Path>) -> Terms {
        let chosen = &settings.sandbox;
        let home_of_user = home.unwrap_or(&self.home);
        let place = |text: &String| sandbox::path(text, home_of_user);
        let mut hidden = credential_stores(&self.home);
        if home_of_user != self.home {
            hidden.extend(credential_stores(home_of_user));
        }
        hidden.extend(chosen.hide.iter().map(place));
        let usual = Bounds::default();
        let kinds = ProviderKind::ALL.iter().map(|(name, _)| *name);
        let names = kinds.chain(settings.providers.keys().map(String::as_str));
        Terms::Model(Box::new(Confinement {
            workspace: workspace.to_owned(),
            writable: chosen.writable.iter().map(place).collect(),
            hidden,
            own: self.own.clone(),
            network: chosen.network == Switch::On,
            unix_sockets: chosen.unix_sockets == Switch::On,
            bounds: Bounds {
                memory: chosen.memory.unwrap_or(usual.memory),
                processes: chosen.processes.unwrap_or(usual.processes),
                ..usual
            },
            unset: names.map(key_variable).collect(),
        }))
    }
}

/// Returns where the tools of a session run that was opened so.
pub fn chosen(opening: Option<&Opening>) -> SandboxChoice {
    opening.and_then(|opening| SandboxChoice::parse(&opening.sandbox)).unwrap_or_default()
}

/// Returns where the tools of a new session run: where its user asks for, or else where the configuration says.
///
/// A project that wants walls gets them, whoever asks for none.
pub fn asked_for(word: Option<&str>, rules: &Rules) -> Result<SandboxChoice, ErrorBody> {
    let Some(word) = word else { return Ok(rules.settings.sandbox.provider) };
    let unavailable = |message: String, detail: String| {
        Err(ErrorBody::lasting(Code::SandboxUnavailable, message).with_detail(detail))
    };
    match SandboxChoice::parse(word) {
        Some(SandboxChoice::None) if rules.wants_walls => {
            let message =
                "the project asks for a sandbox, so that there is no session without one".to_owned();
            unavailable(message, "sandbox.provider in its .push/config.toml".to_owned())
        }
        Some(choice) => Ok(choice),
        None => {
            let known: Vec<_> = SandboxChoice::ALL.iter().map(|(word, _)| *word).collect();
            unavailable(format!("there is no sandbox {word:?}"), format!("available: {}", known.join(", ")))
        }
    }
}

/// Says what holds the commands of a model back, for whoever opens a session.
pub fn described(provider: Option<&str>, layers: &Layers) -> Json {
    let Layers { strength, names, why } = layers;
    let mut said = serde_json::json!({ "strength": strength.word(), "layers": names, "why": why });
    if let Some(provider) = provider {
        said["provider"] = provider.into();
    }
    Json::new(said.to_string())
}

/// The same for the steps of a playbook.
pub fn of_playbooks() -> Json {
    let why = Some("the steps of a playbook are its user's own words".to_owned());
    described(None, &Layers { strength: Strength::Missing, names: Vec::new(), why })
}

/// Where the temporary files of runs are.
pub fn scratch(paths: &Paths) -> PathBuf {
    paths.home.join("tmp")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn what_the_daemon_keeps_to_itself_is_hidden_whatever_is_configured() {
        let sandboxes = sandboxes(&[]);
        let confinement = confinement(&sandboxes, &Settings::default());
        for path in ["/home/ann/.push", "/home/ann/.config/push", "/home/ann/.config/push/keys.toml"] {
            assert!(confinement.own.contains(&path.into()), "{path}");
        }
        for path in ["/home/ann/.ssh", "/home/bob/.ssh"] {
            assert!(confinement.hidden.contains(&path.into()), "{path}");
        }
        assert!(!confinement.network && !confinement.unix_sockets && confinement.writable.is_empty());
        assert!(confinement.unset.contains(&"ANTHROPIC_API_KEY".to_owned()));
    }

    #[test]
    fn a_configuration_in_the_home_does_not_hide_the_home() {
        let sandboxes = sandboxes(&[("PUSH_CONFIG", "/home/ann/c.toml"), ("PUSHD_SOCKET", "/srv/s/p.sock")]);
        let own = confinement(&sandboxes, &Settings::default()).own;
        assert!(!own.contains(&"/home/ann".into()), "{own:?}");
        for path in ["/home/ann/c.toml", "/home/ann/keys.toml", "/srv/s/p.sock"] {
            assert!(own.contains(&path.into()), "{path}");
        }
    }

    #[test]
    fn what_is_configured_is_what_is_asked_for() {
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
        assert_eq!(confinement.bounds.processes, 7);
        assert_eq!(sandboxes.provider(SandboxChoice::Local).name(), "local");
        assert_eq!(sandboxes.provider(SandboxChoice::None).name(), "none");
    }

    fn confinement(sandboxes: &Sandboxes, settings: &Settings) -> Confinement {
        match sandboxes.terms(settings, Path::new("/w"), Some(Path::new("/home/bob"))) {
            Terms::Model(confinement) => *confinement,
            Terms::User => unreachable!("a model's terms"),
        }
    }

    fn sandboxes(variables: &[(&str, &str)]) -> Sandboxes {
        let variable = |name: &str| -> Option<OsString> {
            let given = variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into());
            given.or_else(|| (name == "HOME").then(|| "/home/ann".into()))
        };
        let paths = Paths::from_environment(&variable).unwrap();
        Sandboxes::new(Local::new("/bin/false".into()), &paths)
    }
}
