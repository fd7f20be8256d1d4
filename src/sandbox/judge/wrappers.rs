//! Programs and shell builtins that run other commands.

use super::files::{Share, removes_below};
use super::finding::{Finding, Inner, Input, Scene};
use super::level::Risk;
use super::network;
use super::words::is_open;
use crate::sandbox::shell::{GLOB, HOLE};

/// Assesses a program that runs another command; `None` for any other program.
pub(super) fn judge(name: &str, args: &[String], scene: &Scene<'_>) -> Option<Finding> {
    let mut finding = Finding::of(Risk::Medium);
    match name {
        "nohup" | "setsid" | "time" | "command" | "builtin" | "exec" | "busybox" | "toybox" | "chrt"
        | "ionice" | "nice" | "stdbuf" | "timeout" | "gtimeout" | "taskset" | "caffeinate" => {
            before(name, args, &mut finding);
        }
        "env" => environment(args, &mut finding),
        "sudo" | "doas" | "pkexec" | "su" | "runuser" | "run0" => rights(name, args, &mut finding),
        "xargs" | "parallel" => each(name, args, &mut finding),
        "find" | "gfind" => find(args, scene, &mut finding),
        "fd" | "fdfind" => fd(args, scene, &mut finding),
        "watch" | "entr" => watch(args, &mut finding),
        "eval" => {
            finding.traits.is_transparent = true;
            text_of(args, &mut finding);
        }
        "trap" => trap(args, &mut finding),
        name if SHELLS.contains(&name) => shell(args, scene, &mut finding),
        "." | "source" => sourced(args, scene, &mut finding),
        "deno" if network::installs(name, args) => return None,
        name if INTERPRETERS.contains(&name) => {
            interpreter(args, scene, &mut finding);
            if name == "osascript" {
                finding.raise(Risk::High, "it has effects outside the workspace");
            }
        }
        _ => return None,
    }
    Some(finding)
}

/// Assesses a program that takes its own options and then a command.
fn before(name: &str, args: &[String], finding: &mut Finding) {
    if name == "command" && args.first().is_some_and(|arg| matches!(arg.as_str(), "-v" | "-V")) {
        finding.risk = Some(Risk::Low);
        return;
    }
    finding.traits.is_transparent = true;
    let (valued, flags): (&[&str], &[&str]) = match name {
        "nice" => (&["-n", "--adjustment"], &[]),
        "ionice" => (&["-c", "-n", "-p"], &["-t"]),
        "stdbuf" => (&["-i", "-o", "-e"], &[]),
        "timeout" | "gtimeout" => {
            (&["-k", "-s", "--kill-after", "--signal"], &["--foreground", "--preserve-status", "-v"])
        }
        "time" => (&["-f"], &["-p", "-v"]),
        "setsid" => (&[], &["-w", "-f", "-c", "--wait", "--fork"]),
        "taskset" => (&[], &["-c"]),
        "command" => (&[], &["-p"]),
        "exec" => (&["-a"], &["-c", "-l"]),
        _ => (&[], &[]),
    };
    let positional = usize::from(matches!(name, "timeout" | "gtimeout" | "taskset" | "chrt"));
    let mut at = 0;
    while let Some(arg) = args.get(at).filter(|arg| arg.starts_with('-')) {
        let attached = |option: &&str| !option.starts_with("--") && arg.starts_with(*option) && arg.len() > 2;
        let number = name == "nice" && arg[1..].bytes().all(|byte| byte.is_ascii_digit());
        at += match arg.as_str() {
            "--" => 1,
            arg if valued.contains(&arg) => 2,
            arg if flags.contains(&arg) => 1,
            arg if name != "time" && arg.starts_with("--") && arg.contains('=') => 1,
            _ if number || valued.iter().any(attached) => 1,
            _ => {
                finding.unclear("an unknown option precedes a command");
                return;
            }
        };
        if args.get(at - 1).is_some_and(|arg| arg == "--") {
            break;
        }
    }
    // `exec` with redirections only has no command.
    if args.get(..at + positional).is_some_and(|skipped| skipped.iter().any(|arg| is_open(arg))) {
        finding.unclear("what runs is known only when it runs");
    }
    words_of(args.get(at + positional..).unwrap_or_default(), finding);
}

