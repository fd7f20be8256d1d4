//! Programs that read files, and programs that change them.

use super::assessment::ResourceAccess;
use super::finding::{CommandContext, Finding, resolve_word};
use super::level::Risk;
use super::path_context::{PathRef, PathScope};
use super::words::{has_option, has_unknown, operands, option_values};
use crate::sandbox::shell::GLOB;

/// Assesses a program that reads files; `None` for any other program.
pub(super) fn assess_reader(name: &str, args: &[String], context: &CommandContext<'_>) -> Option<Finding> {
    let (_, leading, valued) = READERS.iter().find(|(names, ..)| names.contains(&name))?;
    let mut finding = Finding::with_risk(Risk::Low);
    let given = has_option(args, "regexp", Some('e')) || has_option(args, "file", Some('f'));
    let skipped = if given { 0 } else { *leading };
    for word in operands(args, valued).into_iter().skip(skipped) {
        finding.add_read(word, context);
    }
    option_values(args).for_each(|word| finding.add_read(word, context));
    match name {
        "sort" => sort_outputs(args).into_iter().for_each(|word| {
            finding.raise(Risk::Medium, "it writes");
            finding.add_write(word, context);
        }),
        "uniq" => operands(args, valued).into_iter().skip(1).for_each(|word| finding.add_write(word, context)),
        "tree" if has_option(args, "", Some('o')) => {
            finding.raise(Risk::Medium, "it writes");
            let named = args.iter().skip_while(|arg| !has_option(std::slice::from_ref(*arg), "", Some('o'))).nth(1);
            named.into_iter().for_each(|word| finding.add_write(word, context));
        }
        "less" | "more" if args.iter().any(|arg| arg.starts_with('+')) => {
            finding.raise(Risk::Medium, "an option makes the pager run a command");
        }
        _ => {}
    }
    let runs = ["pre", "compress-program", "hostname-bin"];
    if runs.iter().any(|option| args.iter().any(|arg| arg.starts_with(&format!("--{option}")))) {
        finding.raise(Risk::High, "an option makes it run another program");
    }
    Some(finding)
}

/// Returns the files that `sort` writes: `-o f`, `-of`, `-uo f`, `--output f`, `--output=f`, `--o=f`.
fn sort_outputs(args: &[String]) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = args.iter().map(String::as_str);
    while let Some(arg) = rest.next() {
        if arg == "--" {
            break;
        }
        let (name, value) = arg.split_once('=').map_or((arg, None), |(name, value)| (name, Some(value)));
        if name.len() > 2 && "--output".starts_with(name) {
            found.extend(value.or_else(|| rest.next()));
        } else if let Some(letters) = arg.strip_prefix('-').filter(|letters| !letters.starts_with('-')) {
            // The first letter that takes a value takes the rest of the word.
            let Some((at, letter)) = letters.char_indices().find(|(_, letter)| "ktSTo".contains(*letter)) else {
                continue;
            };
            let attached = letters.get(at + 1..).filter(|value| !value.is_empty());
            let value = attached.or_else(|| rest.next());
            found.extend(value.filter(|_| letter == 'o'));
        }
    }
    found
}

/// Assesses a program that changes files; `None` for any other program.
pub(super) fn assess_writer(name: &str, args: &[String], context: &CommandContext<'_>) -> Option<Finding> {
    let mut finding = Finding::with_risk(Risk::Medium);
    match name {
        "rm" | "unlink" | "rmdir" | "shred" | "srm" => removal(name, args, context, &mut finding),
        "touch" | "mkdir" | "mkfifo" | "tee" | "truncate" | "mknod" | "split" | "csplit" => {
            operands(args, "mstrdnlb").into_iter().for_each(|word| finding.add_write(word, context));
            option_values(args).for_each(|word| finding.add_mention(word, context));
        }
        "chmod" | "chown" | "chgrp" | "chattr" | "setfacl" => permissions(args, context, &mut finding),
        "cp" | "ln" | "install" | "mv" => copy_or_move(name, args, context, &mut finding),
        "dd" => dd(args, context, &mut finding),
        "sed" | "gsed" => sed(args, context, &mut finding),
        "awk" | "gawk" | "mawk" | "nawk" => awk(args, context, &mut finding),
        "tar" | "unzip" | "zip" | "gzip" | "gunzip" | "xz" | "bzip2" | "zstd" | "7z" | "cpio" => {
            operands(args, "").into_iter().for_each(|word| finding.add_mention(word, context));
            archive(args, context, &mut finding);
        }
        "patch" => operands(args, "").into_iter().for_each(|word| finding.add_write(word, context)),
        _ => return None,
    }
    Some(finding)
}

