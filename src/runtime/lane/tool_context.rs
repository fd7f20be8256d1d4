//! The workspace, the environment and the sandbox that the tools of a session use.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::run_tasks::provider_name;
use crate::config::limits::Limits;
use crate::config::settings::Settings;
use crate::kernel::environment::Environment;
use crate::kernel::event::WorkspaceIdentity;
use crate::kernel::id::RunId;
use crate::kernel::state::State;
use crate::provider::playbook;
use crate::redact::Redactor;
use crate::runtime::model_config::RunConfig;
use crate::runtime::services::Services;
use crate::runtime::workspace;
use crate::sandbox::RunSandbox;
use crate::sandbox::workspace::{ReachPolicy, WorkspaceDir};
use crate::tools::{self, Network, PinnedAddresses, ToolContext, ToolError, ToolErrorKind};

/// The run configuration and the open workspace of a session, each or the reason why it is not available.
pub(super) struct WorkspaceContext {
    pub(super) run_config: Result<RunConfig, String>,
    pub(super) workspace: Result<WorkspaceDir, String>,
}

/// A loaded context, and a new workspace identity that the session stores.
pub(super) struct LoadedWorkspace {
    pub(super) context: WorkspaceContext,
    pub(super) identity: Option<WorkspaceIdentity>,
}

impl LoadedWorkspace {
    /// Loads the context of a session; `known` is the configuration that its run already has.
    pub(super) async fn load(
        services: &Services,
        known: Option<RunConfig>,
        reach: ReachPolicy,
        environment: Option<&Environment>,
        state: &State,
    ) -> Self {
        let rules = match known {
            Some(rules) => Ok(rules),
            None => services.model_config.run_config(&workspace_path(state)).await.map_err(|error| error.to_string()),
        };
        let usual = Settings::default();
        let settings = rules.as_ref().map_or(&usual, |rules| &rules.settings);
        let variable = |name: &str| environment?.variables().get(name).map(OsString::from);
        let denied = services.sandboxes.denied_paths(settings, &variable);
        let (root, cwd, known) = (workspace_path(state), session_cwd(state), state.workspace().cloned());
        let open = move || match reach {
            ReachPolicy::Anywhere => {
                WorkspaceDir::open(&cwd, reach).map(|workspace| (workspace, None)).map_err(|error| error.to_string())
            }
            ReachPolicy::Workspace => workspace::open(&cwd, known.as_ref())
                .map(|(workspace, identity)| (workspace.with_denied_paths(&denied), identity))
                .map_err(|error| error.to_string()),
        };
        let opened = services.files.run_in(&root, open).await;
        let opened = opened.unwrap_or_else(|why| Err(format!("cannot open the workspace: {why}")));
        match opened {
            Ok((workspace, identity)) => {
                Self { context: WorkspaceContext { run_config: rules, workspace: Ok(workspace) }, identity }
            }
            Err(why) => Self { context: WorkspaceContext { run_config: rules, workspace: Err(why) }, identity: None },
        }
    }
}

/// Everything from which the context of a tool call is built.
pub(super) struct ToolContextBuilder {
    /// The working directory as the user named it.
    pub(super) cwd: PathBuf,
    /// The workspace, or why it cannot be used.
    pub(super) workspace: Result<WorkspaceDir, String>,
    pub(super) environment: Option<Arc<Environment>>,
    pub(super) sandbox: Arc<dyn RunSandbox>,
    /// Directories outside the workspace that confined commands may write.
    pub(super) writable: Vec<PathBuf>,
    pub(super) network: Network,
    /// The addresses that host names resolved to when the calls of this run were decided.
    pub(super) addresses: Arc<PinnedAddresses>,
    pub(super) limits: Limits,
}

impl ToolContextBuilder {
    /// Builds the context of a tool call.
    pub(super) fn build(&self, redactor: &Redactor) -> Result<ToolContext, ToolError> {
        let unavailable = |why: &String| ToolError::new(ToolErrorKind::SandboxUnavailable, why.clone());
        let workspace = self.workspace.as_ref().map_err(unavailable)?.clone();
        let (redactor, whole) = (redactor.clone(), redactor.clone());
        Ok(ToolContext {
            workspace,
            sandbox: Arc::clone(&self.sandbox),
            env: tool_variables(self.environment.as_deref()),
            writable: self.writable.clone(),
            network: self.network,
            addresses: Arc::clone(&self.addresses),
            limits: tools::Limits {
                step_timeout: self.limits.step_timeout,
                result_bytes: self.limits.result_bytes,
                scan_bytes: self.limits.read_bytes,
                ..tools::Limits::default()
            },
            redact: Arc::new(move |text| redactor.redact(text).into_owned()),
            safe_cut: Arc::new(move |text, at| whole.safe_cut(text, at)),
            approved_digest: None,
        })
    }
}

/// Returns the working directory of a session: its path without symbolic links, if that is stored.
pub(super) fn workspace_path(state: &State) -> PathBuf {
    let identity = state.workspace().map(|workspace| PathBuf::from(&workspace.path));
    identity.unwrap_or_else(|| session_cwd(state))
}

/// Returns the working directory of a session as its user named it.
pub(super) fn session_cwd(state: &State) -> PathBuf {
    state.opening.as_ref().map_or_else(PathBuf::new, |opening| PathBuf::from(&opening.cwd))
}

/// Returns the branch that the client reported for the repository of a session.
pub(super) fn branch_of(state: &State) -> Option<String> {
    let repo = state.opening.as_ref()?.repo.as_ref()?;
    let repo: serde_json::Value = serde_json::from_str(repo.as_str()).ok()?;
    repo.get("currentBranch")?.as_str().map(str::to_owned)
}

/// Returns the home directory of an environment.
pub(super) fn home_directory(environment: Option<&Environment>) -> Option<&Path> {
    environment?.variables().get("HOME").map(Path::new)
}

/// Returns which paths the tools of a run, or of a session outside a run, may access. The owner writes the steps of a
/// playbook, so they may name any, unless somebody else has sent them.
pub(super) fn path_reach(state: &State, run: Option<&RunId>) -> ReachPolicy {
    let is_confined = state.run.as_ref().is_some_and(|active| Some(&active.id) == run && active.is_confined());
    if provider_name(state) == playbook::NAME && !is_confined { ReachPolicy::Anywhere } else { ReachPolicy::Workspace }
}

/// Returns the environment of tools: the user's, else a minimal default.
fn tool_variables(known: Option<&Environment>) -> Vec<(OsString, OsString)> {
    match known {
        Some(environment) => environment.variables().iter().map(|(name, value)| (name.into(), value.into())).collect(),
        None => vec![
            ("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
            ("LANG".into(), "C.UTF-8".into()),
        ],
    }
}
