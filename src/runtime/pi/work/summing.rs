//! Summaries that somebody asks for.

use super::{Done, Job, Result};
use crate::kernel::command::{Answer, Command};
use crate::kernel::event::CompactionFailure;
use crate::kernel::refusal::Refusal;
use crate::protocol::pi::encode;
use crate::protocol::pi::error_text;
use crate::runtime::pi::desk::{Answered, Failure};
use crate::runtime::pi::seat::Compacted;

impl Job {
    pub(super) async fn compact(&self, instructions: Option<&str>) -> Result {
        let seat = self.seat().await?;
        self.synchronize(&seat).await;
        let command = Command::Compact { instructions: instructions.map(str::to_owned) };
        let Answer::CompactionStarted(began) = self.ask(&seat, command).await?.answer else {
            return Err(Failure::said(error_text::INTERNAL));
        };
        match seat.compacted(began).await {
            Some(Compacted::Done) => {
                let version = self.touch(&seat).await?;
                let summary = seat.tell(|story| story.summary().map(|summary| encode::compaction(&summary)));
                Ok(Done::at(summary.unwrap_or_else(encode::no_data), version))
            }
            Some(Compacted::Failed { ending: CompactionFailure::Aborted, .. }) => {
                Err(Failure::said("Compaction was aborted"))
            }
            Some(Compacted::Failed { ending: CompactionFailure::Failed, message }) => {
                Err(Failure::said(message.unwrap_or_else(|| "Compaction failed".to_owned())))
            }
            None => Err(Failure::said(error_text::session_not_found(seat.session().as_str()))),
        }
    }

    pub(super) async fn abort_compaction(&self) -> Result {
        let seat = self.seat().await?;
        let version = match self.ask(&seat, Command::StopCompaction).await {
            Ok(Answered { version, .. }) => version,
            // There is nothing to stop, which is what was wanted.
            Err(Failure::Refused(Refusal::NoCompaction)) => self.touch_unstopped(&seat).await?,
            Err(failure) => return Err(failure),
        };
        Ok(Done::at(encode::no_data(), version))
    }
}
