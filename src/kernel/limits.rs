//! Every bound of a session, passed in, so that tests set them to single digits and reach the edge.

/// The bounds of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many sequence numbers are reserved at once.
    pub reserve: u64,
    /// How many message ids are remembered for idempotency; the oldest settled ones go first.
    pub ledger: usize,
    /// How many settled gates are remembered, so that a late verdict is told from a foreign one.
    pub settled_gates: usize,
    /// How many rules are remembered that somebody granted for the run, and for the session; the oldest go first.
    pub granted: usize,
    /// How many messages may wait behind a run.
    pub queue: usize,
    /// How many steering messages one run takes.
    pub steers: usize,
    /// How many participants may be attached.
    pub participants: usize,
    /// How many bytes of the last assistant text and the last user message a snapshot keeps.
    pub text_tail: usize,
    /// How long a gate waits before it counts as denied, in milliseconds.
    pub gate_millis: u64,
    /// How long a stopped run may take to lose its processes before it is ended all the same, in milliseconds.
    pub stop_millis: u64,
    /// How many tools may be used for the user at once.
    pub asides: usize,
    /// How many steps may be taken in at once: messages, turns and uses of tools.
    pub import_steps: usize,
    /// How many bytes of text they may have together.
    pub import_bytes: usize,
    /// How many events may follow a checkpoint before the next is due.
    pub checkpoint_every: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            reserve: 4096,
            ledger: 10_000,
            settled_gates: 1_000,
            granted: 200,
            queue: 100,
            steers: 100,
            participants: 4_096,
            text_tail: 8 * 1024,
            gate_millis: 24 * 60 * 60 * 1000,
            stop_millis: 5_000,
            asides: 8,
            import_steps: 20_000,
            import_bytes: 32 * 1024 * 1024,
            checkpoint_every: 2_048,
        }
    }
}
