//! Assesses a command by the name of its program or builtin.

use super::finding::{Finding, Scene};
use super::level::Risk;
use super::words::{is_open, operands, plain_name};
use super::{danger, files, git, network, wrappers};

/// Assesses a command by its words.
pub(super) fn judge(words: &[String], scene: &Scene<'_>) -> Finding {
    let Some((program, args)) = words.split_first() else { return Finding::of(Risk::Low) };
    if program.is_empty() || program.contains([crate::sandbox::shell::HOLE, crate::sandbox::shell::GLOB]) {
        return unknown("the program is known only when the command runs");
    }
    if !program.is_ascii() || program.contains(char::is_whitespace) {
        return unknown("the name of the program contains unusual characters");
    }
    if RESERVED.contains(&program.as_str()) {
        return unknown("the name of the program is a reserved word in some shells");
    }
    let name = plain_name(program);
    let mut finding = builtin(&name, args)
        .or_else(|| wrappers::judge(&name, args, scene))
        .or_else(|| danger::judge(&name, args, scene))
        .or_else(|| network::judge(&name, args, scene))
        .or_else(|| (name == "git").then(|| git::judge(args, scene)))
        .or_else(|| files::writer(&name, args, scene))
        .or_else(|| files::reader(&name, args, scene))
        .unwrap_or_else(|| other(program, args, scene));
    if program.contains('/') && !SYSTEM.iter().any(|folder| program.starts_with(folder)) {
        finding.raise(Risk::Medium, "it runs a file outside the system directories");
        finding.name(program, scene);
        finding.traits.runs_text = true;
    }
    if CARRIERS.contains(&name.as_str()) && hides_harm(args, scene) {
        finding.raise(Risk::Critical, "it may run a command of critical risk");
    }
    if plain_name(program) != program.rsplit('/').next().unwrap_or_default() {
        finding.raise(Risk::Medium, "it runs a program with an unusual name");
    }
    finding
}

/// Assesses a command whose program is not known; in the sandbox it has the risk of any unlisted program.
fn unknown(why: &'static str) -> Finding {
    let mut finding = Finding::of(Risk::Medium);
    finding.unclear(why);
    finding
}

/// Returns whether a function of this name would shadow a known program or builtin.
pub(super) fn is_known(name: &str, scene: &Scene<'_>) -> bool {
    let nothing = [];
    builtin(name, &nothing).is_some()
        || name == "git"
        || wrappers::judge(name, &nothing, scene).is_some()
        || danger::judge(name, &nothing, scene).is_some()
        || network::judge(name, &["install".to_owned()], scene).is_some()
        || files::writer(name, &nothing, scene).is_some()
        || files::reader(name, &nothing, scene).is_some()
}

/// Assesses a program that is in no list.
fn other(program: &str, args: &[String], scene: &Scene<'_>) -> Finding {
    let mut finding = Finding::of(Risk::Medium);
    for word in operands(args, "").into_iter().filter(|word| !is_open(word)) {
        finding.name(word, scene);
    }
    let values = args.iter().filter_map(|arg| arg.split_once('=')).map(|(_, value)| value);
    values.filter(|value| !is_open(value)).for_each(|value| finding.name(value, scene));
    if LOOKING.contains(&program) {
        finding.risk = Some(Risk::Low);
    }
    if program == "man" && args.iter().any(|arg| MAN_RUNS.iter().any(|option| arg.starts_with(option))) {
        finding.raise(Risk::High, "an option makes it run another program");
    }
    if hides_harm(args, scene) {
        finding.raise(Risk::Critical, "it may run a command of critical risk");
    }
    finding
}

/// Returns whether the arguments of a program contain a command of critical risk, which the program may run.
fn hides_harm(args: &[String], scene: &Scene<'_>) -> bool {
    let Some(at) = args.iter().position(|arg| HARMFUL.contains(&plain_name(arg).as_str())) else {
        return false;
    };
    let tail = judge(&args[at..], scene);
    let touched = tail.touches.iter().map(|touch| touch.risk).max();
    tail.risk.max(touched) == Some(Risk::Critical)
}

