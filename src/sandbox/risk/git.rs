//! Assesses `git`: read-only subcommands, changes of the repository, and irreversible changes.

use super::finding::{CommandContext, Finding};
use super::level::Risk;
use super::network::host_of;
use super::words::{has_option, has_unknown, operands};

/// Assesses the arguments of `git`.
pub(super) fn assess(args: &[String], context: &CommandContext<'_>) -> Finding {
    let mut finding = Finding::with_risk(Risk::Medium);
    let Some((verb, rest)) = subcommand(args, context, &mut finding) else { return finding };
    if has_unknown(verb) {
        finding.add_uncertainty("what git does is known only when it runs");
        return finding;
    }
    if is_read_only(verb, rest) {
        let has_side_effect = |arg: &String| SIDE_EFFECT_OPTIONS.iter().any(|option| arg.starts_with(option));
        if rest.iter().any(has_side_effect) {
            finding.raise(Risk::High, "an option makes git run a program or write a file");
        } else if verb != "difftool" && finding.uncertainty.is_none() {
            finding.risk = Some(Risk::Low);
        }
        operands(rest, "").into_iter().for_each(|word| finding.add_mention(word, context));
        return finding;
    }
    operands(rest, "m").into_iter().for_each(|word| finding.add_mention(word, context));
    if !NEUTRAL_SUBCOMMANDS.contains(&verb) {
        finding.add_git(std::iter::once(verb).chain(rest.iter().map(String::as_str)).collect::<Vec<_>>().join(" "));
    }
    add_network_access(verb, rest, &mut finding);
    raise_for_damage(verb, rest, &mut finding);
    finding
}

/// Finds the subcommand after the global options.
fn subcommand<'a>(
    args: &'a [String],
    context: &CommandContext<'_>,
    finding: &mut Finding,
) -> Option<(&'a str, &'a [String])> {
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        match arg.as_str() {
            "-C" => {
                if let Some(directory) = args.get(at + 1) {
                    finding.add_mention(directory, context);
                }
                at += 2;
            }
            "--no-pager" | "--literal-pathspecs" | "--no-optional-locks" | "-P" => at += 1,
            "--version" | "--help" | "-v" | "-h" => return None,
            option if option.starts_with('-') => {
                finding.raise(Risk::High, "an option changes the settings of git");
                finding.add_uncertainty("an option changes the settings of git");
                at += 1;
            }
            verb => return Some((verb, args.get(at + 1..).unwrap_or_default())),
        }
    }
    None
}

fn is_read_only(verb: &str, rest: &[String]) -> bool {
    let words = operands(rest, "");
    let only = |known: &[&str]| rest.iter().all(|arg| known.contains(&arg.as_str()));
    match verb {
        "branch" => only(&["-a", "-r", "-v", "-vv", "--all", "--list", "--show-current", "--remotes"]),
        "tag" => rest.is_empty() || words.is_empty() && only(&["-l", "--list", "-n"]),
        "remote" => only(&["-v", "--verbose", "show", "get-url", "origin"]) && !rest.contains(&"show".to_owned()),
        "stash" => matches!(words.first(), Some(&("list" | "show"))),
        "config" => {
            let reads = |arg: &String| matches!(arg.as_str(), "--get" | "--list" | "-l" | "--get-all");
            let is_plain = rest.iter().all(|arg| !arg.starts_with('-'));
            let one_name = is_plain
                && match &words[..] {
                    // The name of a setting contains a dot; a word without one is a subcommand.
                    [name] => name.contains('.') || *name == "list",
                    ["get", _] => true,
                    _ => false,
                };
            rest.iter().any(reads) || one_name
        }
        "reflog" => matches!(words.first(), None | Some(&"show")),
        "submodule" => rest.is_empty() || matches!(words.first(), Some(&("list" | "status"))),
        "worktree" => matches!(words.first(), Some(&("list" | "status"))),
        "notes" => matches!(words.first(), Some(&("list" | "show"))),
        verb => READ_ONLY_SUBCOMMANDS.contains(&verb),
    }
}

/// Adds network access for subcommands that connect to other hosts.
fn add_network_access(verb: &str, rest: &[String], finding: &mut Finding) {
    let words = operands(rest, "");
    let far = match verb {
        "push" | "pull" | "fetch" | "clone" | "ls-remote" | "send-email" | "archive" => {
            verb != "archive" || has_option(rest, "remote", None)
        }
        "remote" => matches!(words.first(), Some(&("update" | "show" | "prune"))),
        "submodule" => matches!(words.first(), Some(&("update" | "add" | "foreach" | "sync"))),
        "lfs" | "svn" | "p4" => true,
        _ => false,
    };
    if far {
        finding.add_network(words.iter().find_map(|word| host_of(word)));
        finding.raise(Risk::High, "git connects to another host");
    }
}

