//! Assesses a command by the name of its program or builtin.

use super::finding::{CommandContext, Finding};
use super::level::Risk;
use super::words::{has_unknown, operands, program_name};
use super::{dangerous_programs, files, git, network, wrappers};

/// Assesses a command by its words.
pub(super) fn assess(words: &[String], context: &CommandContext<'_>) -> Finding {
    let Some((program, args)) = words.split_first() else { return Finding::with_risk(Risk::Low) };
    if program.is_empty() || program.contains([crate::sandbox::shell::UNKNOWN, crate::sandbox::shell::GLOB]) {
        return unknown_program("the program is known only when the command runs");
    }
    if !program.is_ascii() || program.contains(char::is_whitespace) {
        return unknown_program("the name of the program contains unusual characters");
    }
    if RESERVED.contains(&program.as_str()) {
        return unknown_program("the name of the program is a reserved word in some shells");
    }
    let name = program_name(program);
    let mut finding = builtin(&name, args)
        .or_else(|| wrappers::assess(&name, args, context))
        .or_else(|| dangerous_programs::assess(&name, args, context))
        .or_else(|| network::assess(&name, args, context))
        .or_else(|| (name == "git").then(|| git::assess(args, context)))
        .or_else(|| files::assess_writer(&name, args, context))
        .or_else(|| files::assess_reader(&name, args, context))
        .unwrap_or_else(|| unlisted_program(program, args, context));
    if program.contains('/') && !SYSTEM_PROGRAM_DIRECTORIES.iter().any(|directory| program.starts_with(directory)) {
        finding.raise(Risk::Medium, "it runs a file outside the system directories");
        finding.add_mention(program, context);
        finding.traits.runs_script = true;
    }
    if COMMAND_RUNNERS.contains(&name.as_str()) && contains_critical_command(args, context) {
        finding.raise(Risk::Critical, "it may run a command of critical risk");
    }
    if program_name(program) != program.rsplit('/').next().unwrap_or_default() {
        finding.raise(Risk::Medium, "it runs a program with an unusual name");
    }
    finding
}

/// Assesses a command whose program is not known; in the sandbox it has the risk of any unlisted program.
fn unknown_program(reason: &'static str) -> Finding {
    let mut finding = Finding::with_risk(Risk::Medium);
    finding.add_uncertainty(reason);
    finding
}

/// Returns whether a function of this name would shadow a known program or builtin.
pub(super) fn is_known_program(name: &str, context: &CommandContext<'_>) -> bool {
    let nothing = [];
    builtin(name, &nothing).is_some()
        || name == "git"
        || wrappers::assess(name, &nothing, context).is_some()
        || dangerous_programs::assess(name, &nothing, context).is_some()
        || network::assess(name, &["install".to_owned()], context).is_some()
        || files::assess_writer(name, &nothing, context).is_some()
        || files::assess_reader(name, &nothing, context).is_some()
}

/// Assesses a program that is in no list.
fn unlisted_program(program: &str, args: &[String], context: &CommandContext<'_>) -> Finding {
    let mut finding = Finding::with_risk(Risk::Medium);
    for word in operands(args, "").into_iter().filter(|word| !has_unknown(word)) {
        finding.add_mention(word, context);
    }
    let values = args.iter().filter_map(|arg| arg.split_once('=')).map(|(_, value)| value);
    values.filter(|value| !has_unknown(value)).for_each(|value| finding.add_mention(value, context));
    if READ_ONLY_PROGRAMS.contains(&program) {
        finding.risk = Some(Risk::Low);
    }
    if program == "man" && args.iter().any(|arg| MAN_PROGRAM_OPTIONS.iter().any(|option| arg.starts_with(option))) {
        finding.raise(Risk::High, "an option makes it run another program");
    }
    if contains_critical_command(args, context) {
        finding.raise(Risk::Critical, "it may run a command of critical risk");
    }
    finding
}

/// Returns whether the arguments of a program contain a command of critical risk, which the program may run.
fn contains_critical_command(args: &[String], context: &CommandContext<'_>) -> bool {
    let Some(at) = args.iter().position(|arg| HARMFUL.contains(&program_name(arg).as_str())) else {
        return false;
    };
    let tail = assess(&args[at..], context);
    let touched = tail.accesses.iter().map(|touch| touch.risk).max();
    tail.risk.max(touched) == Some(Risk::Critical)
}

