//! Random texts that look like shell.

use crate::support::random::Random;

/// Returns a text that resembles shell and need not be valid.
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

/// Returns a valid command of plain words, some of them quoted.
pub(crate) fn sound(random: &mut Random) -> String {
    let mut words = vec![random.pick(PROGRAMS).copied().unwrap_or_default().to_owned()];
    for _ in 0..random.below(4) {
        words.push(random.pick(WORDS).copied().unwrap_or_default().to_owned());
    }
    words.join(" ")
}

/// Returns a known program with options and words of a few letters, some of them of several bytes.
pub(crate) fn odd(random: &mut Random) -> String {
    let mut words = vec![random.pick(KNOWN).copied().unwrap_or_default().to_owned()];
    for _ in 0..random.below(5) + 1 {
        let begin = random.pick(&["", "-", "-", "--", "+", "-I", "-n", "-o"]).copied().unwrap_or_default();
        let many = random.below(3);
        let rest: String = (0..many).filter_map(|_| random.pick(LETTERS).copied()).collect();
        words.push(format!("'{begin}{rest}'"));
    }
    if random.one_in(2) {
        words.push("echo x > a".to_owned());
    }
    words.join(" ")
}

/// Programs whose options the analysis knows.
const KNOWN: &[&str] = &[
    "xargs",
    "parallel",
    "nice",
    "ionice",
    "timeout 5",
    "stdbuf",
    "time",
    "env",
    "sudo",
    "su",
    "watch",
    "find",
    "fd",
    "trap",
    "sh",
    "bash -c",
    "python3",
    "exec",
    "git",
    "git push",
    "git -C",
    "curl",
    "ssh",
    "rsync",
    "npm",
    "deno",
    "sort",
    "tree",
    "sed",
    "awk",
    "dd",
    "tar",
    "chmod",
    "cp",
    "rm",
    "kill",
    "crontab",
    "grep",
    "uniq",
    "cd",
    "set",
    "printf",
    "touch",
    "push",
    "systemctl",
];
const LETTERS: &[&str] = &[
    "a",
    "c",
    "e",
    "o",
    "x",
    "=",
    "/",
    ".",
    ":",
    "@",
    "[",
    "]",
    "{}",
    ";",
    "+",
    "1",
    "-",
    "~",
    "\u{e9}",
    "\u{4e16}",
    "\u{1f600}",
    "\u{df}",
    "\u{130}",
];

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
