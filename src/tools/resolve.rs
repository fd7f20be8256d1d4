//! Resolves the links in the paths of a call, so that a link cannot make it look harmless.

use std::path::Path;

use super::context::{FsContext, ToolContext};
use super::error::{ToolError, ToolErrorKind};
use super::request::Request;
use crate::sandbox::workspace::ReachPolicy;

impl Request {
    /// Returns the call with its paths resolved; `None` if no path contains a link.
    ///
    /// The result depends on the current state of the workspace.
    pub async fn with_resolved_paths(&self, context: &ToolContext) -> Result<Option<Self>, ToolError> {
        let mut real = self.clone();
        let paths = self.named_paths();
        if paths.is_empty() || context.workspace.reach() == ReachPolicy::Anywhere {
            return Ok(None);
        }
        let resolve_all = move |fs_context: &FsContext| {
            let workspace = &fs_context.workspace;
            let resolve =
                |path: &String| (workspace.normalize(Path::new(path)), workspace.resolve_links(Path::new(path)));
            Ok(paths.iter().map(resolve).collect::<Vec<_>>())
        };
        let resolve = context.run_blocking(resolve_all).await?;
        if resolve.iter().all(|(plain, real)| plain == real) {
            return Ok(None);
        }
        for (path, (_, target)) in real.paths().into_iter().zip(resolve) {
            *path = target.to_string_lossy().into_owned();
        }
        Ok(Some(real))
    }

    /// Returns the file paths of the call.
    pub(super) fn named_paths(&self) -> Vec<String> {
        self.clone().paths().into_iter().map(|path| path.to_owned()).collect()
    }
}

/// Refuses paths that are denied, by name or through links.
pub(super) async fn check_reachable(paths: Vec<String>, context: &ToolContext) -> Result<(), ToolError> {
    if paths.is_empty() {
        return Ok(());
    }
    context
        .run_blocking(move |fs_context| {
            Ok(paths.iter().try_for_each(|path| fs_context.workspace.check_resolved(Path::new(path)))?)
        })
        .await
}

/// Refuses an unapproved change through a link to a path that itself needs an approval.
pub(super) async fn check_unapproved(request: &Request, context: &ToolContext) -> Result<(), ToolError> {
    let Some(real) = request.with_resolved_paths(context).await? else { return Ok(()) };
    let path_context = context.path_context();
    let risk = |request: &Request| request.assess_risk(request.escalation(), &path_context).risk;
    if risk(&real) <= risk(request) {
        return Ok(());
    }
    let message = "this path is a link to a file that needs an approval; name the file itself";
    Err(ToolError::new(ToolErrorKind::ApprovalStale, message))
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use super::super::{Limits, Network, PinnedAddresses, ToolSet};
    use super::*;
    use crate::sandbox::workspace::{DeniedPaths, WorkspaceDir};
    use crate::sandbox::{LocalSandbox, RunTree};

    #[tokio::test]
    async fn a_link_to_a_startup_file_is_refused_in_every_home_of_the_user() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        fs::create_dir(home.join("bin")).unwrap();
        symlink("bin/ls", home.join("link")).unwrap();
        let write = ToolSet::builtin().parse("sandbox_write_file", r#"{"path":"link","content":"x"}"#).unwrap();
        // The account's home, or the daemon's; the session has another one.
        for (homes, refused) in [(vec![home.clone()], true), (Vec::new(), false)] {
            let closed = DeniedPaths { homes, ..DeniedPaths::default() };
            let workspace =
                WorkspaceDir::open_without_links(&home, ReachPolicy::Workspace).unwrap().with_denied_paths(&closed);
            let checked = check_unapproved(&write, &test_context(workspace)).await;
            assert_eq!(checked.is_err_and(|error| error.kind == ToolErrorKind::ApprovalStale), refused);
        }
    }

    fn test_context(workspace: WorkspaceDir) -> ToolContext {
        ToolContext {
            workspace,
            sandbox: Arc::new(RunTree::new(LocalSandbox::new("/bin/false".into()))),
            env: vec![("HOME".into(), "/elsewhere".into())],
            writable: Vec::new(),
            network: Network::Off,
            addresses: Arc::new(PinnedAddresses::with_system_resolver()),
            limits: Limits::default(),
            redact: Arc::new(str::to_owned),
            safe_cut: Arc::new(str::floor_char_boundary),
            approved_digest: None,
        }
    }
}
