//! A conversation of a file as what a session takes in: runs that are over, turn by turn.
//!
//! Every message of the user begins a run; what the model said and had done until the next one belongs to it. What stands
//! where no run is open (the rest of one that a compaction cut in two) gets a run of its own. Texts are cut to a size that
//! every client can be shown. Nothing is redacted here: the session does that with whatever it takes in.

use crate::kernel::event::{Ending, Image, Taken, Used};
use crate::kernel::id::{CallId, Json, MessageId, RunId};
use crate::kernel::import::{Import, Imported, ImportedCall, ImportedRun, ImportedTurn};

use super::branch::Conversation;
use super::message::{Assistant, Bash, Block, Content, Message, ToolResult, text_of};

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

impl Conversation {
    /// Turns the conversation into what a session takes in.
    pub fn into_import(self, names: &mut dyn Names) -> TakenIn {
        let mut taking = Taking { names, parts: Vec::new(), open: None, left_out: 0 };
        for told in self.told {
            taking.message(told.message);
        }
        taking.close();
        TakenIn { import: Import { turns: taking.parts }, left_out: taking.left_out }
    }
}

/// A run that may get more turns.
struct Open {
    run: ImportedRun,
    /// The calls without a result: their name in the file, their turn, and their place in it.
    waiting: Vec<(String, usize, usize)>,
}

struct Taking<'n> {
    names: &'n mut dyn Names,
    parts: Vec<Imported>,
    open: Option<Open>,
    left_out: u64,
}

impl Taking<'_> {
    fn message(&mut self, message: Message) {
        match message {
            Message::User(user) => self.begin(user.content),
            Message::Custom(custom) => self.begin(custom.content),
            Message::BranchSummary(branch) => {
                self.begin(vec![Content::Text(format!("(of another branch)\n{}", branch.summary))]);
            }
            Message::Assistant(said) => self.turn(*said),
            Message::ToolResult(result) => self.result(*result),
            Message::Bash(bash) => self.aside(*bash),
            Message::CompactionSummary(compaction) => {
                self.close();
                let text = self.cut(compaction.summary);
                // Nothing before it is kept: what was is told after it.
                let kept = usize::MAX;
                let tokens_before = compaction.tokens_before;
                self.parts.push(Imported::Summary { text, tokens_before, kept });
            }
        }
    }

    /// Begins a run with a message.
    fn begin(&mut self, content: Vec<Content>) {
        self.close();
        let text = self.cut(text_of(&content));
        let images = self.images(content);
        let (run, message) = (self.names.run(), self.names.message());
        let run = ImportedRun { run, message, text, images, turns: Vec::new() };
        self.open = Some(Open { run, waiting: Vec::new() });
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.parts.push(Imported::Run(open.run));
        }
    }

    /// Adds a turn to the run that is open, or begins one for it.
    fn turn(&mut self, said: Assistant) {
        let (mut thought, mut text) = (String::new(), String::new());
        let (mut calls, mut waiting) = (Vec::new(), Vec::new());
        for block in said.blocks {
            match block {
                Block::Text(words) => add(&mut text, &words),
                Block::Thinking(words) => add(&mut thought, &words),
                Block::ToolCall { id, name, args } => {
                    waiting.push((id, calls.len()));
                    let args = self.arguments(args);
                    calls.push(cut_short(self.names.call(), name, args));
                }
            }
        }
        if thought.is_empty() && text.is_empty() && calls.is_empty() {
            // It failed before it said anything.
            return;
        }
        if self.open.is_none() {
            self.begin(vec![Content::Text(GOES_ON.to_owned())]);
        }
        let (thought, text) = (self.cut(thought), self.cut(text));
        let used = Used {
            // Here those of the cache count as read.
            input: sum([said.usage.input, said.usage.cache_read, said.usage.cache_write]),
            output: said.usage.output,
            cache_read: said.usage.cache_read,
            cache_write: said.usage.cache_write,
            cost: millionths(said.usage.cost.total),
            estimated: false,
        };
        let taken = Taken { model: said.model, used, carry: None, pending: Vec::new() };
        let turn = ImportedTurn { thought, text, message: self.names.said(), taken, calls };
        if let Some(open) = &mut self.open {
            let at = open.run.turns.len();
            open.waiting.extend(waiting.into_iter().map(|(id, call)| (id, at, call)));
            open.run.turns.push(turn);
        }
    }

    /// Gives a call its result; the one that was made last, if several have its name.
    fn result(&mut self, result: ToolResult) {
        let mut text = result.text();
        let pictures = result.content.iter().filter(|piece| matches!(piece, Content::Image { .. })).count();
        if pictures > 0 {
            self.left_out += pictures as u64;
            add(&mut text, &format!("({pictures} pictures are left out)"));
        }
        let text = self.cut(text);
        let ending = if result.is_error { Ending::Failed } else { Ending::Done };
        let call = self.open.as_mut().and_then(|open| {
            let at = open.waiting.iter().rposition(|(id, _, _)| *id == result.call)?;
            let (_, turn, call) = open.waiting.remove(at);
            open.run.turns.get_mut(turn)?.calls.get_mut(call)
        });
        match call {
            Some(call) => (call.text, call.ending) = (text, ending),
            None => self.left_out += 1,
        }
    }

    fn aside(&mut self, bash: Bash) {
        self.close();
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
            ..cut_short(self.names.call(), COMMAND.to_owned(), self.arguments(args))
        };
        self.parts.push(Imported::Aside { call, told: !bash.excluded });
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
const fn cut_short(call: CallId, tool: String, args: Json) -> ImportedCall {
    ImportedCall {
        call,
        tool,
        args,
        millis: 0,
        ending: Ending::Cut,
        exit_code: None,
        text: String::new(),
        fault: None,
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
