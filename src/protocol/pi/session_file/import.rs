//! A conversation of a file as what a session takes in: runs that are over, turn by turn.
//!
//! Every message of the user begins a run; what the model said and had done until the next one belongs to it. What stands
//! where no run is open (the rest of one that a compaction cut in two) gets a run of its own. Everything keeps its time and the
//! name of its entry. Texts are cut to a size that
//! every client can be shown. Nothing is redacted here: the session does that with whatever it takes in.

use crate::kernel::event::{Ending, Image, Taken, Used};
use crate::kernel::id::{CallId, Json, MessageId, RunId, Seq};
use crate::kernel::import::{Import, Imported, ImportedCall, ImportedRun, ImportedTurn, Kept, Provenance};
use crate::kernel::time::Now;

use super::entry::{Change, Entry};
use super::message::{Assistant, Bash, Block, Content, Message, ToolResult, Usage, text_of};

/// Bytes of a text that is taken in.
const TEXT_MAX: usize = 256 << 10;
/// Pictures of a message, and their bytes in base64 together.
const IMAGES_MAX: usize = 20;
const IMAGE_BYTES_MAX: usize = 8 << 20;
/// What stands for the message of a run whose beginning is not told.
const GOES_ON: &str = "(the conversation goes on)";
/// The tool that runs a command of the user's.
const COMMAND: &str = "sandbox_exec";

/// Makes fresh names: whoever takes a conversation in mints them.
pub trait Names {
    /// Names a run.
    fn run(&mut self) -> RunId;
    /// Names a message of the user.
    fn message(&mut self) -> MessageId;
    /// Names a message of the model.
    fn said(&mut self) -> MessageId;
    /// Names a use of a tool.
    fn call(&mut self) -> CallId;
}

/// A conversation, ready to be taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenIn {
    /// What is taken in.
    pub import: Import,
    /// How much is not: results that belong to no call, pictures that are none or too many, texts that were cut.
    pub left_out: u64,
}

/// Turns entries of one branch into what a session takes in.
///
/// `known` finds the first event of an entry that the session holds already.
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

/// A call without a result.
struct Waiting {
    /// Its name in the file.
    id: String,
    /// The part of the import, the turn of the run and the call of the turn.
    at: (usize, usize, usize),
}

struct Taking<'n> {
    names: &'n mut dyn Names,
    known: &'n dyn Fn(&str) -> Option<Seq>,
    parts: Vec<Imported>,
    /// A run that may get more turns; it becomes the next part.
    open: Option<ImportedRun>,
    /// Commands of the user that ran meanwhile: they come behind it.
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

    /// Begins a run with a message.
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

    /// Adds a turn to the run that is open, or begins one for it.
    fn turn(&mut self, said: Assistant, source: Provenance) {
        // What is made up here stands in no file.
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
            // It failed before it said anything.
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

    /// Gives a call its result; the one that was made last, if several have its name.
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

    /// Finds the call that waits for a result, also in a run that is over.
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

    /// Takes the pictures that are ones, as many as a message may have.
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

    /// Cuts a text that is too long. Only its beginning is kept, and that up to a space: half of a secret, or a key without its
    /// first line, would not be recognised.
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

/// A call of which no more is known than that it was wanted.
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
        // Here those of the cache count as read.
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

/// Dollars as millionths; a price of nothing is none that is known.
fn millionths(dollars: f64) -> Option<u64> {
    let millionths = (dollars * 1e6).round();
    // A conversion to a whole number stays within its bounds.
    if millionths >= 1.0 { Some(millionths as u64) } else { None }
}

/// Tells whether this is spelled like a picture.
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