fn words_of(words: &[String], finding: &mut Finding) {
    if !words.is_empty() {
        finding.inner.push(Inner::Words(words.to_vec()));
    }
}

fn text_of(words: &[String], finding: &mut Finding) {
    let text = words.join(" ");
    if text.contains([HOLE, GLOB]) {
        finding.traits.runs_text = true;
        finding.unclear("the text that runs as a command is known only when it runs");
    } else {
        finding.inner.push(Inner::Text(text));
    }
}

fn environment(args: &[String], finding: &mut Finding) {
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        at += match arg.as_str() {
            "-i" | "-" | "--ignore-environment" | "-0" | "-v" | "--null" => 1,
            "-u" | "--unset" => 2,
            "--" => {
                at += 1;
                break;
            }
            option if option.starts_with("--unset=") => 1,
            option if option.starts_with('-') => {
                finding.unclear("an unknown option precedes a command");
                return;
            }
            word if word.contains('=') => 1,
            _ => break,
        };
    }
    if args.get(at).is_none() {
        finding.why = Some("it shows the environment");
        finding.traits.shows_environment = true;
        return;
    }
    finding.traits.is_transparent = true;
    words_of(&args[at..], finding);
}

fn rights(name: &str, args: &[String], finding: &mut Finding) {
    finding.raise(Risk::High, "it runs as another user");
    if matches!(name, "su" | "runuser" | "run0") {
        match args.iter().position(|arg| arg == "-c" || arg == "--command") {
            Some(at) => text_of(args.get(at + 1..at + 2).unwrap_or_default(), finding),
            None => finding.unclear("it starts a shell as another user"),
        }
        return;
    }
    let mut at = 0;
    while let Some(arg) = args.get(at) {
        at += match arg.as_str() {
            "-n" | "-E" | "-H" | "-S" | "-k" | "-b" => 1,
            "-u" | "-g" | "-C" | "--user" | "--group" => 2,
            "-l" | "-v" | "-K" | "-V" => return,
            "--" => {
                at += 1;
                break;
            }
            option if option.starts_with('-') => {
                finding.unclear("an unknown option precedes a command");
                return;
            }
            word if word.contains('=') => {
                finding.unclear("a variable is set for another user");
                return;
            }
            _ => break,
        };
    }
    words_of(args.get(at..).unwrap_or_default(), finding);
}

/// Assesses a program that runs a command repeatedly.
fn watch(args: &[String], finding: &mut Finding) {
    finding.traits.is_transparent = true;
    let mut at = 0;
    while let Some(arg) = args.get(at).filter(|arg| arg.starts_with('-')) {
        at += if matches!(arg.as_str(), "-n" | "--interval") { 2 } else { 1 };
    }
    text_of(args.get(at..).unwrap_or_default(), finding);
}

