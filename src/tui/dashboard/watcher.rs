//! The task that follows sessions, on a connection of its own that can only read.
//!
//! Of the session that is shown all events are passed on; of the others only those that change their row.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::mpsc::Sender;
use tokio::sync::watch::Receiver;

use super::model::{Input, PreviewStart, Watched};
use super::requests::Report;
use crate::client::{Access, Client, Event, Request, RequestError};
use crate::kernel::event::{EventKind, RunEvent};
use crate::tui::app::SKIPPED_NUMBERS;
use crate::tui::client_task::call_error;

/// How many positions before the last one are shown: 1,500 events, and the numbers that one crash of the daemon skips.
const HISTORY_EVENTS: u64 = 1500 + SKIPPED_NUMBERS;

/// Follows the wanted sessions until the dashboard ends or the daemon is lost.
pub(crate) async fn watch(mut client: Client, mut wanted: Receiver<Watched>, reports: Sender<Report>) {
    client.stay();
    let mut state = Followed::default();
    loop {
        let step = state.next_step(&wanted.borrow_and_update());
        let outcome = match step {
            Some(step) => perform(&mut client, &step, &mut state).await,
            None => tokio::select! {
                biased;
                changed = wanted.changed() => if changed.is_ok() { continue } else { return },
                event = client.next() => match event {
                    Ok(event) => Ok(state.input(event)),
                    Err(error @ RequestError::Unreachable(_)) => Err(error),
                    Err(error) => Ok(state.refused(&mut client, &error)),
                },
            },
        };
        let report = match outcome {
            Ok(None) => continue,
            Ok(Some(input)) => Report::Input(input),
            Err(error) => Report::Lost(error),
        };
        let is_lost = matches!(report, Report::Lost(_));
        if reports.send(report).await.is_err() || is_lost {
            return;
        }
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Preview(String, u16),
    Follow(String),
    Drop(String),
}

/// The sessions that are followed.
#[derive(Debug, Default)]
struct Followed {
    /// Each with its last event at the time.
    sessions: BTreeMap<String, u64>,
    preview: Option<(String, u16)>,
    /// Those that the daemon refuses.
    refused: BTreeSet<String>,
    attempt: u64,
}

impl Followed {
    fn next_step(&mut self, wanted: &Watched) -> Option<Step> {
        // What was refused is tried again with a new connection, on demand, and after it was not wanted for a while.
        let is_new_attempt = std::mem::replace(&mut self.attempt, wanted.attempt) != wanted.attempt;
        let is_shown = |session: &String| wanted.preview.as_ref().is_some_and(|(shown, _)| shown == session);
        let is_wanted = |session: &String| wanted.active.contains(session) || is_shown(session);
        self.refused.retain(|session| !is_new_attempt && is_wanted(session));
        if self.preview != wanted.preview {
            self.preview = None;
            let wanted = wanted.preview.clone().filter(|(session, _)| !self.refused.contains(session));
            if let Some((session, width)) = wanted {
                return Some(Step::Preview(session, width));
            }
        }
        let preview = wanted.preview.as_ref().map(|(session, _)| session);
        let is_surplus = |session: &&String| !wanted.active.contains(*session) && preview != Some(*session);
        if let Some(surplus) = self.sessions.keys().find(is_surplus) {
            return Some(Step::Drop(surplus.clone()));
        }
        let is_missing = |session: &&String| !self.sessions.contains_key(*session) && !self.refused.contains(*session);
        wanted.active.iter().find(is_missing).map(|session| Step::Follow(session.clone()))
    }

    /// Returns what an event means to the dashboard.
    fn input(&self, event: Event) -> Option<Input> {
        let history_end = *self.sessions.get(&event.session)?;
        let is_replay = event.seq <= history_end;
        let is_shown = self.preview.as_ref().is_some_and(|(session, _)| *session == event.session);
        let is_row = !is_replay && changes_row(&event);
        (is_shown || is_row).then(|| Input::Event { event: Box::new(event), is_replay })
    }

    /// Finds out which session the daemon refuses; if none was deleted, all are followed anew.
    fn refused(&mut self, client: &mut Client, error: &RequestError) -> Option<Input> {
        let gone = self.sessions.keys().find(|session| !client.is_subscribed(session)).cloned();
        let Some(session) = gone else {
            client.forget_subscriptions();
            self.sessions.clear();
            self.preview = None;
            return None;
        };
        self.refuse(&session);
        Some(Input::Unfollowed { session, error: call_error(error) })
    }

    fn refuse(&mut self, session: &str) {
        self.sessions.remove(session);
        self.refused.insert(session.to_owned());
    }
}

/// Returns whether an event changes how a session is listed.
fn changes_row(event: &Event) -> bool {
    match event.recorded() {
        Some(EventKind::Run(run)) => matches!(run, RunEvent::Started(_) | RunEvent::Ended(_)),
        Some(EventKind::Gate(_) | EventKind::Session(_)) => true,
        Some(EventKind::Tool(_) | EventKind::Participant(_) | EventKind::Context(_) | EventKind::Notice(_)) | None => {
            false
        }
    }
}

async fn perform(client: &mut Client, step: &Step, state: &mut Followed) -> Result<Option<Input>, RequestError> {
    let (session, outcome) = match step {
        Step::Preview(session, width) => (session, preview(client, session, *width, state).await.map(Some)),
        Step::Follow(session) => (session, follow(client, session, state).await.map(|()| None)),
        Step::Drop(session) => {
            state.sessions.remove(session);
            (session, client.detach(session).await.map(|()| None))
        }
    };
    match outcome {
        Err(error @ RequestError::Unreachable(_)) => Err(error),
        Err(error) => {
            state.refuse(session);
            Ok(Some(Input::Unfollowed { session: session.clone(), error: call_error(&error) }))
        }
        Ok(input) => Ok(input),
    }
}

async fn preview(client: &mut Client, session: &str, width: u16, state: &mut Followed) -> Result<Input, RequestError> {
    let snapshot = client.request(Request::session_snapshot(session)).await?;
    let seen = snapshot.last_seq.saturating_sub(HISTORY_EVENTS);
    let history_end = client.attach(session, seen, Access::ReadOnly).await?.to_seq;
    // A session that was followed before has passed on what it has replayed now.
    let followed = state.sessions.entry(session.to_owned()).or_default();
    *followed = history_end.max(*followed);
    state.preview = Some((session.to_owned(), width));
    Ok(Input::Preview(Box::new(PreviewStart { session: session.to_owned(), width, snapshot, history_end })))
}

async fn follow(client: &mut Client, session: &str, state: &mut Followed) -> Result<(), RequestError> {
    let snapshot = client.request(Request::session_snapshot(session)).await?;
    let replay = client.attach(session, snapshot.last_seq, Access::ReadOnly).await?;
    state.sessions.insert(session.to_owned(), replay.to_seq);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::test_events::event;

    fn wanted(preview: Option<&str>, active: &[&str]) -> Watched {
        let active = active.iter().map(|session| (*session).to_owned()).collect();
        Watched { preview: preview.map(|session| (session.to_owned(), 40)), active, attempt: 0 }
    }

    #[test]
    fn the_preview_comes_first_and_what_nobody_wants_is_dropped() {
        let mut state = Followed::default();
        let both = wanted(Some("p"), &["a"]);
        assert_eq!(state.next_step(&both), Some(Step::Preview("p".into(), 40)));
        state.preview.clone_from(&both.preview);
        state.sessions.insert("p".into(), 0);
        assert_eq!(state.next_step(&both), Some(Step::Follow("a".into())));
        state.sessions.insert("a".into(), 0);
        assert_eq!(state.next_step(&both), None);
        assert_eq!(state.next_step(&wanted(None, &["a"])), Some(Step::Drop("p".into())));
        state.refuse("a");
        assert_eq!(state.next_step(&wanted(Some("p"), &["a"])), Some(Step::Preview("p".into(), 40)));
    }

    #[test]
    fn a_refused_session_is_tried_again() {
        let mut state = Followed::default();
        state.refuse("a");
        assert_eq!(state.next_step(&wanted(None, &["a"])), None);
        let again = Watched { attempt: 1, ..wanted(None, &["a"]) };
        assert_eq!(state.next_step(&again), Some(Step::Follow("a".into())));
        state.refuse("a");
        assert_eq!(state.next_step(&again), None);
        // It is no longer wanted, and then it is.
        assert_eq!(state.next_step(&Watched { attempt: 1, ..wanted(None, &[]) }), None);
        assert_eq!(state.next_step(&again), Some(Step::Follow("a".into())));
    }

    #[test]
    fn only_the_shown_session_passes_on_text() {
        let mut state = Followed::default();
        state.sessions.insert("s".into(), 4);
        let text = |seq| Event { seq, ..event("assistant_token", json!({"text": "x"})) };
        let ended = |seq| Event { seq, ..event("run_complete", json!({})) };
        assert!(state.input(text(5)).is_none() && state.input(ended(4)).is_none());
        assert!(matches!(state.input(ended(5)), Some(Input::Event { is_replay: false, .. })));
        state.preview = Some(("s".into(), 40));
        assert!(matches!(state.input(text(4)), Some(Input::Event { is_replay: true, .. })));
        let other = Event { session: "other".into(), ..ended(9) };
        assert!(state.input(other).is_none());
    }
}
