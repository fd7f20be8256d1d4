//! Converts a conversation of a file into a kernel import: finished runs, turn by turn.
//!
//! Every user message starts a run; the assistant messages and results up to the next user message belong to it.
//! Messages without an open run (the rest of a run that a compaction split) get a run of their own. Everything keeps
//! its time and the id of its entry. Long texts are truncated to a size that every client can handle. Nothing is
//! redacted here: the session redacts whatever it imports.

use crate::kernel::event::{Ending, Image, Taken, Used};
use crate::kernel::id::{CallId, Json, MessageId, RunId, Seq};
use crate::kernel::import::{Import, Imported, ImportedCall, ImportedRun, ImportedTurn, Kept, Provenance};
use crate::kernel::time::Now;

use super::entry::{Change, Entry};
use super::message::{Assistant, Bash, Block, Content, Message, ToolResult, Usage, text_of};

/// Maximum bytes of an imported text.
const TEXT_MAX: usize = 256 << 10;
/// Maximum images of a message, and their total bytes in base64.
const IMAGES_MAX: usize = 20;
const IMAGE_BYTES_MAX: usize = 8 << 20;
/// The message of a run whose user message is not part of the import.
const GOES_ON: &str = "(the conversation goes on)";
/// The tool that runs user commands.
const COMMAND: &str = "sandbox_exec";

/// Generates the ids of an import.
pub trait Names {
    /// Generates a run id.
    fn run(&mut self) -> RunId;
    /// Generates the id of a user message.
    fn message(&mut self) -> MessageId;
    /// Generates the id of an assistant message.
    fn said(&mut self) -> MessageId;
    /// Generates a call id.
    fn call(&mut self) -> CallId;
}

/// A conversation converted for import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenIn {
    /// The import.
    pub import: Import,
    /// How many items were omitted or shortened: results without a call, invalid or excess images, truncated texts.
    pub left_out: u64,
}

/// Converts the entries of one branch into an import.
///
/// `known` returns the first event of an entry that the session already holds.
pub fn import<'e>(
    entries: impl IntoIterator<Item = &'e Entry>,
    known: &dyn Fn(&str) -> Option<Seq>,
    names: &mut dyn Names,
) -> TakenIn {
    let mut taking = Taking {
        names,
        known,
        parts: Vec::new(),
        open: None,
        asides: Vec::new(),
        waiting: Vec::new(),
        left_out: 0,
    };
    for entry in entries {
        taking.entry(entry);
    }
    taking.close();
    let import = Import { turns: taking.parts, ..Import::default() };
    TakenIn { import, left_out: taking.left_out }
}

/// A call whose result has not been found yet.
struct Waiting {
    /// Its id in the file.
    id: String,
    /// The indexes of the import part, the turn and the call.
    at: (usize, usize, usize),
}

struct Taking<'n> {
    names: &'n mut dyn Names,
    known: &'n dyn Fn(&str) -> Option<Seq>,
    parts: Vec<Imported>,
    /// The run that may get more turns; it becomes the next part.
    open: Option<ImportedRun>,
    /// User commands during the open run; they are added after it.
    asides: Vec<Imported>,
    waiting: Vec<Waiting>,
    left_out: u64,
}

