//! Reads the message of a verb: from the command line, from standard input, from a file, or from the command line
//! followed by standard input.
//!
//! It never reads more than the daemon accepts.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::answer::AnswerSource;
use super::console::Console;
use super::exit::CliError;
use super::format::size;
use super::os::input_is_piped;
use crate::client::MESSAGE_BYTES;
use crate::provider::playbook::parse;

/// How long to wait for the first byte of standard input if the command line has a message too.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);

/// The message of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    text: String,
    /// The content of standard input, in addition to the text.
    input: Option<String>,
}

impl Message {
    /// Creates a message from a text.
    pub(crate) fn from_text(text: impl Into<String>) -> Self {
        Self { text: text.into(), input: None }
    }

    /// Returns the complete message.
    ///
    /// Standard input in addition to a typed message is data: for a playbook it is put into a fenced block, so that
    /// nothing in it runs.
    pub(crate) fn text_for(&self, source: AnswerSource) -> String {
        let Some(input) = &self.input else { return self.text.clone() };
        let text = self.text.trim_end_matches('\n');
        match source {
            AnswerSource::Model => format!("{text}\n\n{input}"),
            AnswerSource::Steps => format!("{text}\n\n{}", fenced(input)),
        }
    }

    /// Returns whether the message consists of playbook steps only.
    pub(crate) fn consists_of_steps(&self) -> bool {
        let items = parse::parse(&self.text);
        self.input.is_none()
            && parse::has_steps(&items)
            && !items.iter().any(|item| matches!(item, parse::Item::Prose(_) | parse::Item::Problem { .. }))
    }
}

/// Puts a text into a fenced block that the text cannot close.
fn fenced(text: &str) -> String {
    let longest = text.lines().map(|line| line.trim_start().chars().take_while(|c| *c == '~').count()).max();
    let fence = "~".repeat(longest.unwrap_or_default().max(2) + 1);
    format!("{fence}text\n{}\n{fence}\n", text.trim_end_matches('\n'))
}

/// Reads the message of `push run`: the typed text, and standard input if it is a pipe or a file.
pub(crate) async fn read_for_run(
    typed: Option<&str>,
    no_stdin: bool,
    console: &mut Console,
) -> Result<Message, CliError> {
    match typed {
        Some("-") | None if no_stdin => {
            Err(CliError::Usage("--no-stdin requires a message on the command line or in a file".into()))
        }
        Some("-") => read_source(Source::Input).await.map(Message::from_text),
        None if !console.input_is_terminal => read_source(Source::Input).await.map(Message::from_text),
        None => Err(CliError::Usage("the message is missing; example: push run '$ date'".into())),
        Some(typed) => {
            let text = read_source(Source::parse(typed)).await?;
            let mut input = None;
            if !no_stdin && input_is_piped() {
                input = read_piped(io::stdin(), FIRST_BYTE_TIMEOUT, console).await?;
            }
            check_length(text.len() + input.as_ref().map_or(0, String::len))?;
            Ok(Message { text, input })
        }
    }
}

/// Reads a playbook from a file; `-` is standard input.
pub(crate) async fn read_playbook(file: &str) -> Result<Message, CliError> {
    let source = if file == "-" { Source::Input } else { Source::File(file.to_owned()) };
    read_source(source).await.map(Message::from_text)
}

/// Reads the message that `typed` refers to, possibly from standard input.
pub(crate) fn read(typed: &str) -> Result<String, CliError> {
    Source::parse(typed).read(&mut io::stdin().lock())
}

/// The source of a message.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    Text(String),
    Input,
    File(String),
}

impl Source {
    /// Parses an argument: `-` is standard input, `@FILE` a file, `@@…` a text that starts with `@`.
    fn parse(typed: &str) -> Self {
        match (typed, typed.strip_prefix('@')) {
            ("-", _) => Self::Input,
            (_, Some(rest)) if rest.starts_with('@') => Self::Text(rest.to_owned()),
            (_, Some(path)) => Self::File(path.to_owned()),
            (text, None) => Self::Text(text.to_owned()),
        }
    }

    fn read(self, input: &mut dyn Read) -> Result<String, CliError> {
        let text = match self {
            Self::Text(text) => {
                check_length(text.len())?;
                text
            }
            Self::Input => read_bounded(input, "standard input")?,
            Self::File(path) => {
                let mut file = File::open(&path).map_err(|error| unreadable(&path, error))?;
                read_bounded(&mut file, &path)?
            }
        };
        if text.trim().is_empty() {
            return Err(CliError::Usage("the message is empty".into()));
        }
        Ok(text)
    }
}

/// Reads a source on a separate thread, so that waiting for a silent pipe can be cancelled.
async fn read_source(source: Source) -> Result<String, CliError> {
    let reading = tokio::task::spawn_blocking(move || source.read(&mut io::stdin().lock()));
    reading.await.unwrap_or_else(|error| Err(unreadable("the message", io::Error::other(error))))
}

/// Reads standard input in addition to a message; none if it is empty or nothing arrives in time.
async fn read_piped(
    mut input: impl Read + Send + 'static,
    patience: Duration,
    console: &mut Console,
) -> Result<Option<String>, CliError> {
    let (began, beginning) = oneshot::channel();
    let reading = tokio::task::spawn_blocking(move || {
        let mut first = [0];
        let read = loop {
            match input.read(&mut first) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| unreadable(INPUT, error))?,
            }
        };
        // The receiver may have timed out.
        let _ = began.send(());
        read_bounded(&mut first[..read].chain(input), INPUT)
    });
    if timeout(patience, beginning).await.is_err() {
        let seconds = patience.as_secs();
        console.warn(&format!(
            "no data on standard input for {seconds} s; the run starts without it (--no-stdin does not wait)"
        ));
        return Ok(None);
    }
    let text = reading.await.unwrap_or_else(|error| Err(unreadable(INPUT, io::Error::other(error))))?;
    Ok(Some(text).filter(|text| !text.trim().is_empty()))
}