/// Assesses a program that runs a command for each item of its input.
fn each(name: &str, args: &[String], finding: &mut Finding) {
    let valued = ["-n", "-P", "-L", "-d", "-s", "-E", "-a", "-j"];
    let flags = [
        "-0",
        "-r",
        "-t",
        "-x",
        "-0r",
        "-r0",
        "-k",
        "--null",
        "--no-run-if-empty",
        "--verbose",
        "--keep-order",
    ];
    let mut place = "{}".to_owned();
    let mut at = 0;
    while let Some(arg) = args.get(at).filter(|arg| arg.starts_with('-')) {
        at += match arg.as_str() {
            "-I" => {
                place = args.get(at + 1).cloned().unwrap_or_default();
                2
            }
            arg if valued.contains(&arg) => 2,
            arg if flags.contains(&arg) => 1,
            arg if arg.starts_with("-I") => {
                place = arg[2..].to_owned();
                1
            }
            arg if valued.iter().any(|option| arg.starts_with(option)) => 1,
            _ => {
                finding.unclear("an unknown option precedes a command");
                return;
            }
        };
    }
    if place.is_empty() || is_open(&place) {
        return finding.unclear("what runs is known only when it runs");
    }
    let mut words: Vec<String> = args.get(at..).unwrap_or_default().to_vec();
    match (words.is_empty(), name) {
        (false, _) => {}
        (true, "xargs") => words.push("echo".to_owned()),
        (true, _) => return finding.unclear("it runs its input"),
    }
    // `parallel` passes its words to a shell.
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,+@%{}".contains(letter);
    let before = words.iter().take_while(|word| !word.starts_with(":::")).count();
    if name == "parallel" && (before == 0 || !words[..before].iter().all(|word| word.chars().all(plain))) {
        return finding.unclear("it passes a text to a shell");
    }
    finding.traits.is_transparent = true;
    let mut words: Vec<String> =
        words.into_iter().map(|word| word.replace(&place, &HOLE.to_string())).collect();
    words.push(HOLE.to_string());
    words_of(&words, finding);
}

fn find(args: &[String], scene: &Scene<'_>, finding: &mut Finding) {
    finding.risk = Some(Risk::Low);
    // The options for following links precede the start directories.
    let leading = args.iter().take_while(|arg| matches!(arg.as_str(), "-H" | "-L" | "-P")).count();
    let args = args.get(leading..).unwrap_or_default();
    let roots = args.iter().take_while(|arg| !arg.starts_with('-') && !matches!(arg.as_str(), "(" | "!"));
    let roots: Vec<&String> = roots.collect();
    roots.iter().for_each(|word| finding.read(word, scene));
    let mut rest = args.iter().skip(roots.len());
    let share = if args.len() == roots.len() + 1 { Share::All } else { Share::Some };
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                found(arg, &mut rest, finding);
            }
            "-delete" => {
                finding.raise(Risk::High, "it removes the files that it finds");
                let whole = [".".to_owned()];
                let roots: Vec<&String> =
                    if roots.is_empty() { whole.iter().collect() } else { roots.clone() };
                roots.iter().for_each(|word| removes_below(word, share, scene, finding));
            }
            "-fprint" | "-fprintf" | "-fls" | "-fprint0" => {
                finding.raise(Risk::Medium, "it writes");
                rest.by_ref().take(1).for_each(|word| finding.write(word, scene));
            }
            word if is_open(word) => finding.unclear("what find does is known only when it runs"),
            _ => {}
        }
    }
}

/// Parses the command of an action of `find`: up to `;`, or up to a `+` directly after `{}`.
fn found<'a>(action: &str, rest: &mut impl Iterator<Item = &'a String>, finding: &mut Finding) {
    let mut words: Vec<String> = Vec::new();
    let mut ended = false;
    for word in rest {
        let behind = word == "+" && words.last().is_some_and(|last| last == "{}");
        if is_open(word) || (behind && action.starts_with("-ok")) {
            return finding.unclear("where a command of find ends is known only when it runs");
        }
        ended = word == ";" || behind;
        if ended {
            break;
        }
        words.push(word.clone());
    }
    if !ended {
        return finding.unclear("a command of find is not terminated");
    }
    let words: Vec<String> = words.iter().map(|word| word.replace("{}", "\0")).collect();
    words_of(&words, finding);
}

fn fd(args: &[String], scene: &Scene<'_>, finding: &mut Finding) {
    finding.risk = Some(Risk::Low);
    let runs = |arg: &String| matches!(arg.as_str(), "-x" | "-X" | "--exec" | "--exec-batch");
    let hidden = |arg: &String| {
        let among = arg.starts_with('-') && !arg.starts_with("--") && arg.contains(['x', 'X']);
        among || arg.starts_with("--exec")
    };
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        if runs(arg) {
            let words = rest.by_ref().take_while(|word| *word != ";");
            let mut words: Vec<String> = words.map(|word| with_places(word)).collect();
            words.push(HOLE.to_string());
            words_of(&words, finding);
        } else if hidden(arg) {
            finding.unclear("what runs is known only when it runs");
        } else {
            finding.name(arg, scene);
        }
    }
    if args.iter().any(|arg| is_open(arg)) {
        finding.unclear("what runs is known only when it runs");
    }
}

