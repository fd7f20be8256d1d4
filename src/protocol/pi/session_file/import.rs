//! Converts a conversation of a file into a kernel import: finished runs, turn by turn.
//!
//! Every user message starts a run; the assistant messages and results up to the next user message belong to it.
//! Messages without an open run (the rest of a run that a compaction split) get a run of their own. Everything keeps
//! its time and the id of its entry. Long texts are truncated to a size that every client can handle. Nothing is
//! redacted here: the session redacts whatever it imports.

use crate::kernel::event::{Image, TokenUsage, ToolOutcome, TurnUsage};
use crate::kernel::id::{CallId, Json, MessageId, RunId, Seq};
use crate::kernel::import::{ContextStart, Import, ImportedCall, ImportedPart, ImportedRun, ImportedTurn, Provenance};
use crate::kernel::time::Now;

use super::entry::{Change, Entry};
use super::message::{Assistant, Bash, Block, Content, Message, ToolResult, Usage, text_of};

/// Maximum bytes of an imported text.
const TEXT_MAX: usize = 256 << 10;
/// Maximum images of a message, and their total bytes in base64.
const IMAGES_MAX: usize = 20;
const IMAGE_BYTES_MAX: usize = 8 << 20;
/// The message of a run whose user message is not part of the import.
const CONTINUATION_TEXT: &str = "(the conversation goes on)";
/// The tool that runs user commands.
const SHELL_TOOL: &str = "sandbox_exec";

/// Generates the ids of an import.
pub trait IdGenerator {
    /// Generates a run id.
    fn run(&mut self) -> RunId;
    /// Generates the id of a user message.
    fn message(&mut self) -> MessageId;
    /// Generates the id of an assistant message.
    fn assistant_message(&mut self) -> MessageId;
    /// Generates a call id.
    fn call(&mut self) -> CallId;
}

/// A conversation converted for import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportResult {
    /// The import.
    pub import: Import,
    /// How many items were omitted or shortened: results without a call, invalid or excess images, truncated texts.
    pub omitted: u64,
}

/// Converts the entries of one branch into an import.
///
/// `known` returns the first event of an entry that the session already holds.
pub fn import<'e>(
    entries: impl IntoIterator<Item = &'e Entry>,
    known: &dyn Fn(&str) -> Option<Seq>,
    ids: &mut dyn IdGenerator,
) -> ImportResult {
    let mut builder = ImportBuilder {
        ids,
        known,
        parts: Vec::new(),
        open_run: None,
        user_commands: Vec::new(),
        unresolved: Vec::new(),
        omitted: 0,
    };
    for entry in entries {
        builder.add_entry(entry);
    }
    builder.close_run();
    let import = Import { parts: builder.parts, ..Import::default() };
    ImportResult { import, omitted: builder.omitted }
}

/// A call whose result has not been found yet.
struct UnresolvedCall {
    /// Its id in the file.
    id: String,
    /// The indexes of the import part, the turn and the call.
    at: (usize, usize, usize),
}

struct ImportBuilder<'n> {
    ids: &'n mut dyn IdGenerator,
    known: &'n dyn Fn(&str) -> Option<Seq>,
    parts: Vec<ImportedPart>,
    /// The run that may get more turns; it becomes the next part.
    open_run: Option<ImportedRun>,
    /// User commands during the open run; they are added after it.
    user_commands: Vec<ImportedPart>,
    unresolved: Vec<UnresolvedCall>,
    omitted: u64,
}

