//! Programs and shell builtins that run other commands.

use super::files::{RemovalExtent, add_recursive_removal};
use super::finding::{CommandContext, Finding, Input, NestedCommand};
use super::level::Risk;
use super::network;
use super::words::has_unknown;
use crate::sandbox::shell::{GLOB, UNKNOWN};

/// Assesses a program that runs another command; `None` for any other program.
pub(super) fn assess(name: &str, args: &[String], context: &CommandContext<'_>) -> Option<Finding> {
    let mut finding = Finding::with_risk(Risk::Medium);
    match name {
        "nohup" | "setsid" | "time" | "command" | "builtin" | "exec" | "busybox" | "toybox" | "chrt" | "ionice"
        | "nice" | "stdbuf" | "timeout" | "gtimeout" | "taskset" | "caffeinate" => {
            prefix_command(name, args, &mut finding);
        }
        "env" => env(args, &mut finding),
        "sudo" | "doas" | "pkexec" | "su" | "runuser" | "run0" => privilege_change(name, args, &mut finding),
        "xargs" | "parallel" => for_each_input(name, args, &mut finding),
        "find" | "gfind" => find(args, context, &mut finding),
        "fd" | "fdfind" => fd(args, context, &mut finding),
        "watch" | "entr" => watch(args, &mut finding),
        "eval" => {
            finding.traits.is_transparent = true;
            add_nested_text(args, &mut finding);
        }
        "trap" => trap(args, &mut finding),
        name if SHELLS.contains(&name) => shell(args, context, &mut finding),
        "." | "source" => source_file(args, context, &mut finding),
        "deno" if network::installs(name, args) => return None,
        name if INTERPRETERS.contains(&name) => {
            interpreter(args, context, &mut finding);
            if name == "osascript" {
                finding.raise(Risk::High, "it has effects outside the workspace");
            }
        }
        _ => return None,
    }
    Some(finding)
}

/// Assesses a program that takes its own options and then a command.
fn prefix_command(name: &str, args: &[String], finding: &mut Finding) {
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
                finding.add_uncertainty("an unknown option precedes a command");
                return;
            }
        };
        if args.get(at - 1).is_some_and(|arg| arg == "--") {
            break;
        }
    }
    // `exec` with redirections only has no command.
    if args.get(..at + positional).is_some_and(|skipped| skipped.iter().any(|arg| has_unknown(arg))) {
        finding.add_uncertainty("what runs is known only when it runs");
    }
    add_nested_words(args.get(at + positional..).unwrap_or_default(), finding);
}

fn add_nested_words(words: &[String], finding: &mut Finding) {
    if !words.is_empty() {
        finding.nested.push(NestedCommand::Words(words.to_vec()));
    }
}

fn add_nested_text(words: &[String], finding: &mut Finding) {
    let text = words.join(" ");
    if text.contains([UNKNOWN, GLOB]) {
        finding.traits.runs_script = true;
        finding.add_uncertainty("the text that runs as a command is known only when it runs");
    } else {
        finding.nested.push(NestedCommand::Text(text));
    }
}

fn env(args: &[String], finding: &mut Finding) {
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
                finding.add_uncertainty("an unknown option precedes a command");
                return;
            }
            word if word.contains('=') => 1,
            _ => break,
        };
    }
    if args.get(at).is_none() {
        finding.reason = Some("it shows the environment");
        finding.traits.shows_environment = true;
        return;
    }
    finding.traits.is_transparent = true;
    add_nested_words(&args[at..], finding);
}

fn privilege_change(name: &str, args: &[String], finding: &mut Finding) {
    finding.raise(Risk::High, "it runs as another user");
    if matches!(name, "su" | "runuser" | "run0") {
        match args.iter().position(|arg| arg == "-c" || arg == "--command") {
            Some(at) => add_nested_text(args.get(at + 1..at + 2).unwrap_or_default(), finding),
            None => finding.add_uncertainty("it starts a shell as another user"),
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
                finding.add_uncertainty("an unknown option precedes a command");
                return;
            }
            word if word.contains('=') => {
                finding.add_uncertainty("a variable is set for another user");
                return;
            }
            _ => break,
        };
    }
    add_nested_words(args.get(at..).unwrap_or_default(), finding);
}