/// Returns a word with the placeholders of `fd` marked as unknown.
fn with_places(word: &str) -> String {
    let places = ["{}", "{/}", "{//}", "{.}", "{/.}"];
    places.iter().fold(word.to_owned(), |word, place| word.replace(place, "\0"))
}

fn trap(args: &[String], finding: &mut Finding) {
    let args = if args.first().is_some_and(|arg| arg == "--") { &args[1..] } else { args };
    match args.first().map(String::as_str) {
        None | Some("-" | "" | "-l" | "-p") => finding.risk = Some(Risk::Low),
        Some(_) => {
            finding.traits.is_transparent = true;
            text_of(&args[..1], finding);
        }
    }
}

fn shell(args: &[String], scene: &Scene<'_>, finding: &mut Finding) {
    let mut at = 0;
    let (mut text, mut input) = (false, false);
    while let Some(arg) = args.get(at).filter(|arg| arg.starts_with('-') || arg.starts_with('+')) {
        let letters = arg.trim_start_matches(['-', '+']);
        at += 1;
        match arg.as_str() {
            "-" | "--" => break,
            "--norc" | "--noprofile" | "--posix" => {}
            _ if arg.starts_with("--") => return finding.unclear("a shell with an unknown option"),
            "-o" | "+o" => at += 1,
            _ if letters.chars().all(|letter| "cexuflsvnho".contains(letter)) => {
                text |= letters.contains('c');
                input |= letters.contains('s');
                at += usize::from(letters.contains('o'));
            }
            _ => return finding.unclear("a shell with an unknown option"),
        }
    }
    match (args.get(at).filter(|_| !input || text), text) {
        (Some(command), true) => {
            finding.traits.is_transparent = true;
            // The following arguments are `$0`, `$1` and so on, which are unknown in the text.
            text_of(std::slice::from_ref(command), finding);
        }
        (None, true) => finding.unclear("a shell without a command"),
        (Some(file), false) => sourced(std::slice::from_ref(file), scene, finding),
        (None, false) => match &scene.input {
            Input::Text(text) => {
                finding.traits.is_transparent = true;
                finding.inner.push(Inner::Text(text.clone()));
            }
            Input::Pipe => {
                finding.traits.runs_text = true;
                finding.unclear("a shell runs what another command prints");
            }
            Input::Quiet => {
                finding.traits.runs_text = true;
                finding.unclear("a shell runs its input");
            }
        },
    }
}

fn sourced(args: &[String], scene: &Scene<'_>, finding: &mut Finding) {
    finding.traits.runs_text = true;
    match args.first() {
        Some(file) if !is_open(file) => finding.read(file, scene),
        Some(_) | None => finding.unclear("the script file is known only when the command runs"),
    }
}

fn interpreter(args: &[String], scene: &Scene<'_>, finding: &mut Finding) {
    args.iter().filter(|arg| !arg.starts_with('-')).for_each(|word| finding.name(word, scene));
    finding.traits.runs_text = true;
    let idle = args.iter().all(|arg| arg.starts_with('-') && arg.len() < 3 || arg == "-");
    let version = args.iter().any(|arg| matches!(arg.as_str(), "-V" | "-v" | "--version" | "-h" | "--help"));
    if idle && !version && scene.input == Input::Pipe {
        finding.unclear("an interpreter runs what another command prints");
    }
}

pub(super) const SHELLS: [&str; 10] =
    ["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh"];
const INTERPRETERS: [&str; 14] = [
    "python",
    "python3",
    "python2",
    "perl",
    "ruby",
    "node",
    "nodejs",
    "php",
    "lua",
    "deno",
    "tclsh",
    "osascript",
    "irb",
    "ghci",
];