impl ImportBuilder<'_> {
    fn add_entry(&mut self, entry: &Entry) {
        let source = |at: Now| Provenance {
            at: [at, entry.at].into_iter().find(|at| *at != Now::default()),
            entry: Some(entry.id.clone()),
        };
        match &entry.change {
            Change::Message(message) => self.add_message(message.clone(), source(message.at())),
            Change::BranchSummary { summary, .. } => self.add_branch_summary(summary, source(entry.at)),
            Change::CustomMessage { content, .. } => self.begin_run(content.clone(), source(entry.at)),
            Change::Compaction { summary, first_kept, tokens_before } => {
                let context_start = (self.known)(first_kept)
                    .map_or_else(|| ContextStart::Entry(first_kept.clone()), ContextStart::Event);
                self.add_summary(summary.clone(), *tokens_before, context_start, source(entry.at));
            }
            Change::Model { .. } | Change::Thinking { .. } | Change::Name(_) | Change::Other { .. } => {}
        }
    }

    fn add_message(&mut self, message: Message, source: Provenance) {
        match message {
            Message::User(user) => self.begin_run(user.content, source),
            Message::Custom(custom) => self.begin_run(custom.content, source),
            Message::BranchSummary(branch) => self.add_branch_summary(&branch.summary, source),
            Message::Assistant(assistant) => self.add_turn(*assistant, source),
            Message::ToolResult(result) => self.add_result(*result, source),
            Message::Bash(bash) => self.add_user_command(*bash, source),
            Message::CompactionSummary(compaction) => {
                self.add_summary(compaction.summary, compaction.tokens_before, ContextStart::AfterSummary, source);
            }
        }
    }

    fn add_summary(&mut self, text: String, tokens_before: u64, context_start: ContextStart, source: Provenance) {
        self.close_run();
        let text = self.truncate(text);
        self.parts.push(ImportedPart::Summary { text, tokens_before, context_start, source });
    }

    fn add_branch_summary(&mut self, summary: &str, source: Provenance) {
        self.begin_run(vec![Content::Text(format!("(of another branch)\n{summary}"))], source);
    }

    /// Starts a run with a user message.
    fn begin_run(&mut self, content: Vec<Content>, source: Provenance) {
        self.close_run();
        let text = self.truncate(text_of(&content));
        let images = self.take_images(content);
        let (run, message) = (self.ids.run(), self.ids.message());
        self.open_run = Some(ImportedRun { run, message, text, images, turns: Vec::new(), source });
    }

    fn close_run(&mut self) {
        self.parts.extend(self.open_run.take().map(ImportedPart::Run));
        self.parts.append(&mut self.user_commands);
    }

    /// Adds a turn to the open run, or starts a run for it.
    fn add_turn(&mut self, assistant: Assistant, source: Provenance) {
        // Synthesized parts have no entry in the file.
        let made_up = Provenance { at: source.at, entry: Some(String::new()) };
        let (mut thinking, mut text) = (String::new(), String::new());
        let (mut calls, mut unresolved) = (Vec::new(), Vec::new());
        for block in assistant.blocks {
            match block {
                Block::Text(part) => append_line(&mut text, &part),
                Block::Thinking(part) => append_line(&mut thinking, &part),
                Block::ToolCall { id, name, args } => {
                    unresolved.push((id, calls.len()));
                    let args = self.bounded_arguments(args);
                    calls.push(unfinished_call(self.ids.call(), name, args, made_up.clone()));
                }
            }
        }
        if thinking.is_empty() && text.is_empty() && calls.is_empty() {
            // The turn failed before any output.
            return;
        }
        if self.open_run.is_none() {
            self.begin_run(vec![Content::Text(CONTINUATION_TEXT.to_owned())], made_up);
        }
        let (thinking, text) = (self.truncate(thinking), self.truncate(text));
        let usage = TurnUsage {
            model: assistant.model,
            usage: token_usage(&assistant.usage),
            provider_state: None,
            pending: Vec::new(),
        };
        let turn = ImportedTurn { thinking, text, message: self.ids.assistant_message(), usage, calls, source };
        if let Some(open) = &mut self.open_run {
            let (part, at) = (self.parts.len(), open.turns.len());
            let waits = |(id, call)| UnresolvedCall { id, at: (part, at, call) };
            self.unresolved.extend(unresolved.into_iter().map(waits));
            open.turns.push(turn);
        }
    }

    /// Assigns a result to its call; the latest one if several have the same id.
    fn add_result(&mut self, result: ToolResult, source: Provenance) {
        let mut text = result.text();
        let pictures = result.content.iter().filter(|part| matches!(part, Content::Image { .. })).count();
        if pictures > 0 {
            self.omitted += pictures as u64;
            append_line(&mut text, &format!("({pictures} images are omitted)"));
        }
        let text = self.truncate(text);
        let outcome = if result.is_error { ToolOutcome::Failed } else { ToolOutcome::Succeeded };
        match self.take_unresolved(&result.call) {
            Some(call) => (call.text, call.outcome, call.source) = (text, outcome, source),
            None => self.omitted += 1,
        }
    }

    /// Removes and returns the unresolved call of an id, also from a finished run.
    fn take_unresolved(&mut self, id: &str) -> Option<&mut ImportedCall> {
        let at = self.unresolved.iter().rposition(|unresolved| unresolved.id == id)?;
        let (part, turn, call) = self.unresolved.remove(at).at;
        let run = match self.parts.get_mut(part) {
            Some(ImportedPart::Run(run)) => run,
            Some(ImportedPart::UserCommand { .. } | ImportedPart::Summary { .. }) => return None,
            None => self.open_run.as_mut()?,
        };
        run.turns.get_mut(turn)?.calls.get_mut(call)
    }

    fn add_user_command(&mut self, bash: Bash, source: Provenance) {
        let outcome = match bash.exit_code {
            _ if bash.cancelled => ToolOutcome::Aborted,
            Some(0) => ToolOutcome::Succeeded,
            Some(_) | None => ToolOutcome::Failed,
        };
        let args = Json::new(serde_json::json!({ "command": bash.command }).to_string());
        let call = ImportedCall {
            outcome,
            exit_code: bash.exit_code.and_then(|code| i32::try_from(code).ok()),
            text: self.truncate(bash.output),
            ..unfinished_call(self.ids.call(), SHELL_TOOL.to_owned(), self.bounded_arguments(args), source)
        };
        let command = ImportedPart::UserCommand { call, in_context: !bash.excluded };
        if self.open_run.is_some() { self.user_commands.push(command) } else { self.parts.push(command) }
    }

    /// Returns the valid images, up to the limits of a message.
    fn take_images(&mut self, content: Vec<Content>) -> Vec<Image> {
        let mut images = Vec::new();
        let mut bytes_left = IMAGE_BYTES_MAX;
        for part in content {
            match part {
                Content::Text(_) => {}
                Content::Image { mime, data }
                    if is_image(&mime, &data) && data.len() <= bytes_left && images.len() < IMAGES_MAX =>
                {
                    bytes_left -= data.len();
                    images.push(Image { mime, data });
                }
                Content::Image { .. } => self.omitted += 1,
            }
        }
        images
    }

    /// Truncates a long text at a whitespace. Only its start is kept: redaction would not recognize half of a secret,
    /// or a key without its first line.
    fn truncate(&mut self, mut text: String) -> String {
        if text.len() <= TEXT_MAX {
            return text;
        }
        self.omitted += 1;
        let all = text.len();
        let end = text[..text.floor_char_boundary(TEXT_MAX)].rfind(char::is_whitespace).unwrap_or(0);
        text.truncate(end);
        text.push_str(&format!("\n({} bytes are omitted)", all - end));
        text
    }

    fn bounded_arguments(&mut self, args: Json) -> Json {
        let bytes = args.as_str().len();
        if bytes <= TEXT_MAX {
            return args;
        }
        self.omitted += 1;
        Json::new(format!("{{\"left_out\":\"{bytes} bytes\"}}"))
    }
}

/// A call without a result.
const fn unfinished_call(call: CallId, tool: String, args: Json, source: Provenance) -> ImportedCall {
    ImportedCall {
        call,
        tool,
        args,
        millis: 0,
        outcome: ToolOutcome::Aborted,
        exit_code: None,
        text: String::new(),
        error: None,
        source,
    }
}

fn token_usage(usage: &Usage) -> TokenUsage {
    TokenUsage {
        // The kernel counts cached tokens as input.
        input: sum([usage.input, usage.cache_read, usage.cache_write]),
        output: usage.output,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
        cost: millionths(usage.cost.total),
        estimated: false,
    }
}

fn append_line(text: &mut String, part: &str) {
    if !text.is_empty() && !part.is_empty() {
        text.push('\n');
    }
    text.push_str(part);
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
fn is_image(mime: &str, data: &str) -> bool {
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
