//! How a daemon tells the client which started it that it listens.
//!
//! Its standard output and standard error are a pipe to that client. One line says how it went; whatever else is
//! written there before is why it failed. There is no other agreement between the two.

use std::io::{self, BufRead, Write};

use super::os;

/// The daemon listens.
const READY: &str = "ready";
/// Another daemon holds the place.
const IN_USE: &str = "in-use";
/// How much of a failing daemon's words is kept.
const WORDS: usize = 16 * 1024;

/// The daemon's side: what it owes the client that started it.
///
/// Dropped without a word it means failure, and what was written to standard error says why.
#[derive(Debug)]
#[must_use = "the client waits for it"]
pub struct Announcement(());

impl Announcement {
    /// Promises an announcement on standard output, which must be the client's pipe.
    pub const fn promised() -> Self {
        Self(())
    }

    /// Says that the daemon listens, and lets the pipe go.
    pub fn ready(self) -> io::Result<()> {
        say(READY)?;
        os::let_go_of_output()
    }

    /// Says that another daemon listens or is about to.
    pub fn in_use(self) -> io::Result<()> {
        say(IN_USE)
    }
}

fn say(word: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{word}")?;
    out.flush()
}

/// What a client learns of a daemon that it started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Announced {
    /// It listens.
    Ready,
    /// Another one does, or is about to; these words say what it holds.
    InUse(String),
    /// It failed, with these words.
    Failed(String),
}

/// Reads a daemon's announcement from its pipe.
pub(super) fn read(pipe: impl io::Read) -> Announced {
    let mut words = String::new();
    for line in io::BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
        match String::from_utf8_lossy(&line).trim_end() {
            READY => return Announced::Ready,
            IN_USE => return Announced::InUse(words.trim_end().to_owned()),
            line if words.len() + line.len() < WORDS => {
                words.push_str(line);
                words.push('\n');
            }
            _ => {}
        }
    }
    Announced::Failed(words.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_how_it_went_and_everything_else_says_why_not() {
        assert_eq!(read(&b"ready\nmore"[..]), Announced::Ready);
        assert_eq!(read(&b"warning: x\nin-use\n"[..]), Announced::InUse("warning: x".into()));
        assert_eq!(read(&b"error: no\ncause: y\n"[..]), Announced::Failed("error: no\ncause: y".into()));
        assert_eq!(read(&b""[..]), Announced::Failed(String::new()));
        assert_eq!(read(&[b'x'; WORDS + 1][..]), Announced::Failed(String::new()));
    }
}