/// Assesses shell builtins and programs with almost no effect.
fn builtin(name: &str, args: &[String]) -> Option<Finding> {
    let mut finding = Finding::of(Risk::Low);
    match name {
        name if QUIET.contains(&name) => {
            // Bash evaluates the subscript of a name, which can run commands.
            if matches!(name, "unset" | "read" | "test" | "[" | "wait" | "export" | "readonly")
                && args.iter().any(|arg| arg == "-v" || arg.contains('['))
            {
                finding.unclear("a subscript that bash evaluates");
            }
        }
        "printf" => {
            if args.first().is_some_and(|arg| arg.starts_with("-v")) {
                finding.unclear("a builtin that only bash has");
            }
        }
        "cd" | "chdir" => match args {
            [folder] if !is_open(folder) && folder != "-" => finding.moves.push(folder.clone()),
            [option, folder] if matches!(option.as_str(), "-P" | "-L" | "--") && !is_open(folder) => {
                finding.moves.push(folder.clone());
            }
            [] => finding.moves.push("~".to_owned()),
            [..] => finding.moves.push("\0".to_owned()),
        },
        "pushd" | "popd" => {
            finding.moves.push("\0".to_owned());
            // In a shell without this builtin, `pushd` starts the daemon.
            finding.unclear("a builtin that only bash has");
        }
        "printenv" => shows(&mut finding),
        // On some systems it runs its arguments as a command.
        "arch" if args.is_empty() => {}
        "set" => {
            if args.is_empty() {
                shows(&mut finding);
            }
            if args
                .iter()
                .take_while(|arg| *arg != "--")
                .any(|arg| is_open(arg) || (arg.starts_with('-') && arg.contains('k')))
            {
                finding.unclear("it changes how the shell parses commands");
            }
        }
        "alias" | "unalias" | "hash" | "enable" | "shopt" | "declare" | "typeset" | "let" | "local"
        | "mapfile" | "readarray" | "complete" | "bind" | "fc" | "history" | "disown" | "suspend"
        | "compgen" | "caller" | "getopts" | "logout" | "dirs" | "coproc" | "select" | "function" => {
            finding.unclear("a builtin that changes how the rest is parsed, or that only bash has");
        }
        "sleep" | "kill" if !args.iter().any(|arg| arg == "-1") => {
            finding.risk = Some(if name == "kill" { Risk::Medium } else { Risk::Low });
        }
        "ulimit" | "umask" => finding.risk = Some(Risk::Medium),
        _ => return None,
    }
    Some(finding)
}

fn shows(finding: &mut Finding) {
    finding.raise(Risk::Medium, "it shows the environment");
    finding.traits.shows_environment = true;
}

const QUIET: [&str; 37] = [
    "echo", "true", "false", ":", "pwd", "whoami", "id", "uname", "date", "which", "type", "test", "[",
    "exit", "return", "break", "continue", "shift", "wait", "seq", "basename", "dirname", "tty", "nproc",
    "expr", "getconf", "locale", "times", "export", "readonly", "unset", "read", "cal", "groups", "yes",
    "jobs", "uptime",
];
/// Words that are reserved in some shells.
const RESERVED: [&str; 20] = [
    "!", "{", "}", "[[", "]]", "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while",
    "until", "for", "in", "function", "select",
];
/// Programs that are searched for among the arguments of an unlisted program.
const HARMFUL: [&str; 10] =
    ["rm", "dd", "mkfs", "shutdown", "reboot", "push", "chmod", "chown", "shred", "git"];
/// Programs with an assessment of their own that run their arguments as a command.
const CARRIERS: [&str; 13] = [
    "nsenter", "unshare", "chroot", "gdb", "strace", "ltrace", "perf", "script", "expect", "screen", "tmux",
    "ssh", "mosh",
];
/// Other programs that only read.
const LOOKING: [&str; 8] = ["ps", "top", "free", "ldd", "nm", "objdump", "readelf", "man"];
/// Options of `man` that name a program, or a file that names one.
const MAN_RUNS: [&str; 6] = ["-P", "--pager", "-H", "--html", "-C", "--config"];
const SYSTEM: [&str; 8] = [
    "/bin/",
    "/usr/bin/",
    "/usr/local/bin/",
    "/sbin/",
    "/usr/sbin/",
    "/opt/homebrew/bin/",
    "/usr/local/sbin/",
    "/snap/bin/",
];
