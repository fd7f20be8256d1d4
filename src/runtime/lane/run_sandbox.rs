//! The context of tool calls, and the sandbox in which they run.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use super::run_tasks::{RunTasks, provider_name};
use super::tool_context::{
    ToolContextBuilder, WorkspaceContext, home_directory, path_reach, session_cwd, workspace_path,
};
use crate::config::settings::Settings;
use crate::kernel::environment::Environment;
use crate::kernel::id::RunId;
use crate::kernel::state::State;
use crate::provider::playbook;
use crate::runtime::confinement;
use crate::runtime::model_config::RunConfig;
use crate::runtime::services::Services;
use crate::sandbox::confinement::Confinement;
use crate::sandbox::workspace::{ReachPolicy, WorkspaceDir};
use crate::sandbox::{ExecutionPolicy, RunSandbox, SandboxProvider};
use crate::tools::{Network, PinnedAddresses};

impl RunTasks {
    /// Returns the tool context of a run, or outside a run, with this environment, in the given sandbox or in a new one.
    ///
    /// A configuration that cannot be read allows nothing, and confines like the default one.
    pub(super) fn tool_context(
        &self,
        run: Option<&RunId>,
        environment: Option<Arc<Environment>>,
        WorkspaceContext { run_config, workspace }: WorkspaceContext,
        sandbox: Option<Arc<dyn RunSandbox>>,
        state: &State,
    ) -> ToolContextBuilder {
        let is_playbook = provider_name(state) == playbook::NAME;
        let network = run_config.as_ref().map_or(Network::Off, RunConfig::network);
        let settings = run_config.map(|run_config| run_config.settings).unwrap_or_default();
        let writable =
            self.services().sandboxes.writable_directories(&settings, home_directory(environment.as_deref()));
        let reach = path_reach(state, run);
        let sandbox = sandbox.unwrap_or_else(|| {
            self.open_sandbox(reach, workspace.as_ref().ok(), &settings, state, environment.as_deref())
        });
        ToolContextBuilder {
            writable,
            addresses: Arc::new(PinnedAddresses::with_system_resolver()),
            network: if is_playbook { Network::Off } else { network },
            sandbox,
            workspace,
            cwd: session_cwd(state),
            environment,
            limits: self.services().limits,
        }
    }

    /// Opens a sandbox: commands of users are unconfined, those of a model are confined as the session says.
    fn open_sandbox(
        &self,
        reach: ReachPolicy,
        workspace: Option<&WorkspaceDir>,
        settings: &Settings,
        state: &State,
        environment: Option<&Environment>,
    ) -> Arc<dyn RunSandbox> {
        let sandboxes = &self.services().sandboxes;
        match reach {
            ReachPolicy::Anywhere => sandboxes.local().open(ExecutionPolicy::User),
            ReachPolicy::Workspace => {
                let root = workspace.map_or_else(|| workspace_path(state), |workspace| workspace.path().to_owned());
                let mut confinement = self.confinement(&root, settings, environment);
                confinement.workspace_id = workspace.and_then(|workspace| workspace.file_id().ok());
                let terms = ExecutionPolicy::Model(Box::new(confinement));
                let choice = confinement::session_choice(state.opening.as_ref());
                sandboxes.provider(choice, settings.sandbox.mechanism).open(terms)
            }
        }
    }

    /// Returns what the commands and tools of a model may access.
    fn confinement(&self, cwd: &Path, settings: &Settings, environment: Option<&Environment>) -> Confinement {
        let variable = |name: &str| environment?.variables().get(name).map(OsString::from);
        self.services().sandboxes.confinement(settings, cwd, &variable)
    }

    const fn services(&self) -> &Arc<Services> {
        self.services_and_session().0
    }
}
