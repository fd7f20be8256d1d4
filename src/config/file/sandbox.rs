//! The section `[sandbox]` as written in the file.

use serde::Deserialize;
use toml::Spanned;

use super::LocatedError;
use super::raw::{invalid_value, one_of, positive};
use crate::config::sandbox::{SandboxKind, SandboxMechanism, SandboxSettings};
use crate::config::settings::Switch;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSandbox {
    provider: Option<Spanned<String>>,
    mechanism: Option<Spanned<String>>,
    #[serde(default)]
    network: bool,
    #[serde(default)]
    unix_sockets: bool,
    #[serde(default)]
    hide: Vec<Spanned<String>>,
    #[serde(default)]
    writable: Vec<Spanned<String>>,
    #[serde(default)]
    readable: Vec<Spanned<String>>,
    memory_mb: Option<Spanned<u64>>,
    processes: Option<Spanned<u64>>,
}

const MEGABYTE: u64 = 1024 * 1024;

impl RawSandbox {
    pub(super) fn into_settings(self) -> Result<SandboxSettings, LocatedError> {
        let provider = self.provider.map_or(Ok(SandboxKind::default()), |written| {
            let expected = || invalid_value(&written, "sandbox.provider", &one_of(SandboxKind::ALL));
            SandboxKind::parse(written.get_ref()).ok_or_else(expected)
        });
        let mechanism = self.mechanism.map_or(Ok(SandboxMechanism::default()), |written| {
            let expected = || invalid_value(&written, "sandbox.mechanism", &one_of(SandboxMechanism::ALL));
            SandboxMechanism::parse(written.get_ref()).ok_or_else(expected)
        });
        let switch = |on: bool| if on { Switch::On } else { Switch::Off };
        let memory = self.memory_mb.map(|memory| positive("sandbox.memory_mb", memory)).transpose()?;
        Ok(SandboxSettings {
            provider: provider?,
            mechanism: mechanism?,
            network: switch(self.network),
            unix_sockets: switch(self.unix_sockets),
            hide: check_paths("sandbox.hide", self.hide)?,
            writable: check_paths("sandbox.writable", self.writable)?,
            readable: check_paths("sandbox.readable", self.readable)?,
            memory: memory.map(|memory| memory.saturating_mul(MEGABYTE)),
            processes: self.processes.map(|number| positive("sandbox.processes", number)).transpose()?,
        })
    }
}

/// Checks that paths are absolute or relative to the home, so that they do not depend on the working directory.
fn check_paths(key: &str, written: Vec<Spanned<String>>) -> Result<Vec<String>, LocatedError> {
    let check_path = |path: Spanned<String>| {
        let text = path.get_ref();
        let fixed = text.starts_with('/') || text.starts_with("~/");
        let plain = !text.contains(char::is_control) && text.split('/').all(|part| part != "..");
        if fixed && plain && text.trim_end_matches('/').len() > 1 {
            return Ok(path.into_inner());
        }
        Err(invalid_value(&path, key, "an absolute path or one that begins with ~/, without .."))
    };
    written.into_iter().map(check_path).collect()
}
