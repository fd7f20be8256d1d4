//! Where the tools of a run work, and with what.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::adapter::push::decode::Environment;
use crate::config::limits::Limits;
use crate::redact::Redactor;
use crate::sandbox::Room;
use crate::sandbox::ground::{Ground, Reach};
use crate::sandbox::tools::{self, Bench, Fault, FaultKind, Network};

/// The place of a run's tools, as its session describes it.
pub(super) struct Place {
    pub(super) cwd: PathBuf,
    pub(super) reach: Reach,
    pub(super) environment: Option<Arc<Environment>>,
    pub(super) tree: Arc<dyn Room>,
    pub(super) network: Network,
    pub(super) limits: Limits,
}

impl Place {
    /// Opens the workspace and lays everything out.
    pub(super) async fn bench(&self, redactor: &Redactor) -> Result<Bench, Fault> {
        let (cwd, reach) = (self.cwd.clone(), self.reach);
        let unavailable = |why: String| Fault::new(FaultKind::SandboxUnavailable, why);
        let opened = tokio::task::spawn_blocking(move || Ground::open(&cwd, reach)).await;
        let ground = match opened {
            Ok(opened) => opened.map_err(|error| unavailable(error.to_string()))?,
            Err(_) => return Err(unavailable("the workspace could not be opened".to_owned())),
        };
        let redactor = redactor.clone();
        Ok(Bench {
            ground,
            tree: Arc::clone(&self.tree),
            env: environment(self.environment.as_deref()),
            network: self.network,
            limits: tools::Limits {
                step: self.limits.step,
                result_bytes: self.limits.result_bytes,
                scan_bytes: self.limits.read_bytes,
                ..tools::Limits::default()
            },
            safe: Arc::new(move |text| redactor.text(text).into_owned()),
            bound: None,
        })
    }
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