impl Taking<'_> {
    fn entry(&mut self, entry: &Entry) {
        let source = |at: Now| Provenance {
            at: [at, entry.at].into_iter().find(|at| *at != Now::default()),
            entry: Some(entry.id.clone()),
        };
        match &entry.change {
            Change::Message(message) => self.message(message.clone(), source(message.at())),
            Change::BranchSummary { summary, .. } => self.left_branch(summary, source(entry.at)),
            Change::CustomMessage { content, .. } => self.begin(content.clone(), source(entry.at)),
            Change::Compaction { summary, first_kept, tokens_before } => {
                let kept =
                    (self.known)(first_kept).map_or_else(|| Kept::Entry(first_kept.clone()), Kept::Since);
                self.summary(summary.clone(), *tokens_before, kept, source(entry.at));
            }
            Change::Model { .. } | Change::Thinking { .. } | Change::Name(_) | Change::Other { .. } => {}
        }
    }

    fn message(&mut self, message: Message, source: Provenance) {
        match message {
            Message::User(user) => self.begin(user.content, source),
            Message::Custom(custom) => self.begin(custom.content, source),
            Message::BranchSummary(branch) => self.left_branch(&branch.summary, source),
            Message::Assistant(said) => self.turn(*said, source),
            Message::ToolResult(result) => self.result(*result, source),
            Message::Bash(bash) => self.aside(*bash, source),
            Message::CompactionSummary(compaction) => {
                self.summary(compaction.summary, compaction.tokens_before, Kept::Nothing, source);
            }
        }
    }

    fn summary(&mut self, text: String, tokens_before: u64, kept: Kept, source: Provenance) {
        self.close();
        let text = self.cut(text);
        self.parts.push(Imported::Summary { text, tokens_before, kept, source });
    }

    fn left_branch(&mut self, summary: &str, source: Provenance) {
        self.begin(vec![Content::Text(format!("(of another branch)\n{summary}"))], source);
    }

    /// Starts a run with a user message.
    fn begin(&mut self, content: Vec<Content>, source: Provenance) {
        self.close();
        let text = self.cut(text_of(&content));
        let images = self.images(content);
        let (run, message) = (self.names.run(), self.names.message());
        self.open = Some(ImportedRun { run, message, text, images, turns: Vec::new(), source });
    }

    fn close(&mut self) {
        self.parts.extend(self.open.take().map(Imported::Run));
        self.parts.append(&mut self.asides);
    }

    /// Adds a turn to the open run, or starts a run for it.
    fn turn(&mut self, said: Assistant, source: Provenance) {
        // Synthesized parts have no entry in the file.
        let made_up = Provenance { at: source.at, entry: Some(String::new()) };
        let (mut thought, mut text) = (String::new(), String::new());
        let (mut calls, mut waiting) = (Vec::new(), Vec::new());
        for block in said.blocks {
            match block {
                Block::Text(words) => add(&mut text, &words),
                Block::Thinking(words) => add(&mut thought, &words),
                Block::ToolCall { id, name, args } => {
                    waiting.push((id, calls.len()));
                    let args = self.arguments(args);
                    calls.push(cut_short(self.names.call(), name, args, made_up.clone()));
                }
            }
        }
        if thought.is_empty() && text.is_empty() && calls.is_empty() {
            // The turn failed before any output.
            return;
        }
        if self.open.is_none() {
            self.begin(vec![Content::Text(GOES_ON.to_owned())], made_up);
        }
        let (thought, text) = (self.cut(thought), self.cut(text));
        let taken = Taken { model: said.model, used: used(&said.usage), carry: None, pending: Vec::new() };
        let turn = ImportedTurn { thought, text, message: self.names.said(), taken, calls, source };
        if let Some(open) = &mut self.open {
            let (part, at) = (self.parts.len(), open.turns.len());
            let waits = |(id, call)| Waiting { id, at: (part, at, call) };
            self.waiting.extend(waiting.into_iter().map(waits));
            open.turns.push(turn);
        }
    }

    /// Assigns a result to its call; the latest one if several have the same id.
    fn result(&mut self, result: ToolResult, source: Provenance) {
        let mut text = result.text();
        let pictures = result.content.iter().filter(|piece| matches!(piece, Content::Image { .. })).count();
        if pictures > 0 {
            self.left_out += pictures as u64;
            add(&mut text, &format!("({pictures} pictures are left out)"));
        }
        let text = self.cut(text);
        let ending = if result.is_error { Ending::Failed } else { Ending::Done };
        match self.waiting_call(&result.call) {
            Some(call) => (call.text, call.ending, call.source) = (text, ending, source),
            None => self.left_out += 1,
        }
    }

    /// Removes and returns the unresolved call of an id, also from a finished run.
    fn waiting_call(&mut self, id: &str) -> Option<&mut ImportedCall> {
        let at = self.waiting.iter().rposition(|waiting| waiting.id == id)?;
        let (part, turn, call) = self.waiting.remove(at).at;
        let run = match self.parts.get_mut(part) {
            Some(Imported::Run(run)) => run,
            Some(Imported::Aside { .. } | Imported::Summary { .. }) => return None,
            None => self.open.as_mut()?,
        };
        run.turns.get_mut(turn)?.calls.get_mut(call)
    }

    fn aside(&mut self, bash: Bash, source: Provenance) {
        let ending = match bash.exit_code {
            _ if bash.cancelled => Ending::Cut,
            Some(0) => Ending::Done,
            Some(_) | None => Ending::Failed,
        };
        let args = Json::new(serde_json::json!({ "command": bash.command }).to_string());
        let call = ImportedCall {
            ending,
            exit_code: bash.exit_code.and_then(|code| i32::try_from(code).ok()),
            text: self.cut(bash.output),
            ..cut_short(self.names.call(), COMMAND.to_owned(), self.arguments(args), source)
        };
        let aside = Imported::Aside { call, told: !bash.excluded };
        if self.open.is_some() { self.asides.push(aside) } else { self.parts.push(aside) }
    }

    /// Returns the valid images, up to the limits of a message.
    fn images(&mut self, content: Vec<Content>) -> Vec<Image> {
        let mut images = Vec::new();
        let mut room = IMAGE_BYTES_MAX;
        for piece in content {
            match piece {
                Content::Text(_) => {}
                Content::Image { mime, data }
                    if is_picture(&mime, &data) && data.len() <= room && images.len() < IMAGES_MAX =>
                {
                    room -= data.len();
                    images.push(Image { mime, data });
                }
                Content::Image { .. } => self.left_out += 1,
            }
        }
        images
    }

    /// Truncates a long text at a whitespace. Only its start is kept: redaction would not recognize half of a secret,
    /// or a key without its first line.
    fn cut(&mut self, mut text: String) -> String {
        if text.len() <= TEXT_MAX {
            return text;
        }
        self.left_out += 1;
        let all = text.len();
        let mut end = TEXT_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let end = text[..end].rfind(char::is_whitespace).unwrap_or(0);
        text.truncate(end);
        text.push_str(&format!("\n({} bytes are left out)", all - end));
        text
    }

    fn arguments(&mut self, args: Json) -> Json {
        let bytes = args.as_str().len();
        if bytes <= TEXT_MAX {
            return args;
        }
        self.left_out += 1;
        Json::new(format!("{{\"left_out\":\"{bytes} bytes\"}}"))
    }
}