/// Assesses shell builtins and programs with almost no effect.
fn builtin(name: &str, args: &[String]) -> Option<Finding> {
    let mut finding = Finding::with_risk(Risk::Low);
    match name {
        name if HARMLESS_BUILTINS.contains(&name) => {
            // Bash evaluates the subscript of a name, which can run commands.
            if matches!(name, "unset" | "read" | "test" | "[" | "wait" | "export" | "readonly")
                && args.iter().any(|arg| arg == "-v" || arg.contains('['))
            {
                finding.add_uncertainty("a subscript that bash evaluates");
            }
        }
        "printf" => {
            if args.first().is_some_and(|arg| arg.starts_with("-v")) {
                finding.add_uncertainty("a builtin that only bash has");
            }
        }
        "cd" | "chdir" => match args {
            [directory] if !has_unknown(directory) && directory != "-" => {
                finding.directory_changes.push(directory.clone())
            }
            [option, directory] if matches!(option.as_str(), "-P" | "-L" | "--") && !has_unknown(directory) => {
                finding.directory_changes.push(directory.clone());
            }
            [] => finding.directory_changes.push("~".to_owned()),
            [..] => finding.directory_changes.push("\0".to_owned()),
        },
        "pushd" | "popd" => {
            finding.directory_changes.push("\0".to_owned());
            // In a shell without this builtin, `pushd` starts the daemon.
            finding.add_uncertainty("a builtin that only bash has");
        }
        "printenv" => add_environment_exposure(&mut finding),
        // On some systems it runs its arguments as a command.
        "arch" if args.is_empty() => {}
        "set" => {
            if args.is_empty() {
                add_environment_exposure(&mut finding);
            }
            if args
                .iter()
                .take_while(|arg| *arg != "--")
                .any(|arg| has_unknown(arg) || (arg.starts_with('-') && arg.contains('k')))
            {
                finding.add_uncertainty("it changes how the shell parses commands");
            }
        }
        "alias" | "unalias" | "hash" | "enable" | "shopt" | "declare" | "typeset" | "let" | "local" | "mapfile"
        | "readarray" | "complete" | "bind" | "fc" | "history" | "disown" | "suspend" | "compgen" | "caller"
        | "getopts" | "logout" | "dirs" | "coproc" | "select" | "function" => {
            finding.add_uncertainty("a builtin that changes how the rest is parsed, or that only bash has");
        }
        "sleep" | "kill" if !args.iter().any(|arg| arg == "-1") => {
            finding.risk = Some(if name == "kill" { Risk::Medium } else { Risk::Low });
        }
        "ulimit" | "umask" => finding.risk = Some(Risk::Medium),
        _ => return None,
    }
    Some(finding)
}

fn add_environment_exposure(finding: &mut Finding) {
    finding.raise(Risk::Medium, "it shows the environment");
    finding.traits.shows_environment = true;
}

const HARMLESS_BUILTINS: [&str; 37] = [
    "echo", "true", "false", ":", "pwd", "whoami", "id", "uname", "date", "which", "type", "test", "[", "exit",
    "return", "break", "continue", "shift", "wait", "seq", "basename", "dirname", "tty", "nproc", "expr", "getconf",
    "locale", "times", "export", "readonly", "unset", "read", "cal", "groups", "yes", "jobs", "uptime",
];
/// Words that are reserved in some shells.
const RESERVED: [&str; 20] = [
    "!", "{", "}", "[[", "]]", "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until",
    "for", "in", "function", "select",
];
/// Programs that are searched for among the arguments of an unlisted program.
const HARMFUL: [&str; 10] = ["rm", "dd", "mkfs", "shutdown", "reboot", "push", "chmod", "chown", "shred", "git"];
/// Programs with an assessment of their own that run their arguments as a command.
const COMMAND_RUNNERS: [&str; 13] = [
    "nsenter", "unshare", "chroot", "gdb", "strace", "ltrace", "perf", "script", "expect", "screen", "tmux", "ssh",
    "mosh",
];
/// Other programs that only read.
const READ_ONLY_PROGRAMS: [&str; 8] = ["ps", "top", "free", "ldd", "nm", "objdump", "readelf", "man"];
/// Options of `man` that name a program, or a file that names one.
const MAN_PROGRAM_OPTIONS: [&str; 6] = ["-P", "--pager", "-H", "--html", "-C", "--config"];
const SYSTEM_PROGRAM_DIRECTORIES: [&str; 8] = [
    "/bin/",
    "/usr/bin/",
    "/usr/local/bin/",
    "/sbin/",
    "/usr/sbin/",
    "/opt/homebrew/bin/",
    "/usr/local/sbin/",
    "/snap/bin/",
];