/// Assesses a program that runs a command repeatedly.
fn watch(args: &[String], finding: &mut Finding) {
    finding.traits.is_transparent = true;
    let mut at = 0;
    while let Some(arg) = args.get(at).filter(|arg| arg.starts_with('-')) {
        at += if matches!(arg.as_str(), "-n" | "--interval") { 2 } else { 1 };
    }
    add_nested_text(args.get(at..).unwrap_or_default(), finding);
}

/// Assesses a program that runs a command for each item of its input.
fn for_each_input(name: &str, args: &[String], finding: &mut Finding) {
    let valued = ["-n", "-P", "-L", "-d", "-s", "-E", "-a", "-j"];
    let flags =
        ["-0", "-r", "-t", "-x", "-0r", "-r0", "-k", "--null", "--no-run-if-empty", "--verbose", "--keep-order"];
    let mut placeholder = "{}".to_owned();
    let mut at = 0;
    while let Some(arg) = args.get(at).filter(|arg| arg.starts_with('-')) {
        at += match arg.as_str() {
            "-I" => {
                placeholder = args.get(at + 1).cloned().unwrap_or_default();
                2
            }
            arg if valued.contains(&arg) => 2,
            arg if flags.contains(&arg) => 1,
            arg if arg.starts_with("-I") => {
                placeholder = arg[2..].to_owned();
                1
            }
            arg if valued.iter().any(|option| arg.starts_with(option)) => 1,
            _ => {
                finding.add_uncertainty("an unknown option precedes a command");
                return;
            }
        };
    }
    if placeholder.is_empty() || has_unknown(&placeholder) {
        return finding.add_uncertainty("what runs is known only when it runs");
    }
    let mut words: Vec<String> = args.get(at..).unwrap_or_default().to_vec();
    match (words.is_empty(), name) {
        (false, _) => {}
        (true, "xargs") => words.push("echo".to_owned()),
        (true, _) => return finding.add_uncertainty("it runs its input"),
    }
    // `parallel` passes its words to a shell.
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,+@%{}".contains(letter);
    let before = words.iter().take_while(|word| !word.starts_with(":::")).count();
    if name == "parallel" && (before == 0 || !words[..before].iter().all(|word| word.chars().all(plain))) {
        return finding.add_uncertainty("it passes a text to a shell");
    }
    finding.traits.is_transparent = true;
    let mut words: Vec<String> =
        words.into_iter().map(|word| word.replace(&placeholder, &UNKNOWN.to_string())).collect();
    words.push(UNKNOWN.to_string());
    add_nested_words(&words, finding);
}

fn find(args: &[String], context: &CommandContext<'_>, finding: &mut Finding) {
    finding.risk = Some(Risk::Low);
    // The options for following links precede the start directories.
    let leading = args.iter().take_while(|arg| matches!(arg.as_str(), "-H" | "-L" | "-P")).count();
    let args = args.get(leading..).unwrap_or_default();
    let roots = args.iter().take_while(|arg| !arg.starts_with('-') && !matches!(arg.as_str(), "(" | "!"));
    let roots: Vec<&String> = roots.collect();
    roots.iter().for_each(|word| finding.add_read(word, context));
    let mut rest = args.iter().skip(roots.len());
    let extent = if args.len() == roots.len() + 1 { RemovalExtent::All } else { RemovalExtent::Matching };
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                find_exec(arg, &mut rest, finding);
            }
            "-delete" => {
                finding.raise(Risk::High, "it removes the files that it finds");
                let whole = [".".to_owned()];
                let roots: Vec<&String> = if roots.is_empty() { whole.iter().collect() } else { roots.clone() };
                roots.iter().for_each(|word| add_recursive_removal(word, extent, context, finding));
            }
            "-fprint" | "-fprintf" | "-fls" | "-fprint0" => {
                finding.raise(Risk::Medium, "it writes");
                rest.by_ref().take(1).for_each(|word| finding.add_write(word, context));
            }
            word if has_unknown(word) => finding.add_uncertainty("what find does is known only when it runs"),
            _ => {}
        }
    }
}

/// Parses the command of an action of `find`: up to `;`, or up to a `+` directly after `{}`.
fn find_exec<'a>(action: &str, rest: &mut impl Iterator<Item = &'a String>, finding: &mut Finding) {
    let mut words: Vec<String> = Vec::new();
    let mut ended = false;
    for word in rest {
        let behind = word == "+" && words.last().is_some_and(|last| last == "{}");
        if has_unknown(word) || (behind && action.starts_with("-ok")) {
            return finding.add_uncertainty("where a command of find ends is known only when it runs");
        }
        ended = word == ";" || behind;
        if ended {
            break;
        }
        words.push(word.clone());
    }
    if !ended {
        return finding.add_uncertainty("a command of find is not terminated");
    }
    let words: Vec<String> = words.iter().map(|word| word.replace("{}", "\0")).collect();
    add_nested_words(&words, finding);
}

