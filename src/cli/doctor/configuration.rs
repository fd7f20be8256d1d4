//! The configuration: whether the user's file and those of the project around the current directory can be used.

use super::Finding;
use crate::cli::config::projects;
use crate::config::file;
use crate::config::paths::Paths;

/// Reads the configuration as a run would.
pub(super) fn check(paths: &Paths) -> Vec<Finding> {
    const ABOUT: &str = "configuration";
    let remedy = "correct that line; `push config check` says when it can be used";
    let problem = |error: String| Finding::problem(ABOUT, error).with_remedy(remedy);
    let mut found = Vec::new();
    found.push(match file::read(&paths.config) {
        Err(error) => problem(error.to_string()),
        Ok(_) if paths.config.exists() => {
            Finding::ok(ABOUT, format!("{} can be used", paths.config.display()))
        }
        Ok(_) => Finding::ok(ABOUT, format!("{} is not there, and need not be", paths.config.display())),
    });
    found.extend(projects().err().map(|error| problem(error.to_string())));
    found
}
