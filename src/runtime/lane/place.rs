//! The workspace, the environment and the sandbox that the tools of a session use.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::limits::Limits;
use crate::config::settings::Settings;
use crate::kernel::event::WorkspaceIdentity;
use crate::kernel::state::State;
use crate::protocol::push::decode::Environment;
use crate::redact::Redactor;
use crate::runtime::models::Rules;
use crate::runtime::workspace;
use crate::runtime::world::World;
use crate::sandbox::Room;
use crate::sandbox::ground::{Ground, Reach};
use crate::tools::{self, Addresses, Bench, Fault, FaultKind, Network};

/// The run configuration and the open workspace of a session, each or the reason why it is not available.
pub(super) struct Around {
    pub(super) rules: Result<Rules, String>,
    pub(super) ground: Result<Ground, String>,
}

/// A loaded context, and a new workspace identity that the session stores.
pub(super) struct LookedAround {
    pub(super) around: Around,
    pub(super) noted: Option<WorkspaceIdentity>,
}

impl LookedAround {
    /// Loads the context of a session; `known` is the configuration that its run already has.
    pub(super) async fn of(
        world: &World,
        known: Option<Rules>,
        reach: Reach,
        environment: Option<&Environment>,
        state: &State,
    ) -> Self {
        let rules = match known {
            Some(rules) => Ok(rules),
            None => world.house.rules_in(&place_of(state)).await.map_err(|error| error.to_string()),
        };
        let usual = Settings::default();
        let settings = rules.as_ref().map_or(&usual, |rules| &rules.settings);
        let variable = |name: &str| environment?.variables().get(name).map(OsString::from);
        let closed = world.sandboxes.closed(settings, &variable);
        let (place, cwd, known) = (place_of(state), cwd_of(state), state.workspace().cloned());
        let open = move || match reach {
            Reach::Anywhere => {
                Ground::open(&cwd, reach).map(|ground| (ground, None)).map_err(|error| error.to_string())
            }
            Reach::Workspace => workspace::open(&cwd, known.as_ref())
                .map(|(ground, noted)| (ground.closing(&closed), noted))
                .map_err(|error| error.to_string()),
        };
        let opened = world.files.run_in(&place, open).await;
        let opened = opened.unwrap_or_else(|why| Err(format!("cannot open the workspace: {why}")));
        match opened {
            Ok((ground, noted)) => Self { around: Around { rules, ground: Ok(ground) }, noted },
            Err(why) => Self { around: Around { rules, ground: Err(why) }, noted: None },
        }
    }
}

/// Everything from which the context of a tool call is built.
pub(super) struct Place {
    /// The working directory as the user named it.
    pub(super) cwd: PathBuf,
    /// The workspace, or why it cannot be used.
    pub(super) ground: Result<Ground, String>,
    pub(super) environment: Option<Arc<Environment>>,
    pub(super) tree: Arc<dyn Room>,
    /// Directories outside the workspace that confined commands may write.
    pub(super) writable: Vec<PathBuf>,
    pub(super) network: Network,
    /// The addresses that host names resolved to when the calls of this run were decided.
    pub(super) addresses: Arc<Addresses>,
    pub(super) limits: Limits,
}

impl Place {
    /// Builds the context of a tool call.
    pub(super) fn bench(&self, redactor: &Redactor) -> Result<Bench, Fault> {
        let unavailable = |why: &String| Fault::new(FaultKind::SandboxUnavailable, why.clone());
        let ground = self.ground.as_ref().map_err(unavailable)?.clone();
        let (redactor, whole) = (redactor.clone(), redactor.clone());
        Ok(Bench {
            ground,
            tree: Arc::clone(&self.tree),
            env: environment(self.environment.as_deref()),
            writable: self.writable.clone(),
            network: self.network,
            addresses: Arc::clone(&self.addresses),
            limits: tools::Limits {
                step: self.limits.step,
                result_bytes: self.limits.result_bytes,
                scan_bytes: self.limits.read_bytes,
                ..tools::Limits::default()
            },
            safe: Arc::new(move |text| redactor.text(text).into_owned()),
            cut: Arc::new(move |text, at| whole.cut(text, at)),
            bound: None,
        })
    }
}

/// Returns the working directory of a session: its path without symbolic links, if that is stored.
pub(super) fn place_of(state: &State) -> PathBuf {
    let noted = state.workspace().map(|workspace| PathBuf::from(&workspace.path));
    noted.unwrap_or_else(|| cwd_of(state))
}

/// Returns the working directory of a session as its user named it.
pub(super) fn cwd_of(state: &State) -> PathBuf {
    state.opening.as_ref().map_or_else(PathBuf::new, |opening| PathBuf::from(&opening.cwd))
}

/// Returns the branch that the client reported for the repository of a session.
pub(super) fn branch_of(state: &State) -> Option<String> {
    let repo = state.opening.as_ref()?.repo.as_ref()?;
    let repo: serde_json::Value = serde_json::from_str(repo.as_str()).ok()?;
    repo.get("currentBranch")?.as_str().map(str::to_owned)
}

/// Returns the home directory of an environment.
pub(super) fn home_of(environment: Option<&Environment>) -> Option<&Path> {
    environment?.variables().get("HOME").map(Path::new)
}

/// Returns which paths the tools of a session may access. The user writes the steps of a playbook, so they may name
/// any.
pub(super) fn reach(is_playbook: bool) -> Reach {
    if is_playbook { Reach::Anywhere } else { Reach::Workspace }
}

/// Returns the environment of tools: the user's, else a minimal default.
fn environment(known: Option<&Environment>) -> Vec<(OsString, OsString)> {
    match known {
        Some(environment) => {
            environment.variables().iter().map(|(name, value)| (name.into(), value.into())).collect()
        }
        None => vec![
            ("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
            ("LANG".into(), "C.UTF-8".into()),
        ],
    }
}