fn removal(name: &str, args: &[String], context: &CommandContext<'_>, finding: &mut Finding) {
    let recursive = has_option(args, "recursive", Some('r')) || has_option(args, "", Some('R'));
    if args.iter().any(|arg| arg == "--no-preserve-root") {
        finding.raise(Risk::Critical, "it may remove the root directory");
    }
    for word in operands(args, "") {
        if recursive {
            add_recursive_removal(word, RemovalExtent::All, context, finding);
            continue;
        }
        finding.add_write(word, context);
        let inside = resolve_word(word, context).into_iter().filter(|path_ref| path_ref.scope == PathScope::Inside);
        if inside.into_iter().any(|path_ref| is_whole_tree(&path_ref.path)) {
            finding.raise(Risk::High, "it removes many files");
        }
    }
    if name == "shred" || name == "srm" {
        finding.raise(Risk::Critical, "it removes files irrecoverably");
    }
}

/// How much of a directory a removal covers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RemovalExtent {
    /// Everything.
    All,
    /// The files that match a search.
    Matching,
}

/// Adds the removal of everything below a path.
pub(super) fn add_recursive_removal(
    word: &str,
    extent: RemovalExtent,
    context: &CommandContext<'_>,
    finding: &mut Finding,
) {
    finding.add_write(word, context);
    for path_ref in resolve_word(word, context) {
        match path_ref.scope {
            PathScope::Inside | PathScope::Outside if context.paths.contains_home(&path_ref) => {
                finding.raise(Risk::Critical, "it removes a home directory");
            }
            PathScope::Outside if !is_scratch(&path_ref) => {
                finding.raise(Risk::Critical, "it removes files outside the workspace");
            }
            PathScope::Inside if extent == RemovalExtent::All && is_whole_tree(&path_ref.path) => {
                finding.raise(Risk::Critical, "it removes the whole workspace");
            }
            PathScope::Inside | PathScope::Outside | PathScope::Unknown => {
                finding.raise(Risk::High, "it removes whole directories");
            }
        }
    }
}

/// Returns whether a path in the workspace is the workspace itself, or matches everything in it.
pub(super) fn is_whole_tree(path: &str) -> bool {
    path.chars().all(|letter| matches!(letter, GLOB | '.' | '/'))
}

fn is_scratch(path_ref: &PathRef) -> bool {
    let below = |root: &str| path_ref.path.strip_prefix(root).is_some_and(|rest| !is_whole_tree(rest));
    below("/tmp/") || below("/var/tmp/")
}

fn permissions(args: &[String], context: &CommandContext<'_>, finding: &mut Finding) {
    let recursive = has_option(args, "recursive", Some('R'));
    let words = operands(args, "");
    let special = |mode: &str| mode.contains("+s") || mode.contains("=s") || mode.len() == 4 && !mode.starts_with('0');
    if words.first().is_some_and(|mode| special(mode)) {
        finding.raise(Risk::Critical, "it sets the set-uid or set-gid bit");
    }
    for word in words.into_iter().skip(1) {
        finding.add_write(word, context);
        for path_ref in resolve_word(word, context) {
            match path_ref.scope {
                PathScope::Outside if recursive => {
                    finding.raise(Risk::Critical, "it changes permissions outside the workspace");
                }
                PathScope::Inside | PathScope::Unknown if recursive && is_whole_tree(&path_ref.path) => {
                    finding.raise(Risk::High, "it changes the permissions of many files");
                }
                PathScope::Inside | PathScope::Outside | PathScope::Unknown => {}
            }
        }
    }
}

fn copy_or_move(name: &str, args: &[String], context: &CommandContext<'_>, finding: &mut Finding) {
    let mut words = operands(args, "tmogS");
    let directory = args.iter().skip_while(|arg| *arg != "-t").nth(1).map(String::as_str);
    let target = directory.or_else(|| words.pop());
    for word in words {
        match name {
            "mv" => finding.add_write(word, context),
            _ => finding.add_read(word, context),
        }
    }
    option_values(args).for_each(|word| finding.add_write(word, context));
    if let Some(target) = target {
        finding.add_write(target, context);
    }
}

