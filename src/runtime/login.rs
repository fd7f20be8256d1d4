//! The environment of the owner's login shell, for sessions whose clients come over the network and can send none.
//!
//! It is captured once, when the first such session needs it, and again after a restart or a reload. Variables whose names
//! are those of secrets are left out unless the configuration names them. Where the shell cannot be asked, the daemon's own
//! environment takes its place, and runs say so.

#[cfg(unix)]
#[path = "login/unix.rs"]
mod os;
#[cfg(windows)]
#[path = "login/windows.rs"]
mod os;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Mutex;
use tracing::{info, warn};

use crate::protocol::push::decode::Environment;
use crate::redact;

/// The environment of the owner's login shell.
#[derive(Debug)]
pub struct LoginEnvironment {
    /// Where the shell is started.
    home: PathBuf,
    captured: Mutex<Option<Arc<Environment>>>,
}

impl LoginEnvironment {
    /// Knows that the shell is started in the directory that holds the daemon's own; nothing is captured yet.
    pub fn new(own: &Path) -> Self {
        Self { home: own.parent().unwrap_or(own).to_owned(), captured: Mutex::new(None) }
    }

    /// Returns the environment, captured now if that was not done before; `kept` are names of secrets that stay in it.
    pub async fn current(&self, kept: &[String]) -> Arc<Environment> {
        let mut captured = self.captured.lock().await;
        match &*captured {
            Some(environment) => Arc::clone(environment),
            None => Arc::clone(captured.insert(self.capture(kept).await)),
        }
    }

    /// Captures the environment anew.
    pub async fn reload(&self, kept: &[String]) -> Arc<Environment> {
        let environment = self.capture(kept).await;
        *self.captured.lock().await = Some(Arc::clone(&environment));
        environment
    }

    /// Asks the shell; whoever waits for the answer may leave, and the shell ends all the same.
    async fn capture(&self, kept: &[String]) -> Arc<Environment> {
        let home = self.home.clone();
        let asked = tokio::spawn(async move { os::ask_shell(&home).await }).await;
        let asked =
            asked.unwrap_or_else(|_| Err("the daemon failed while it asked the login shell".to_owned()));
        Arc::new(match asked {
            Ok(variables) => {
                let variables = select(variables, kept);
                info!(variables = variables.len(), "captured the environment of the login shell");
                Environment::of_login(variables)
            }
            Err(why) => {
                warn!(why, "the login shell cannot be asked for its environment");
                let own = select(std::env::vars_os(), kept);
                Environment::of_daemon(own, format!("{why}; the environment of the daemon is used instead"))
            }
        })
    }
}

/// Returns what of these variables sessions get: no secrets but those that are kept, and nothing of the shell itself.
fn select(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    kept: &[String],
) -> BTreeMap<String, String> {
    let mut room = TOTAL_BYTES;
    let texts = variables
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let selected = texts.filter(|(name, value)| {
        let secret = redact::is_secret_variable(name, value) && !kept.contains(name);
        let of_shell = ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str());
        let own = name.starts_with("PUSH_") || name.starts_with("PUSHD_");
        let size = name.len() + value.len();
        let wanted = !secret && !of_shell && !own && !name.is_empty() && size <= room;
        room -= if wanted { size } else { 0 };
        wanted
    });
    selected.take(VARIABLES).collect()
}

/// How many variables an environment has at most, and how many bytes in all.
const VARIABLES: usize = 4_096;
const TOTAL_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_what_describes_the_shell_stay_behind() {
        let given = [
            ("HOME", "/home/ann"),
            ("GIT_AUTHOR_NAME", "Ann"),
            ("GITHUB_TOKEN", "ghp_0123456789"),
            ("OPENAI_API_KEY", "sk-0123456789"),
            ("NPM_TOKEN", "npm_0123456789"),
            ("DATABASE_URL", "postgres://ann:longpassword@db/x"),
            ("SSH_AUTH_SOCK", "/tmp/agent"),
            ("PWD", "/home/ann"),
            ("_", "/usr/bin/env"),
            ("PUSH_HOME", "/elsewhere"),
        ];
        let variables = given.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let selected = select(variables, &["NPM_TOKEN".to_owned()]);
        let names: Vec<_> = selected.keys().map(String::as_str).collect();
        assert_eq!(names, ["GIT_AUTHOR_NAME", "HOME", "NPM_TOKEN", "SSH_AUTH_SOCK"]);
    }

    #[test]
    fn an_environment_is_bounded() {
        let many =
            (0..2 * VARIABLES).map(|number| (OsString::from(format!("V{number}")), OsString::from("x")));
        assert_eq!(select(many, &[]).len(), VARIABLES);
        let long = "x".repeat(TOTAL_BYTES / 2);
        let large = (0..9).map(|number| (OsString::from(format!("V{number}")), OsString::from(&long)));
        assert_eq!(select(large, &[]).len(), 1);
    }
}
