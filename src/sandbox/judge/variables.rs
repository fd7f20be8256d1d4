//! Variables that change what commands do.

/// Tells whether setting a variable changes which programs run, what they load, or how the shell reads.
pub(super) fn is_sensitive(name: &str) -> bool {
    NAMES.contains(&name)
        || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
        || ENDINGS.iter().any(|ending| name.ends_with(ending))
        || name.contains('\0')
}

/// Tells whether a program or builtin takes names of variables, or assignments, as its words.
pub(super) fn takes_names(program: &str) -> bool {
    matches!(
        program,
        "export" | "readonly" | "unset" | "read" | "env" | "local" | "declare" | "typeset" | "getopts"
    )
}

/// Splits a word into the variable that it names and the value that it gives.
pub(super) fn assigned(word: &str) -> (&str, Option<&str>) {
    match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None if word.starts_with('-') => ("", Some("")),
        None => (word, None),
    }
}

const NAMES: [&str; 38] = [
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
    "FPATH",
    "GLOBIGNORE",
    "BASH_COMPAT",
    "POSIXLY_CORRECT",
];
const BEGINNINGS: [&str; 22] = [
    "LD_",
    "DYLD_",
    "GIT_",
    "BASH_FUNC",
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
const ENDINGS: [&str; 4] = ["_proxy", "_PROXY", "_RUNNER", "_PRELOAD"];
