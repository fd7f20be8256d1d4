//! Checks the user's configuration file and those of the project in the current directory.

use super::Finding;
use crate::cli::config::projects;
use crate::cli::models::read_config;
use crate::config::paths::Paths;

/// The subject of the findings.
pub(super) const ABOUT: &str = "configuration";

/// Reads the configuration like a run does.
pub(super) fn check(paths: &Paths) -> Vec<Finding> {
    let remedy = "correct that line; `push config check` checks it again";
    let problem = |error: String| Finding::problem(ABOUT, error).with_remedy(remedy);
    let mut found = Vec::new();
    found.push(match read_config(&paths.config) {
        Err(error) => problem(error.to_string()),
        Ok(_) if paths.config.exists() => Finding::ok(ABOUT, format!("{} is valid", paths.config.display())),
        Ok(_) => Finding::ok(ABOUT, format!("{} does not exist; the defaults apply", paths.config.display())),
    });
    found.extend(projects().err().map(|error| problem(error.to_string())));
    found
}
