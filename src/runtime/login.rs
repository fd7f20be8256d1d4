//! The environment of the owner's login shell, for sessions whose clients sent none.
//!
//! It is captured once, when the first such session needs it, and again after a restart or a reload. Variables with
//! the names of secrets are left out unless the configuration lists them. If the shell cannot be queried, the
//! daemon's own environment is used instead, and runs report that.

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

use crate::kernel::environment::Environment;
use crate::redact;

/// The environment of the owner's login shell.
#[derive(Debug)]
pub struct LoginEnvironment {
    /// The working directory of the shell.
    home: PathBuf,
    captured: Mutex<Option<Arc<Environment>>>,
}

impl LoginEnvironment {
    /// Creates it; the shell starts in the parent of the daemon's own directory. Captures nothing yet.
    pub fn new(own: &Path) -> Self {
        Self { home: own.parent().unwrap_or(own).to_owned(), captured: Mutex::new(None) }
    }

    /// Returns the environment, captured on first use; `secret_names` are the secret variables that are retained.
    pub async fn current(&self, secret_names: &[String]) -> Arc<Environment> {
        let mut captured = self.captured.lock().await;
        match &*captured {
            Some(environment) => Arc::clone(environment),
            None => Arc::clone(captured.insert(self.capture(secret_names).await)),
        }
    }

    /// Captures the environment again.
    pub async fn reload(&self, secret_names: &[String]) -> Arc<Environment> {
        let environment = self.capture(secret_names).await;
        *self.captured.lock().await = Some(Arc::clone(&environment));
        environment
    }

    /// Queries the shell in a task of its own: if the caller is cancelled, the shell still ends.
    async fn capture(&self, secret_names: &[String]) -> Arc<Environment> {
        let home = self.home.clone();
        let output = tokio::spawn(async move { os::query_shell(&home).await }).await;
        let output = output.unwrap_or_else(|_| Err("the daemon panicked while it queried the login shell".to_owned()));
        Arc::new(match output {
            Ok(variables) => {
                let variables = select_variables(variables, secret_names);
                info!(variables = variables.len(), "captured the environment of the login shell");
                Environment::from_login_shell(variables)
            }
            Err(why) => {
                warn!(why, "cannot query the environment of the login shell");
                let own = select_variables(std::env::vars_os(), secret_names);
                Environment::from_daemon(own, format!("{why}; the environment of the daemon is used instead"))
            }
        })
    }
}

/// Returns the variables for sessions: without secrets other than those in `secret_names`, and without the shell's own state.
fn select_variables(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    secret_names: &[String],
) -> BTreeMap<String, String> {
    let mut bytes_left = MAX_TOTAL_BYTES;
    let texts =
        variables.into_iter().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let selected = texts.filter(|(name, value)| {
        let secret = redact::is_secret_variable(name, value) && !secret_names.contains(name);
        let of_shell = ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str());
        let own = name.starts_with("PUSH_") || name.starts_with("PUSHD_");
        let size = name.len() + value.len();
        let included = !secret && !of_shell && !own && !name.is_empty() && size <= bytes_left;
        bytes_left -= if included { size } else { 0 };
        included
    });
    selected.take(MAX_VARIABLES).collect()
}

/// The maximum number of variables, and their maximum size in bytes together.
const MAX_VARIABLES: usize = 4_096;
const MAX_TOTAL_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_shell_state_are_left_out() {
        let variables = [
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
        let variables = variables.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let selected = select_variables(variables, &["NPM_TOKEN".to_owned()]);
        let names: Vec<_> = selected.keys().map(String::as_str).collect();
        assert_eq!(names, ["GIT_AUTHOR_NAME", "HOME", "NPM_TOKEN", "SSH_AUTH_SOCK"]);
    }

    #[test]
    fn an_environment_is_bounded() {
        let many = (0..2 * MAX_VARIABLES).map(|number| (OsString::from(format!("V{number}")), OsString::from("x")));
        assert_eq!(select_variables(many, &[]).len(), MAX_VARIABLES);
        let long = "x".repeat(MAX_TOTAL_BYTES / 2);
        let large = (0..9).map(|number| (OsString::from(format!("V{number}")), OsString::from(&long)));
        assert_eq!(select_variables(large, &[]).len(), 1);
    }
}