const INPUT: &str = "standard input";

fn read_bounded(input: &mut dyn Read, what: &str) -> Result<String, CliError> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MESSAGE_BYTES).unwrap_or(u64::MAX);
    input.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| unreadable(what, error))?;
    check_length(bytes.len())?;
    String::from_utf8(bytes).map_err(|_| CliError::Usage(format!("{what} is not UTF-8")))
}

fn check_length(bytes: usize) -> Result<(), CliError> {
    if bytes <= MESSAGE_BYTES {
        return Ok(());
    }
    let limit = size(u64::try_from(MESSAGE_BYTES).unwrap_or(u64::MAX));
    Err(CliError::Usage(format!(
        "the message is longer than the limit of {limit}; write the text to a file and name its path in the message, without @"
    )))
}

fn unreadable(what: &str, error: io::Error) -> CliError {
    CliError::Usage(format!("cannot read {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc;

    use super::*;
    use crate::cli::console::testing::{CapturedStream, console};
    use crate::cli::exit::Exit;

    #[test]
    fn a_message_comes_from_the_argument_from_input_or_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.md");
        fs::write(&path, "from a file\n").unwrap();
        assert_eq!(read_argument("hello"), Ok("hello".into()));
        assert_eq!(read_argument("-"), Ok("from input".into()));
        assert_eq!(read_argument(&format!("@{}", path.display())), Ok("from a file\n".into()));
        assert_eq!(read_argument("@@you"), Ok("@you".into()));
    }

    #[test]
    fn an_invalid_message_is_bad_usage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        fs::write(&path, [0xff]).unwrap();
        let long = dir.path().join("long");
        fs::write(&long, vec![b'x'; MESSAGE_BYTES + 1]).unwrap();
        for typed in ["", "  \n", "@/no/such/file", &format!("@{}", path.display()), &format!("@{}", long.display())] {
            assert_eq!(read_argument(typed), Err(Exit::USAGE), "{typed:?}");
        }
        let advice = check_length(MESSAGE_BYTES + 1).unwrap_err().to_string();
        assert!(advice.ends_with("name its path in the message, without @"), "{advice}");
    }

    #[test]
    fn input_in_addition_to_a_message_is_appended_and_not_run_as_steps() {
        let message = Message { text: "$ true\n".into(), input: Some("$ rm x\n~~~~\n$ rm y\n".into()) };
        assert_eq!(message.text_for(AnswerSource::Model), "$ true\n\n$ rm x\n~~~~\n$ rm y\n");
        let items = parse::parse(&message.text_for(AnswerSource::Steps));
        let steps: Vec<_> = items.iter().filter(|item| !matches!(item, parse::Item::Prose(_))).collect();
        assert!(matches!(steps[..], [parse::Item::Exec { command, .. }] if command == "true"), "{items:?}");
        assert!(!message.consists_of_steps());
        assert!(Message::from_text("$ make\n$ make test").consists_of_steps());
        assert!(!Message::from_text("Fix this:\n\n$ make").consists_of_steps());
    }

    #[tokio::test]
    async fn a_silent_pipe_times_out_with_a_warning_and_a_slow_one_is_read_completely() {
        let (mut console, err) = console(CapturedStream::default());
        let (quiet, _held) = pipe();
        assert_eq!(read_piped(quiet, Duration::from_millis(20), &mut console).await.unwrap(), None);
        assert!(err.text().contains("no data on standard input"), "{}", err.text());
        assert_eq!(read_piped(&b""[..], Duration::from_secs(60), &mut console).await.unwrap(), None);
        let (slow, send) = pipe();
        let writer = std::thread::spawn(move || {
            for part in ["a di", "ff\n"] {
                send.send(part.as_bytes().to_vec()).unwrap();
            }
        });
        let read = read_piped(slow, Duration::from_secs(60), &mut console).await.unwrap();
        assert_eq!(read.as_deref(), Some("a diff\n"));
        writer.join().unwrap();
        let long = vec![b'x'; MESSAGE_BYTES + 1];
        let refused = read_piped(io::Cursor::new(long), Duration::from_secs(60), &mut console).await;
        assert!(refused.unwrap_err().to_string().contains("4.0 MiB"));
    }

    /// A pipe whose reader blocks until data is sent or the sender is dropped.
    struct Pipe(mpsc::Receiver<Vec<u8>>, Vec<u8>);

    fn pipe() -> (Pipe, mpsc::Sender<Vec<u8>>) {
        let (send, receive) = mpsc::channel();
        (Pipe(receive, Vec::new()), send)
    }

    impl Read for Pipe {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.1.is_empty() {
                self.1 = self.0.recv().unwrap_or_default();
            }
            let taken = self.1.len().min(buffer.len());
            buffer[..taken].copy_from_slice(&self.1[..taken]);
            self.1.drain(..taken);
            Ok(taken)
        }
    }

    fn read_argument(typed: &str) -> Result<String, Exit> {
        Source::parse(typed).read(&mut &b"from input"[..]).map_err(|error| error.exit())
    }
}