fn raise_for_damage(verb: &str, rest: &[String], finding: &mut Finding) {
    let words = operands(rest, "");
    let first = words.first().copied().unwrap_or_default();
    let forced = has_option(rest, "force", Some('f')) || rest.iter().any(|arg| arg.starts_with("--force"));
    let takes_back = words.iter().skip(1).any(|word| word.starts_with(['+', ':']));
    let gone =
        has_option(rest, "delete", Some('d')) || has_option(rest, "mirror", None) || has_option(rest, "prune", None);
    match verb {
        "push" if forced || takes_back || gone => {
            finding.raise(Risk::Critical, "it rewrites or deletes published history");
        }
        "filter-branch" | "filter-repo" | "replace" => {
            finding.raise(Risk::Critical, "it rewrites the history");
        }
        "update-ref" if has_option(rest, "", Some('d')) => finding.raise(Risk::Critical, "it removes a branch"),
        "reflog" if matches!(first, "expire" | "delete") => {
            finding.raise(Risk::Critical, "it removes data that is needed for recovery");
        }
        "gc" | "prune" if verb == "prune" || has_option(rest, "prune", None) => {
            finding.raise(Risk::Critical, "it removes data that is needed for recovery");
        }
        "reset"
            if has_option(rest, "hard", None) || has_option(rest, "merge", None) || has_option(rest, "keep", None) =>
        {
            finding.raise(Risk::High, "it discards changes");
        }
        "checkout" | "switch"
            if forced || has_option(rest, "discard-changes", None) || rest.contains(&"--".to_owned()) =>
        {
            finding.raise(Risk::High, "it discards changes");
        }
        "checkout" if first.starts_with('.') => finding.raise(Risk::High, "it discards changes"),
        "restore" | "clean" | "rebase" | "filter" | "config" | "remote" | "submodule" | "update-ref"
        | "symbolic-ref" | "bisect" | "difftool" | "mergetool" | "daemon" | "credential" | "hook" | "maintenance"
        | "instaweb" | "read-tree" => {
            finding.raise(Risk::High, "it changes the repository beyond a commit");
        }
        "branch"
            if has_option(rest, "", Some('D'))
                || has_option(rest, "force", Some('f'))
                || has_option(rest, "delete", None) =>
        {
            finding.raise(Risk::High, "it removes or moves a branch");
        }
        "tag" if has_option(rest, "delete", Some('d')) || forced => {
            finding.raise(Risk::High, "it removes or moves a tag")
        }
        "stash" if matches!(first, "drop" | "clear") => finding.raise(Risk::High, "it discards changes"),
        "worktree" if first == "remove" => finding.raise(Risk::High, "it removes a directory"),
        "rm" if has_option(rest, "", Some('r')) => finding.raise(Risk::High, "it removes whole directories"),
        _ => {}
    }
    if matches!(verb, "rebase" | "bisect" | "submodule") && rest.iter().any(|arg| EXEC_OPTIONS.contains(&arg.as_str()))
    {
        finding.add_uncertainty("an option makes git run a command");
    }
}

const EXEC_OPTIONS: [&str; 6] = ["-x", "--exec", "run", "foreach", "-i", "--interactive"];

const READ_ONLY_SUBCOMMANDS: [&str; 22] = [
    "status",
    "log",
    "diff",
    "show",
    "rev-parse",
    "ls-files",
    "ls-tree",
    "blame",
    "annotate",
    "describe",
    "shortlog",
    "grep",
    "cat-file",
    "merge-base",
    "name-rev",
    "count-objects",
    "rev-list",
    "for-each-ref",
    "show-ref",
    "diff-tree",
    "check-ignore",
    "whatchanged",
];
const SIDE_EFFECT_OPTIONS: [&str; 10] = [
    "--output",
    "--ext-diff",
    "--textconv",
    "-O",
    "--open-files",
    "--exec",
    "--upload-pack",
    "--filters",
    "--no-index",
    "--contents",
];
/// Subcommands that are not read-only and do not change the repository. An unlisted subcommand may be an alias for
/// anything, so it counts as a change.
const NEUTRAL_SUBCOMMANDS: [&str; 12] = [
    "archive",
    "bundle",
    "cherry",
    "check-attr",
    "diff-files",
    "diff-index",
    "format-patch",
    "fsck",
    "help",
    "ls-remote",
    "range-diff",
    "version",
];
