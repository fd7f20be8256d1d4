//! How a command uses git: whether it changes the repository, and whether other programs run with it.
//!
//! While a command may write the git directory, any program in it could plant a file that the user's own git
//! trusts. So the command may contain only programs that start no other one, and uses of git that run no program of
//! the caller's choice.

use std::path::Path;

use super::context::ToolContext;
use super::exec;
use crate::sandbox::risk::Risk;
use crate::sandbox::risk::{self, Escalation, Operation, ResourceAccess};
use crate::sandbox::shell::Limits;

/// How a command uses git.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct GitUse {
    /// The arguments of every use of git that changes the repository.
    pub(super) changes: Vec<String>,
    /// Whether it contains only git and programs that start no other one.
    pub(super) runs_only_git: bool,
}

impl GitUse {
    /// Assesses a command.
    pub(super) fn from_command(args: &exec::Args, context: &ToolContext) -> Self {
        let (cwd, path_context) = (args.cwd.as_deref(), context.path_context());
        let assessment =
            risk::assess_command(&args.command, cwd, Escalation::default(), &path_context, Limits::default());
        let runs_only_git =
            assessment.uncertainty.is_none() && assessment.operations.iter().all(starts_no_other_program);
        let accesses = assessment.operations.into_iter().flat_map(|part| part.accesses);
        let changes = accesses.filter_map(|assessed| match assessed.access {
            ResourceAccess::Git(words) => Some(words),
            ResourceAccess::Read(_)
            | ResourceAccess::Write(_)
            | ResourceAccess::Mention(_)
            | ResourceAccess::Network(_) => None,
        });
        Self { changes: changes.collect(), runs_only_git }
    }
}

/// Programs that start no other one.
const LEAF_PROGRAMS: [&str; 27] = [
    ":", "[", "basename", "cat", "cd", "cp", "cut", "date", "dirname", "echo", "exit", "false", "grep", "head", "ls",
    "mkdir", "mv", "printf", "pwd", "rm", "set", "sort", "tail", "test", "touch", "true", "wc",
];

fn starts_no_other_program(part: &Operation) -> bool {
    let Some(command) = &part.command else { return part.total_risk() <= Risk::Medium };
    match command.words.first().map(String::as_str) {
        Some("git") => {
            let changes = part.accesses.iter().any(|assessed| matches!(assessed.access, ResourceAccess::Git(_)));
            changes || part.risk == Risk::Low
        }
        // They write in the workspace, and not in its git directory.
        Some(name) => LEAF_PROGRAMS.contains(&name) && part.total_risk() <= Risk::Medium,
        None => part.total_risk() <= Risk::Medium,
    }
}

/// Returns whether a use of git needs `outside`: it writes the configuration, creates repositories or working
/// trees, leaves steps to execute, runs a program that its arguments name, or creates objects and refs without
/// checking their content.
pub(super) fn needs_outside(words: &str) -> bool {
    let mut words = words.split_whitespace();
    let subcommand = words.next().unwrap_or_default();
    let rest: Vec<&str> = words.collect();
    let has = |known: &[&str]| rest.iter().any(|word| known.contains(word));
    let begins = |known: &[&str]| rest.iter().any(|word| known.iter().any(|known| word.starts_with(known)));
    match subcommand {
        "am" | "config" | "rebase" | "replace" | "sparse-checkout" | "submodule" | "worktree" => true,
        "bisect" | "credential" | "daemon" | "difftool" | "filter-branch" | "filter-repo" | "for-each-repo"
        | "hook" | "instaweb" | "maintenance" | "mergetool" | "p4" | "send-email" | "svn" => true,
        "commit-tree" | "fast-import" | "hash-object" | "mktree" | "read-tree" | "symbolic-ref" | "update-index"
        | "update-ref" => true,
        // The remote program may run on this machine; long options may be abbreviated.
        "archive" | "clone" | "fetch" | "ls-remote" | "pull" | "push"
            if begins(&["--upl", "--rece", "--exe"]) || (subcommand == "clone" && begins(&["-u"])) =>
        {
            true
        }
        // In the workspace itself; a repository in a subdirectory is an ordinary directory.
        "init" => init_directory(&rest).is_none_or(|named| Path::new(named).iter().all(|part| part == ".")),
        "lfs" => has(&["install", "uninstall"]),
        "remote" => has(&["add", "rename", "remove", "rm", "set-url", "set-branches"]),
        "branch" => {
            has(&["-m", "-M", "-c", "-C", "--move", "--copy", "-u", "--unset-upstream", "--edit-description"])
                || begins(&["--set-upstream-to"])
        }
        _ => false,
    }
}

/// The directory argument of `git init`.
fn init_directory<'a>(args: &[&'a str]) -> Option<&'a str> {
    const WITH_VALUE: [&str; 6] =
        ["-b", "--initial-branch", "--object-format", "--ref-format", "--separate-git-dir", "--template"];
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if *arg == "--" {
            return args.next().copied();
        } else if !arg.starts_with('-') {
            return Some(arg);
        } else if WITH_VALUE.contains(arg) {
            args.next();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_write_configuration_or_leave_steps_to_execute_need_outside() {
        for words in [
            "rebase main",
            "rebase --abort",
            "submodule add ./x",
            "worktree add ../x",
            "config user.name x",
            "am x.patch",
            "init",
            "init -q",
            "init -b main",
            "init -q --initial-branch main --template t .",
            "init --initial-branch=main ./",
            "init -bmain -- .",
            "update-ref HEAD abc",
            "fetch --upload-pack=./x .",
            "clone -u ./x . sub",
            "bisect run ./x",
            "remote add origin x",
            "branch -m old new",
            "branch --set-upstream-to=origin/x",
            "sparse-checkout set x",
        ] {
            assert!(needs_outside(words), "{words}");
        }
        for words in [
            "add -A",
            "commit -m config",
            "stash",
            "stash pop",
            "checkout -b topic",
            "switch main",
            "branch topic",
            "branch -d topic",
            "merge topic",
            "tag v1",
            "cherry-pick abc",
            "reset --hard",
            "remote prune origin",
            "init sub",
            "init -b main sub",
            "init --object-format sha256 -q ./sub",
            "push -u origin topic",
            "fetch --recurse-submodules=no",
            "",
        ] {
            assert!(!needs_outside(words), "{words}");
        }
    }
}
