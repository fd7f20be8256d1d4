//! Where the tools of a run work, and with what.

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

/// What was found around a session: what its project says, and its workspace, opened. Why not, where it was not.
pub(super) struct Around {
    pub(super) rules: Result<Rules, String>,
    pub(super) ground: Result<Ground, String>,
}

/// What was found, and what is to be noted of the workspace.
pub(super) struct LookedAround {
    pub(super) around: Around,
    pub(super) noted: Option<WorkspaceIdentity>,
}

impl LookedAround {
    /// Looks around a session; `known` is what its project said before.
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
        let opened = opened.unwrap_or_else(|why| Err(format!("the workspace could not be opened: {why}")));
        match opened {
            Ok((ground, noted)) => Self { around: Around { rules, ground: Ok(ground) }, noted },
            Err(why) => Self { around: Around { rules, ground: Err(why) }, noted: None },
        }
    }
}

/// The place of a run's tools, as its session describes it.
pub(super) struct Place {
    /// How its user calls it.
    pub(super) cwd: PathBuf,
    /// The workspace; why it cannot be used, where it cannot.
    pub(super) ground: Result<Ground, String>,
    pub(super) environment: Option<Arc<Environment>>,
    pub(super) tree: Arc<dyn Room>,
    /// Directories beside the workspace that confined commands may write.
    pub(super) writable: Vec<PathBuf>,
    pub(super) network: Network,
    /// What names of machines led to when it was decided about them, in this run.
    pub(super) addresses: Arc<Addresses>,
    pub(super) limits: Limits,
}

impl Place {
    /// Lays everything out.
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

/// Returns the directory that a session works in: where it is without links, as far as that was noted.
pub(super) fn place_of(state: &State) -> PathBuf {
    let noted = state.workspace().map(|workspace| PathBuf::from(&workspace.path));
    noted.unwrap_or_else(|| cwd_of(state))
}

/// Returns how its user calls the directory that a session works in.
pub(super) fn cwd_of(state: &State) -> PathBuf {
    state.opening.as_ref().map_or_else(PathBuf::new, |opening| PathBuf::from(&opening.cwd))
}

/// Returns the home of whoever has this environment.
pub(super) fn home_of(environment: Option<&Environment>) -> Option<&Path> {
    environment?.variables().get("HOME").map(Path::new)
}

/// Tells which paths the tools of a session may reach: a playbook is its user's own words, which may name any.
pub(super) fn reach(is_playbook: bool) -> Reach {
    if is_playbook { Reach::Anywhere } else { Reach::Workspace }
}

/// The run's environment is its user's. Without one there is a small honest default.
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
