//! The script of the model server, independent of dialects.

use std::time::Duration;

/// The reply to one request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// A model's turn.
    Turn(Turn),
    /// Another status than success, or a body that is no turn.
    Plain { status: u16, headers: Vec<(String, String)>, body: Vec<u8> },
    /// Bytes that are no HTTP.
    NotHttp,
    /// No response, for ever.
    Never,
    /// The head of a successful response, and then nothing.
    HeadOnly,
    /// The connection is closed without a response.
    HangUp,
    /// The connection is reset without a response.
    Reset,
}

/// A model's turn.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) steps: Vec<Step>,
    pub(crate) end: End,
    pub(crate) spent: Option<TurnCost>,
    pub(crate) delivery: Delivery,
}

/// A step of a turn.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A token of text.
    Say(String),
    /// A token of thinking.
    Think(String),
    /// A tool call, its arguments in fragments of this many bytes where the dialect has fragments.
    Call { id: String, tool: String, args: String, fragment: usize },
    /// A fault.
    Fault(Fault),
}

/// A fault in the middle of a turn.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The connection is closed between two events.
    Cut,
    /// The connection is closed inside a character.
    CutInsideCharacter,
    /// The connection is reset.
    Reset,
    /// The body ends correctly, but the turn does not.
    EndEarly,
    /// Nothing more is sent.
    Stall,
    /// An event that cannot be parsed.
    Garbage,
    /// A line of this many bytes.
    HugeLine(usize),
    /// The server reports an error.
    Error { kind: String, message: String },
}

/// Why the model stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Calls,
    Length,
    Refused,
}

/// The usage and cost of a turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnCost {
    /// Input tokens, without those read from or written to the cache.
    pub(crate) fresh: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
    pub(crate) output: u64,
    pub(crate) dollars: f64,
}

/// How the bytes are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// One event per chunk and per write.
    Events,
    /// One byte per chunk.
    Bytes,
    /// One event per chunk, as many per write as fit: as fast as the socket accepts them.
    Fast,
    /// One event per chunk, with a pause before each.
    Paced(Duration),
    /// No chunks: the end of the connection is the end of the body.
    UntilClose,
}

impl Reply {
    /// A turn of one text.
    pub(crate) fn says(text: &str) -> Self {
        Self::turn([Step::Say(text.to_owned())])
    }

    /// A turn of these steps, with the matching end.
    pub(crate) fn turn(steps: impl IntoIterator<Item = Step>) -> Self {
        let steps: Vec<Step> = steps.into_iter().collect();
        let calls = steps.iter().any(|step| matches!(step, Step::Call { .. }));
        let end = if calls { End::Calls } else { End::Done };
        Self::Turn(Turn { steps, end, spent: None, delivery: Delivery::Events })
    }

    /// A status with a body of JSON.
    pub(crate) fn status(status: u16, body: &str) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self::Plain { status, headers, body: body.as_bytes().to_vec() }
    }

    /// The same with another header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        let Self::Plain { headers, .. } = &mut self else { panic!("{self:?} has no headers of its own") };
        headers.retain(|(known, _)| known != name);
        headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same turn with another end.
    pub(crate) fn ends(self, end: End) -> Self {
        self.with(|turn| turn.end = end)
    }

    /// The same turn with its cost.
    pub(crate) fn spends(self, spent: TurnCost) -> Self {
        self.with(|turn| turn.spent = Some(spent))
    }

    /// The same turn, delivered in another way.
    pub(crate) fn delivered(self, delivery: Delivery) -> Self {
        self.with(|turn| turn.delivery = delivery)
    }

    fn with(mut self, change: impl FnOnce(&mut Turn)) -> Self {
        let Self::Turn(turn) = &mut self else { panic!("{self:?} is no turn") };
        change(turn);
        self
    }
}

/// A token of text.
pub(crate) fn say(text: &str) -> Step {
    Step::Say(text.to_owned())
}

/// A token of thinking.
pub(crate) fn think(text: &str) -> Step {
    Step::Think(text.to_owned())
}

/// A call with whole arguments.
pub(crate) fn call(id: &str, tool: &str, args: &str) -> Step {
    Step::Call { id: id.to_owned(), tool: tool.to_owned(), args: args.to_owned(), fragment: usize::MAX }
}

/// A fault.
pub(crate) fn fault(fault: Fault) -> Step {
    Step::Fault(fault)
}
