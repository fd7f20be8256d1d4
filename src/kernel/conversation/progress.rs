//! The progress of the run: whether the current turn has an answer.

/// The progress of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Progress {
    /// Whether a run is active.
    pub(super) is_active: bool,
    /// Whether a turn has started: a message of the user or of the assistant is there.
    pub(super) turn_started: bool,
    /// Whether the turn has a message of the assistant.
    pub(super) turn_answered: bool,
    /// Whether a message of the user arrived while the assistant was writing.
    pub(super) has_waiting_message: bool,
}

impl Progress {
    /// Starts a run with a message of the user.
    pub(super) const fn begin_run(&mut self) {
        *self = Self { is_active: true, turn_started: true, turn_answered: false, has_waiting_message: false };
    }

    /// Adds a message of the user to the run.
    pub(super) const fn add_message(&mut self, is_writing: bool) {
        if is_writing {
            self.has_waiting_message = true;
        } else if self.is_active {
            self.turn_started = true;
        }
    }

    /// Ends the turn if it has an answer.
    pub(super) const fn end_turn(&mut self) {
        if self.turn_started && self.turn_answered {
            self.turn_started = false;
            self.turn_answered = false;
        }
    }

    /// Starts the turn of a message that waited for the end of the assistant's message.
    pub(super) const fn deliver_waiting(&mut self) {
        if self.has_waiting_message {
            self.has_waiting_message = false;
            self.turn_started = self.turn_started || self.is_active;
        }
    }
}