/// A call without a result.
const fn cut_short(call: CallId, tool: String, args: Json, source: Provenance) -> ImportedCall {
    ImportedCall {
        call,
        tool,
        args,
        millis: 0,
        ending: Ending::Cut,
        exit_code: None,
        text: String::new(),
        fault: None,
        source,
    }
}

fn used(usage: &Usage) -> Used {
    Used {
        // The kernel counts cached tokens as input.
        input: sum([usage.input, usage.cache_read, usage.cache_write]),
        output: usage.output,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
        cost: millionths(usage.cost.total),
        estimated: false,
    }
}

fn add(text: &mut String, words: &str) {
    if !text.is_empty() && !words.is_empty() {
        text.push('\n');
    }
    text.push_str(words);
}

fn sum(numbers: [u64; 3]) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// Converts dollars to millionths; zero means that the price is unknown.
fn millionths(dollars: f64) -> Option<u64> {
    let millionths = (dollars * 1e6).round();
    // A float-to-integer cast saturates.
    if millionths >= 1.0 { Some(millionths as u64) } else { None }
}

/// Returns whether the type and data have the form of a base64 image.
fn is_picture(mime: &str, data: &str) -> bool {
    let kind = mime.strip_prefix("image/").unwrap_or_default();
    let named = !kind.is_empty()
        && kind.len() <= 64
        && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let body = data.trim_end_matches('=');
    named
        && !body.is_empty()
        && data.len().is_multiple_of(4)
        && data.len() - body.len() <= 2
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte))
}