fn dd(args: &[String], context: &CommandContext<'_>, finding: &mut Finding) {
    for arg in args {
        match arg.split_once('=') {
            Some(("of", file)) => finding.add_write(file, context),
            Some(("if", file)) => finding.add_read(file, context),
            Some(_) => {}
            None if has_unknown(arg) => finding.add_uncertainty("where it writes is known only when it runs"),
            None => {}
        }
    }
}

fn sed(args: &[String], context: &CommandContext<'_>, finding: &mut Finding) {
    let in_place = has_option(args, "in-place", Some('i'));
    let given = has_option(args, "expression", Some('e')) || has_option(args, "file", Some('f'));
    let words = operands(args, "efl");
    let files = if given { &words[..] } else { words.get(1..).unwrap_or_default() };
    for word in files {
        if in_place { finding.add_write(word, context) } else { finding.add_read(word, context) }
    }
    let script = words.first().copied().unwrap_or_default();
    let printing = |letter: char| letter.is_ascii_digit() || matches!(letter, ',' | '$' | 'p' | 'd' | 'q' | ';' | ' ');
    if !in_place && !given && script.chars().all(printing) {
        finding.risk = Some(Risk::Low);
    }
}

fn awk(args: &[String], context: &CommandContext<'_>, finding: &mut Finding) {
    let words = operands(args, "Fvf");
    words.iter().skip(1).for_each(|word| finding.add_read(word, context));
    let script = words.first().copied().unwrap_or_default();
    let busy = ["system", "getline", ">", "|", "@", "ENVIRON"];
    if !has_option(args, "file", Some('f')) && !busy.iter().any(|word| script.contains(word)) && !has_unknown(script) {
        finding.risk = Some(Risk::Low);
    }
}

fn archive(args: &[String], context: &CommandContext<'_>, finding: &mut Finding) {
    let runs = ["--to-command", "--checkpoint-action", "--use-compress", "-I", "--unzip-command", "-TT"];
    if args.iter().any(|arg| runs.iter().any(|option| arg.starts_with(option))) {
        finding.raise(Risk::High, "an option makes it run another program");
    }
    let directory = args.iter().skip_while(|arg| *arg != "-C" && *arg != "-d").nth(1);
    if let Some(directory) = directory {
        finding.add_write(directory, context);
    }
    if args.iter().any(|arg| arg == "-P" || arg == "--absolute-names") {
        finding.raise(Risk::High, "it extracts to paths that the archive chooses");
    }
    let outside = |what: &ResourceAccess| match what {
        ResourceAccess::Write(path_ref) => path_ref.scope == PathScope::Outside,
        ResourceAccess::Read(_) | ResourceAccess::Mention(_) | ResourceAccess::Git(_) | ResourceAccess::Network(_) => {
            false
        }
    };
    if finding.accesses.iter().any(|touch| outside(&touch.access)) {
        finding.raise(Risk::High, "it extracts outside the workspace");
    }
}

/// Programs that only read: their names, how many leading operands are not files, and which option letters take a
/// value.
const READERS: [(&[&str], usize, &str); 9] = [
    (
        &[
            "cat",
            "less",
            "more",
            "bat",
            "nl",
            "tac",
            "rev",
            "wc",
            "uniq",
            "diff",
            "cmp",
            "comm",
            "od",
            "xxd",
            "hexdump",
            "strings",
            "file",
            "stat",
            "ls",
            "tree",
            "du",
            "df",
            "realpath",
            "readlink",
            "md5sum",
            "sha1sum",
            "sha256sum",
            "sha512sum",
            "cksum",
            "base64",
            "base32",
            "column",
            "join",
            "paste",
            "fold",
            "fmt",
            "expand",
            "unexpand",
            "zcat",
            "lsof",
        ],
        0,
        "",
    ),
    (&["head", "tail"], 0, "nc"),
    (&["sort"], 0, "ktSTo"),
    (&["cut"], 0, "dfcb"),
    (&["grep", "egrep", "fgrep", "zgrep", "rgrep"], 1, "ABCmef"),
    (&["rg", "ag", "ack"], 1, "ABCmeftgTj"),
    (&["jq", "yq"], 1, ""),
    (&["tr"], 2, ""),
    (&["xmllint", "tidy"], 0, ""),
];