fn fd(args: &[String], context: &CommandContext<'_>, finding: &mut Finding) {
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
            let mut words: Vec<String> = words.map(|word| with_placeholders(word)).collect();
            words.push(UNKNOWN.to_string());
            add_nested_words(&words, finding);
        } else if hidden(arg) {
            finding.add_uncertainty("what runs is known only when it runs");
        } else {
            finding.add_mention(arg, context);
        }
    }
    if args.iter().any(|arg| has_unknown(arg)) {
        finding.add_uncertainty("what runs is known only when it runs");
    }
}

/// Returns a word with the placeholders of `fd` marked as unknown.
fn with_placeholders(word: &str) -> String {
    let placeholders = ["{}", "{/}", "{//}", "{.}", "{/.}"];
    placeholders.iter().fold(word.to_owned(), |word, placeholder| word.replace(placeholder, "\0"))
}

fn trap(args: &[String], finding: &mut Finding) {
    let args = if args.first().is_some_and(|arg| arg == "--") { &args[1..] } else { args };
    match args.first().map(String::as_str) {
        None | Some("-" | "" | "-l" | "-p") => finding.risk = Some(Risk::Low),
        Some(_) => {
            finding.traits.is_transparent = true;
            add_nested_text(&args[..1], finding);
        }
    }
}

fn shell(args: &[String], context: &CommandContext<'_>, finding: &mut Finding) {
    let mut at = 0;
    let (mut text, mut input) = (false, false);
    while let Some(arg) = args.get(at).filter(|arg| arg.starts_with('-') || arg.starts_with('+')) {
        let letters = arg.trim_start_matches(['-', '+']);
        at += 1;
        match arg.as_str() {
            "-" | "--" => break,
            "--norc" | "--noprofile" | "--posix" => {}
            _ if arg.starts_with("--") => return finding.add_uncertainty("a shell with an unknown option"),
            "-o" | "+o" => at += 1,
            _ if letters.chars().all(|letter| "cexuflsvnho".contains(letter)) => {
                text |= letters.contains('c');
                input |= letters.contains('s');
                at += usize::from(letters.contains('o'));
            }
            _ => return finding.add_uncertainty("a shell with an unknown option"),
        }
    }
    match (args.get(at).filter(|_| !input || text), text) {
        (Some(command), true) => {
            finding.traits.is_transparent = true;
            // The following arguments are `$0`, `$1` and so on, which are unknown in the text.
            add_nested_text(std::slice::from_ref(command), finding);
        }
        (None, true) => finding.add_uncertainty("a shell without a command"),
        (Some(file), false) => source_file(std::slice::from_ref(file), context, finding),
        (None, false) => match &context.input {
            Input::Text(text) => {
                finding.traits.is_transparent = true;
                finding.nested.push(NestedCommand::Text(text.clone()));
            }
            Input::Pipe => {
                finding.traits.runs_script = true;
                finding.add_uncertainty("a shell runs what another command prints");
            }
            Input::NotPiped => {
                finding.traits.runs_script = true;
                finding.add_uncertainty("a shell runs its input");
            }
        },
    }
}

fn source_file(args: &[String], context: &CommandContext<'_>, finding: &mut Finding) {
    finding.traits.runs_script = true;
    match args.first() {
        Some(file) if !has_unknown(file) => finding.add_read(file, context),
        Some(_) | None => finding.add_uncertainty("the script file is known only when the command runs"),
    }
}

fn interpreter(args: &[String], context: &CommandContext<'_>, finding: &mut Finding) {
    args.iter().filter(|arg| !arg.starts_with('-')).for_each(|word| finding.add_mention(word, context));
    finding.traits.runs_script = true;
    let idle = args.iter().all(|arg| arg.starts_with('-') && arg.len() < 3 || arg == "-");
    let version = args.iter().any(|arg| matches!(arg.as_str(), "-V" | "-v" | "--version" | "-h" | "--help"));
    if idle && !version && context.input == Input::Pipe {
        finding.add_uncertainty("an interpreter runs what another command prints");
    }
}

pub(super) const SHELLS: [&str; 10] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh"];
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
