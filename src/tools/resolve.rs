//! Resolves the links in the paths of a call, so that a link cannot make it look harmless.

use std::path::Path;

use super::bench::{Bench, Site};
use super::edit::Edit;
use super::fault::{Fault, FaultKind};
use super::request::Request;
use crate::sandbox::ground::Reach;

impl Request {
    /// Returns the call with its paths resolved; `None` if no path contains a link.
    ///
    /// The result depends on the current state of the workspace.
    pub async fn resolved(&self, bench: &Bench) -> Result<Option<Self>, Fault> {
        let mut real = self.clone();
        let paths = self.named_paths();
        if paths.is_empty() || bench.ground.reach() == Reach::Anywhere {
            return Ok(None);
        }
        let look = move |site: &Site| {
            let ground = &site.ground;
            let lead = |path: &String| (ground.plain(Path::new(path)), ground.real(Path::new(path)));
            Ok(paths.iter().map(lead).collect::<Vec<_>>())
        };
        let lead = bench.away(look).await?;
        if lead.iter().all(|(plain, real)| plain == real) {
            return Ok(None);
        }
        for (path, (_, leads_to)) in real.paths().into_iter().zip(lead) {
            *path = leads_to.to_string_lossy().into_owned();
        }
        Ok(Some(real))
    }

    /// Returns the file paths of the call.
    pub(super) fn named_paths(&self) -> Vec<String> {
        self.clone().paths().into_iter().map(|path| path.to_owned()).collect()
    }

    /// The file paths of the call.
    fn paths(&mut self) -> Vec<&mut String> {
        match self {
            Self::Read(args) => vec![&mut args.path],
            Self::List(args) => args.path.iter_mut().collect(),
            Self::Search(args) => args.path.iter_mut().collect(),
            Self::Write(args) => vec![&mut args.path],
            Self::Edit(Edit::Replace { path, .. }) => vec![path],
            Self::Edit(Edit::Patch(patch)) => patch.files.iter_mut().map(|file| &mut file.path).collect(),
            Self::Diff(args) => args.paths.iter_mut().flatten().collect(),
            Self::Commit(args) => args.paths.iter_mut().flatten().collect(),
            Self::Exec(_) | Self::Status(_) | Self::Fetch(_) => Vec::new(),
        }
    }
}

/// Refuses a call with a denied path, before an approval is requested.
pub(super) async fn check_closed(request: &Request, bench: &Bench) -> Result<(), Fault> {
    may_reach(request.named_paths(), bench).await
}

/// Refuses paths that are denied, by name or through links.
pub(super) async fn may_reach(paths: Vec<String>, bench: &Bench) -> Result<(), Fault> {
    if paths.is_empty() {
        return Ok(());
    }
    bench
        .away(move |site| Ok(paths.iter().try_for_each(|path| site.ground.may_reach(Path::new(path)))?))
        .await
}

/// Refuses an unapproved change through a link to a path that itself needs an approval.
pub(super) async fn check_unasked(request: &Request, bench: &Bench) -> Result<(), Fault> {
    let Some(real) = request.resolved(bench).await? else { return Ok(()) };
    let place = bench.path_context();
    let risk = |request: &Request| request.judge(request.wish(), &place).risk;
    if risk(&real) <= risk(request) {
        return Ok(());
    }
    let message = "this path is a link to a file that needs an approval; name the file itself";
    Err(Fault::new(FaultKind::ApprovalStale, message))
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use super::super::bench::floor;
    use super::super::{Addresses, Limits, Network, parse};
    use super::*;
    use crate::sandbox::ground::{ClosedPaths, Ground};
    use crate::sandbox::{Local, RunTree};

    #[tokio::test]
    async fn a_link_to_a_start_up_file_is_refused_in_every_home_of_the_user() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        fs::create_dir(home.join("bin")).unwrap();
        symlink("bin/ls", home.join("link")).unwrap();
        let write = parse("sandbox_write_file", r#"{"path":"link","content":"x"}"#).unwrap();
        // The account's home, or the daemon's; the session has another one.
        for (homes, refused) in [(vec![home.clone()], true), (Vec::new(), false)] {
            let closed = ClosedPaths { homes, ..ClosedPaths::default() };
            let ground = Ground::open_without_links(&home, Reach::Workspace).unwrap().closing(&closed);
            let checked = check_unasked(&write, &bench(ground)).await;
            assert_eq!(checked.is_err_and(|fault| fault.kind == FaultKind::ApprovalStale), refused);
        }
    }

    fn bench(ground: Ground) -> Bench {
        Bench {
            ground,
            tree: Arc::new(RunTree::new(Local::new("/bin/false".into()))),
            env: vec![("HOME".into(), "/elsewhere".into())],
            writable: Vec::new(),
            network: Network::Off,
            addresses: Arc::new(Addresses::of_system()),
            limits: Limits::default(),
            safe: Arc::new(str::to_owned),
            cut: Arc::new(floor),
            bound: None,
        }
    }
}
