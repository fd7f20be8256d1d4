//! The environment variables of a user's runs, and where they came from.

use std::collections::BTreeMap;
use std::fmt;

/// A user's environment variables. Their names and values never appear in a log.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    source: EnvironmentSource,
}

/// The source of an environment.
#[derive(Clone, PartialEq, Eq, Default)]
enum EnvironmentSource {
    /// A client sent it.
    #[default]
    Client,
    /// The login shell of the daemon's user.
    Login,
    /// The daemon's own environment, with the reason why the login shell could not be captured.
    Daemon(String),
}

impl Environment {
    /// Wraps the variables that a client sent.
    pub const fn new(variables: BTreeMap<String, String>) -> Self {
        Self { variables, source: EnvironmentSource::Client }
    }

    /// Wraps the variables of the user's login shell.
    pub const fn from_login_shell(variables: BTreeMap<String, String>) -> Self {
        Self { variables, source: EnvironmentSource::Login }
    }

    /// Wraps the daemon's own variables, with the reason for the fallback.
    pub const fn from_daemon(variables: BTreeMap<String, String>, why: String) -> Self {
        Self { variables, source: EnvironmentSource::Daemon(why) }
    }

    /// Returns the variables.
    pub const fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }

    /// Returns the variables by value.
    pub fn into_variables(self) -> BTreeMap<String, String> {
        self.variables
    }

    /// Returns whether a client sent it; otherwise it is a fallback.
    pub const fn is_from_client(&self) -> bool {
        matches!(self.source, EnvironmentSource::Client)
    }

    /// Returns the reason for a fallback to the daemon's environment.
    pub fn warning(&self) -> Option<&str> {
        match &self.source {
            EnvironmentSource::Client | EnvironmentSource::Login => None,
            EnvironmentSource::Daemon(why) => Some(why),
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Environment({} variables)", self.variables.len())
    }
}
