//! Environment variables that change what commands do.

use super::assessment::Coverage;

/// Returns how much of a command is still covered after a variable is set; `None` if the variable is only data.
///
/// Some variables make the shell itself parse or find other commands than are written: the coverage is partial. With
/// the others the shell runs the written commands, and the programs load or do something else: the coverage is
/// complete.
pub(super) fn effect_on_coverage(name: &str) -> Option<Coverage> {
    if SHELL_VARIABLES.contains(&name) || name.starts_with("BASH_FUNC") || name.contains('\0') {
        return Some(Coverage::Partial);
    }
    let of_programs = PROGRAM_VARIABLES.contains(&name)
        || PROGRAM_VARIABLE_PREFIXES.iter().any(|beginning| name.starts_with(beginning))
        || PROGRAM_VARIABLE_SUFFIXES.iter().any(|ending| name.ends_with(ending));
    (of_programs && !DATA_VARIABLES.contains(&name)).then_some(Coverage::Complete)
}

/// Returns whether a program or builtin takes variable names or assignments as arguments.
pub(super) fn takes_variable_names(program: &str) -> bool {
    matches!(program, "export" | "readonly" | "unset" | "read" | "env" | "local" | "declare" | "typeset" | "getopts")
}

/// Splits a word into the variable that it names and the value that it assigns.
pub(super) fn split_assignment(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None if word.starts_with('-') => ("", Some("")),
        None => (word, None),
    }
}

/// Variables that determine how a shell finds and parses commands, and resolves paths.
const SHELL_VARIABLES: [&str; 20] = [
    "IFS",
    "PATH",
    "ENV",
    "BASH_ENV",
    "PS0",
    "PS1",
    "PS2",
    "PS4",
    "PROMPT_COMMAND",
    "SHELLOPTS",
    "BASHOPTS",
    "CDPATH",
    "HOME",
    "PWD",
    "OLDPWD",
    "SHELL",
    "FPATH",
    "GLOBIGNORE",
    "BASH_COMPAT",
    "POSIXLY_CORRECT",
];
/// Variables that match a prefix below and do not influence what runs.
const DATA_VARIABLES: [&str; 6] =
    ["NODE_ENV", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUTF8"];
/// Variables that name programs, or files that programs load.
const PROGRAM_VARIABLES: [&str; 18] = [
    "EDITOR",
    "VISUAL",
    "PAGER",
    "MANPAGER",
    "LESSOPEN",
    "LESSCLOSE",
    "BROWSER",
    "RUBYOPT",
    "RUBYLIB",
    "CLASSPATH",
    "MAKEFILES",
    "MAKEFLAGS",
    "SSH_ASKPASS",
    "SSH_AUTH_SOCK",
    "GCONV_PATH",
    "TERMINFO",
    "HOSTALIASES",
    "RUSTC",
];
const PROGRAM_VARIABLE_PREFIXES: [&str; 21] = [
    "LD_",
    "DYLD_",
    "GIT_",
    "PYTHON",
    "PERL5",
    "PERLLIB",
    "NODE_",
    "JAVA_TOOL",
    "_JAVA",
    "PUSH_",
    "PUSHD_",
    "XDG_",
    "CARGO_TARGET_",
    "RUSTC_W",
    "NPM_CONFIG",
    "npm_config",
    "DOCKER_",
    "KUBE",
    "AWS_",
    "MALLOC_",
    "GCC_",
];
const PROGRAM_VARIABLE_SUFFIXES: [&str; 4] = ["_proxy", "_PROXY", "_RUNNER", "_PRELOAD"];
