//! Programs that read files, and programs that change them.

use super::finding::{Finding, Scene, spots};
use super::level::Risk;
use super::part::What;
use super::place::{Spot, Zone};
use super::words::{has, is_open, operands, values};
use crate::sandbox::shell::GLOB;

/// Assesses a program that reads files; `None` for any other program.
pub(super) fn reader(name: &str, args: &[String], scene: &Scene<'_>) -> Option<Finding> {
    let (_, leading, valued) = READERS.iter().find(|(names, ..)| names.contains(&name))?;
    let mut finding = Finding::of(Risk::Low);
    let given = has(args, "regexp", Some('e')) || has(args, "file", Some('f'));
    let skipped = if given { 0 } else { *leading };
    for word in operands(args, valued).into_iter().skip(skipped) {
        finding.read(word, scene);
    }
    values(args).for_each(|word| finding.read(word, scene));
    match name {
        "sort" => outputs(args).into_iter().for_each(|word| {
            finding.raise(Risk::Medium, "it writes");
            finding.write(word, scene);
        }),
        "uniq" => operands(args, valued).into_iter().skip(1).for_each(|word| finding.write(word, scene)),
        "tree" if has(args, "", Some('o')) => {
            finding.raise(Risk::Medium, "it writes");
            let named = args.iter().skip_while(|arg| !has(std::slice::from_ref(*arg), "", Some('o'))).nth(1);
            named.into_iter().for_each(|word| finding.write(word, scene));
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
fn outputs(args: &[String]) -> Vec<&str> {
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
            let Some((at, letter)) = letters.char_indices().find(|(_, letter)| "ktSTo".contains(*letter))
            else {
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
pub(super) fn writer(name: &str, args: &[String], scene: &Scene<'_>) -> Option<Finding> {
    let mut finding = Finding::of(Risk::Medium);
    match name {
        "rm" | "unlink" | "rmdir" | "shred" | "srm" => removal(name, args, scene, &mut finding),
        "touch" | "mkdir" | "mkfifo" | "tee" | "truncate" | "mknod" | "split" | "csplit" => {
            operands(args, "mstrdnlb").into_iter().for_each(|word| finding.write(word, scene));
            values(args).for_each(|word| finding.name(word, scene));
        }
        "chmod" | "chown" | "chgrp" | "chattr" | "setfacl" => rights(args, scene, &mut finding),
        "cp" | "ln" | "install" | "mv" => copies(name, args, scene, &mut finding),
        "dd" => disk(args, scene, &mut finding),
        "sed" | "gsed" => sed(args, scene, &mut finding),
        "awk" | "gawk" | "mawk" | "nawk" => awk(args, scene, &mut finding),
        "tar" | "unzip" | "zip" | "gzip" | "gunzip" | "xz" | "bzip2" | "zstd" | "7z" | "cpio" => {
            operands(args, "").into_iter().for_each(|word| finding.name(word, scene));
            archive(args, scene, &mut finding);
        }
        "patch" => operands(args, "").into_iter().for_each(|word| finding.write(word, scene)),
        _ => return None,
    }
    Some(finding)
}

fn removal(name: &str, args: &[String], scene: &Scene<'_>, finding: &mut Finding) {
    let recursive = has(args, "recursive", Some('r')) || has(args, "", Some('R'));
    if args.iter().any(|arg| arg == "--no-preserve-root") {
        finding.raise(Risk::Critical, "it may remove the root directory");
    }
    for word in operands(args, "") {
        if recursive {
            removes_below(word, Share::All, scene, finding);
            continue;
        }
        finding.write(word, scene);
        let inside = spots(word, scene).into_iter().filter(|spot| spot.zone == Zone::Inside);
        if inside.into_iter().any(|spot| is_everything(&spot.path)) {
            finding.raise(Risk::High, "it removes many files");
        }
    }
    if name == "shred" || name == "srm" {
        finding.raise(Risk::Critical, "it removes files irrecoverably");
    }
}

/// How much of a directory a removal covers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// Everything.
    All,
    /// The files that match a search.
    Some,
}

/// Adds the removal of everything below a path.
pub(super) fn removes_below(word: &str, share: Share, scene: &Scene<'_>, finding: &mut Finding) {
    finding.write(word, scene);
    for spot in spots(word, scene) {
        match spot.zone {
            Zone::Inside | Zone::Outside if scene.place.holds_home(&spot) => {
                finding.raise(Risk::Critical, "it removes a home directory");
            }
            Zone::Outside if !is_scratch(&spot) => {
                finding.raise(Risk::Critical, "it removes files outside the workspace");
            }
            Zone::Inside if share == Share::All && is_everything(&spot.path) => {
                finding.raise(Risk::Critical, "it removes the whole workspace");
            }
            Zone::Inside | Zone::Outside | Zone::Unknown => {
                finding.raise(Risk::High, "it removes whole directories");
            }
        }
    }
}

/// Returns whether a path in the workspace is the workspace itself, or matches everything in it.
pub(super) fn is_everything(path: &str) -> bool {
    path.chars().all(|letter| matches!(letter, GLOB | '.' | '/'))
}

fn is_scratch(spot: &Spot) -> bool {
    let below = |root: &str| spot.path.strip_prefix(root).is_some_and(|rest| !is_everything(rest));
    below("/tmp/") || below("/var/tmp/")
}

fn rights(args: &[String], scene: &Scene<'_>, finding: &mut Finding) {
    let recursive = has(args, "recursive", Some('R'));
    let words = operands(args, "");
    let special =
        |mode: &str| mode.contains("+s") || mode.contains("=s") || mode.len() == 4 && !mode.starts_with('0');
    if words.first().is_some_and(|mode| special(mode)) {
        finding.raise(Risk::Critical, "it sets the set-uid or set-gid bit");
    }
    for word in words.into_iter().skip(1) {
        finding.write(word, scene);
        for spot in spots(word, scene) {
            match spot.zone {
                Zone::Outside if recursive => {
                    finding.raise(Risk::Critical, "it changes permissions outside the workspace");
                }
                Zone::Inside | Zone::Unknown if recursive && is_everything(&spot.path) => {
                    finding.raise(Risk::High, "it changes the permissions of many files");
                }
                Zone::Inside | Zone::Outside | Zone::Unknown => {}
            }
        }
    }
}

fn copies(name: &str, args: &[String], scene: &Scene<'_>, finding: &mut Finding) {
    let mut words = operands(args, "tmogS");
    let directory = args.iter().skip_while(|arg| *arg != "-t").nth(1).map(String::as_str);
    let target = directory.or_else(|| words.pop());
    for word in words {
        match name {
            "mv" => finding.write(word, scene),
            _ => finding.read(word, scene),
        }
    }
    values(args).for_each(|word| finding.write(word, scene));
    if let Some(target) = target {
        finding.write(target, scene);
    }
}

fn disk(args: &[String], scene: &Scene<'_>, finding: &mut Finding) {
    for arg in args {
        match arg.split_once('=') {
            Some(("of", file)) => finding.write(file, scene),
            Some(("if", file)) => finding.read(file, scene),
            Some(_) => {}
            None if is_open(arg) => finding.unclear("where it writes is known only when it runs"),
            None => {}
        }
    }
}

fn sed(args: &[String], scene: &Scene<'_>, finding: &mut Finding) {
    let in_place = has(args, "in-place", Some('i'));
    let given = has(args, "expression", Some('e')) || has(args, "file", Some('f'));
    let words = operands(args, "efl");
    let files = if given { &words[..] } else { words.get(1..).unwrap_or_default() };
    for word in files {
        if in_place { finding.write(word, scene) } else { finding.read(word, scene) }
    }
    let script = words.first().copied().unwrap_or_default();
    let printing =
        |letter: char| letter.is_ascii_digit() || matches!(letter, ',' | '$' | 'p' | 'd' | 'q' | ';' | ' ');
    if !in_place && !given && script.chars().all(printing) {
        finding.risk = Some(Risk::Low);
    }
}

fn awk(args: &[String], scene: &Scene<'_>, finding: &mut Finding) {
    let words = operands(args, "Fvf");
    words.iter().skip(1).for_each(|word| finding.read(word, scene));
    let script = words.first().copied().unwrap_or_default();
    let busy = ["system", "getline", ">", "|", "@", "ENVIRON"];
    if !has(args, "file", Some('f')) && !busy.iter().any(|word| script.contains(word)) && !is_open(script) {
        finding.risk = Some(Risk::Low);
    }
}

fn archive(args: &[String], scene: &Scene<'_>, finding: &mut Finding) {
    let runs = ["--to-command", "--checkpoint-action", "--use-compress", "-I", "--unzip-command", "-TT"];
    if args.iter().any(|arg| runs.iter().any(|option| arg.starts_with(option))) {
        finding.raise(Risk::High, "an option makes it run another program");
    }
    let folder = args.iter().skip_while(|arg| *arg != "-C" && *arg != "-d").nth(1);
    if let Some(folder) = folder {
        finding.write(folder, scene);
    }
    if args.iter().any(|arg| arg == "-P" || arg == "--absolute-names") {
        finding.raise(Risk::High, "it extracts to paths that the archive chooses");
    }
    let outside = |what: &What| match what {
        What::Write(spot) => spot.zone == Zone::Outside,
        What::Read(_) | What::Name(_) | What::Git(_) | What::Network(_) => false,
    };
    if finding.touches.iter().any(|touch| outside(&touch.what)) {
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
