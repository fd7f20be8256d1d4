//! What a run is doing, in words.

use super::model::Millis;
use crate::display::usage::UsageTotal;

/// The active run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunState {
    /// Its id.
    pub(crate) id: String,
    /// When it started, as far as that is known.
    pub(crate) started_at: Millis,
    /// What it is doing.
    pub(crate) activity: Activity,
    /// Since when.
    pub(crate) since: Millis,
    /// Its tokens and cost.
    pub(crate) usage: UsageTotal,
}

/// What a run waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Activity {
    /// The model has not answered.
    Model,
    /// The model is reasoning.
    Thinking,
    /// The model is writing.
    Writing,
    /// A tool call is running.
    Tool(String),
    /// A decision is pending.
    Approval,
    /// The provider is asked again after a pause.
    Retry {
        /// The number of the retry.
        attempt: u32,
        /// The maximum number of retries.
        max_attempts: u32,
        /// When the pause ends.
        until: Millis,
        /// The error.
        message: String,
    },
    /// The conversation is being summarised.
    Compaction,
    /// The provider reports this.
    Provider(String),
    /// The run is being stopped.
    Stopping,
}

impl RunState {
    /// Starts to wait for the model.
    pub(crate) fn new(id: &str, now: Millis) -> Self {
        Self { id: id.to_owned(), started_at: now, activity: Activity::Model, since: now, usage: UsageTotal::default() }
    }

    /// Changes the activity. A run that is being stopped stays so.
    pub(crate) fn set(&mut self, activity: Activity, now: Millis) {
        if self.activity != activity && self.activity != Activity::Stopping {
            self.activity = activity;
            self.since = now;
        }
    }

    /// Returns what the run waits for, as text.
    pub(crate) fn words(&self, now: Millis) -> String {
        match &self.activity {
            Activity::Model => "waiting for the model".to_owned(),
            Activity::Thinking => "thinking".to_owned(),
            Activity::Writing => "writing".to_owned(),
            Activity::Tool(title) => format!("running {title}"),
            Activity::Approval => "waiting for approval".to_owned(),
            Activity::Retry { attempt, max_attempts, until, message } => {
                let seconds = until.saturating_sub(now).div_ceil(1000);
                format!("retry {attempt} of {max_attempts} in {seconds} s: {message}")
            }
            Activity::Compaction => "summarising the conversation".to_owned(),
            Activity::Provider(words) => words.clone(),
            Activity::Stopping => "stopping".to_owned(),
        }
    }
}
