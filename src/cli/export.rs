//! `push export`: writes a session as a document.
//!
//! The history is read as a subscriber reads it, so that a document holds what its caller may see, and it is written as
//! it is read.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::atomic_file::AtomicFile;
use super::console::Console;
use super::context::Context;
use super::exit::{CliError, Exit};
use super::history::HistoryReader;
use super::ids;
use super::sanitize::escape_json;
use crate::client::{Access, Client};
use crate::export::{HtmlRenderer, JsonRenderer, MarkdownRenderer, Renderer, Survey, Timeline};

/// Write a session as a document: a page, Markdown, or JSON
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  push export @last -o session.html\n  push export @last --format md | less\n  push export release --format json | jq '.session.usage'"
)]
pub(crate) struct ExportArgs {
    /// The session
    #[arg(default_value = "@last")]
    session: String,
    /// The format; without it, the one that the name of the file says
    #[arg(long, short, value_enum)]
    format: Option<Format>,
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One self-contained page
    Html,
    /// Markdown
    Md,
    /// One JSON object
    Json,
    /// Every event as a line of JSON, as on the wire
    Jsonl,
}

/// Writes a session.
pub(crate) async fn run(args: ExportArgs, context: &mut Context) -> Result<Exit, CliError> {
    let format = chosen_format(args.format, args.output.as_deref())?;
    let mut client = context.client().await?;
    let session = ids::resolve_session(&mut client, &args.session).await?;
    let Some(path) = args.output else {
        export(&mut client, &session, format, &mut Sink::Console(&mut context.console)).await?;
        return Ok(Exit::SUCCESS);
    };
    let file = AtomicFile::create(&path).map_err(|source| unwritable(&path, source))?;
    let mut sink = Sink::File(file, &path);
    export(&mut client, &session, format, &mut sink).await?;
    sink.finish()?;
    Ok(Exit::SUCCESS)
}

fn chosen_format(named: Option<Format>, output: Option<&Path>) -> Result<Format, CliError> {
    let of_file = || {
        let extension = output?.extension()?.to_str()?;
        Format::from_str(extension, true).ok().or(extension.eq_ignore_ascii_case("htm").then_some(Format::Html))
    };
    named
        .or_else(of_file)
        .ok_or_else(|| CliError::Usage("cannot tell the format; pass --format html, md, json or jsonl".to_owned()))
}

/// Where a document goes.
enum Sink<'a> {
    Console(&'a mut Console),
    File(AtomicFile, &'a Path),
}

impl Sink<'_> {
    fn write(&mut self, text: &str) -> Result<(), CliError> {
        match self {
            Self::Console(console) => Ok(console.text(text)?),
            Self::File(file, path) => file.write_all(text.as_bytes()).map_err(|source| unwritable(path, source)),
        }
    }

    fn finish(self) -> Result<(), CliError> {
        match self {
            Self::Console(_) => Ok(()),
            Self::File(file, path) => file.commit().map_err(|source| unwritable(path, source)),
        }
    }
}

fn unwritable(path: &Path, source: std::io::Error) -> CliError {
    CliError::File { action: "write", what: path.display().to_string(), source }
}

async fn export(client: &mut Client, session: &str, format: Format, sink: &mut Sink<'_>) -> Result<(), CliError> {
    match format {
        Format::Html => render(client, session, &mut HtmlRenderer, sink).await,
        Format::Md => render(client, session, &mut MarkdownRenderer, sink).await,
        Format::Json => render(client, session, &mut JsonRenderer::default(), sink).await,
        Format::Jsonl => copy_events(client, session, sink).await,
    }
}

/// Copies the lines of events; characters that a terminal interprets are escaped as JSON escapes them.
async fn copy_events(client: &mut Client, session: &str, sink: &mut Sink<'_>) -> Result<(), CliError> {
    let mut history = HistoryReader::open(client, session, Access::History).await?;
    while let Some(event) = history.next(client).await? {
        if event.is_of_history() {
            sink.write(&format!("{}\n", escape_json(&event.line)))?;
        }
    }
    Ok(())
}

/// Reads the history twice: for the head of the document, and for its entries.
async fn render(
    client: &mut Client,
    session: &str,
    renderer: &mut dyn Renderer,
    sink: &mut Sink<'_>,
) -> Result<(), CliError> {
    let mut survey = Survey::new(session);
    let mut history = HistoryReader::open(client, session, Access::History).await?;
    while let Some(event) = history.next(client).await? {
        if let Some(event) = event.into_recorded() {
            survey.add(&event);
        }
    }
    let mut text = String::new();
    renderer.begin(&survey, &mut text);
    let mut timeline = Timeline::new(&survey);
    let mut history = HistoryReader::open(client, session, Access::History).await?;
    while let Some(event) = history.next(client).await? {
        let Some(event) = event.into_recorded() else { continue };
        // The first pass did not see what happened since.
        if event.seq.number() > survey.last_seq() {
            break;
        }
        for entry in timeline.add(&event) {
            renderer.entry(&entry, &mut text);
        }
        if text.len() >= CHUNK_BYTES {
            sink.write(&text)?;
            text.clear();
        }
    }
    for entry in timeline.finish() {
        renderer.entry(&entry, &mut text);
    }
    renderer.end(&survey, &mut text);
    sink.write(&text)
}

/// How much text is collected before it is written.
const CHUNK_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_named_or_follows_from_the_file() {
        let chosen = |named, file: Option<&str>| chosen_format(named, file.map(Path::new)).ok();
        assert_eq!(chosen(None, Some("a.HTML")), Some(Format::Html));
        assert_eq!(chosen(None, Some("a.htm")), Some(Format::Html));
        assert_eq!(chosen(None, Some("a.md")), Some(Format::Md));
        assert_eq!(chosen(Some(Format::Jsonl), Some("a.md")), Some(Format::Jsonl));
        assert_eq!(chosen(None, Some("a.txt")), None);
        assert_eq!(chosen(None, None), None);
    }
}
