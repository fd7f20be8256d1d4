//! All limits of a session. They are passed in, so that tests can use single digits and reach each limit.

/// The limits of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many sequence numbers are reserved at once.
    pub reserve: u64,
    /// How many message ids are kept for idempotency; the oldest of ended runs are evicted first.
    pub idempotency_keys: usize,
    /// How many settled gates are kept, so that a late vote is distinguished from a vote on an unknown gate.
    pub settled_gates: usize,
    /// How many gates that belong to no run may be open.
    pub gates_without_run: usize,
    /// How many granted rules the run and the session each keep; the oldest are dropped first.
    pub granted: usize,
    /// How many messages may be queued behind a run.
    pub queue: usize,
    /// How many steering messages one run accepts.
    pub steers: usize,
    /// How many connections may be attached.
    pub attached: usize,
    /// How many participants a session may have, besides the owner.
    pub participants: usize,
    /// How many bytes of the last assistant text and of the last user message are kept.
    pub text_tail: usize,
    /// How long a gate waits before it counts as denied, in milliseconds.
    pub gate_millis: u64,
    /// How long the processes of a stopped run may take to exit before the run ends anyway, in milliseconds.
    pub stop_millis: u64,
    /// How many user commands may run at once.
    pub user_commands: usize,
    /// How many steps one import may have: messages, turns and tool calls.
    pub import_steps: usize,
    /// How many bytes of text one import may have.
    pub import_bytes: usize,
    /// How many events may follow a checkpoint before the next is due.
    pub checkpoint_every: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            reserve: 4096,
            idempotency_keys: 10_000,
            settled_gates: 1_000,
            gates_without_run: 64,
            granted: 200,
            queue: 100,
            steers: 100,
            attached: 4_096,
            participants: 256,
            text_tail: 8 * 1024,
            gate_millis: 24 * 60 * 60 * 1000,
            stop_millis: 5_000,
            user_commands: 8,
            import_steps: 20_000,
            import_bytes: 32 * 1024 * 1024,
            checkpoint_every: 2_048,
        }
    }
}
