//! Random texts that look like shell.

use super::random::Random;

/// Returns a text that looks like shell and need not be any.
pub(crate) fn noise(random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..random.below(24) + 1 {
        text.push_str(random.pick(PIECES).copied().unwrap_or_default());
        if random.one_in(3) {
            text.push(' ');
        }
    }
    text
}

/// Returns a command of plain words, some of them quoted, which a shell takes.
pub(crate) fn sound(random: &mut Random) -> String {
    let mut words = vec![random.pick(PROGRAMS).copied().unwrap_or_default().to_owned()];
    for _ in 0..random.below(4) {
        words.push(random.pick(WORDS).copied().unwrap_or_default().to_owned());
    }
    words.join(" ")
}

const PIECES: &[&str] = &[
    "rm",
    "-rf",
    "/",
    "ls",
    "cat",
    "echo",
    "x",
    "a=1",
    "PATH=",
    "$",
    "$x",
    "${",
    "}",
    "{",
    "(",
    ")",
    "((",
    "))",
    "$(",
    "`",
    "'",
    "\"",
    "\\",
    "\n",
    ";",
    ";;",
    "&",
    "&&",
    "|",
    "||",
    "<",
    ">",
    ">>",
    "<<",
    "<<EOF",
    "EOF\n",
    "EOF",
    "<<-",
    ">&",
    "2>",
    "&>",
    "#",
    "!",
    "~",
    "*",
    "?",
    "[",
    "]",
    "[[",
    "]]",
    "if",
    "then",
    "else",
    "fi",
    "for",
    "in",
    "do",
    "done",
    "case",
    "esac",
    "while",
    "function",
    "f()",
    "eval",
    "sh -c",
    "xargs",
    "sudo",
    "env",
    "$'",
    "$\"",
    "${x:-",
    "$((",
    "1",
    "+",
    "\t",
    "\r",
    "\u{0}",
    "\u{441}",
    "=",
    ",",
    "..",
    "é",
    "find . -exec",
    "git push",
    "curl http://x.org",
    ".env",
    "cd",
    "exec",
];
const PROGRAMS: &[&str] =
    &["ls", "cat", "make", "cargo test", "git status", "git push", "rm", "curl", "echo", "cp", "sudo"];
const WORDS: &[&str] = &[
    "a",
    "b.txt",
    "-l",
    "'a b'",
    "\"x\"",
    "src/*.rs",
    "$x",
    ".env",
    "../y",
    "/etc/hosts",
    "~/z",
    "example.org",
    "-rf",
];
