//! Notifications of the user: a command of the user's own configuration, and the desktop.
//!
//! Lanes queue notices after their commits and never wait. A notifier gets a JSON object on standard input, the
//! environment of the owner's login shell and ten seconds. Its failure is logged and affects nothing else.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::os;
use super::services::Services;
use crate::config::settings::{NotifySettings, Switch};
use crate::invisible_chars::is_invisible;
use crate::kernel::event::{Event, EventKind, GateEvent, RunEvent, RunOutcome};
use crate::kernel::id::{GateId, SessionId};

/// What the user is notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeKind {
    /// An approval is wanted.
    Approval,
    /// A run has succeeded.
    RunComplete,
    /// A run has failed or was denied.
    RunFailed,
}

/// A notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserNotice {
    /// Its kind.
    pub kind: NoticeKind,
    /// The session.
    pub session: SessionId,
    /// The run, if there is one.
    pub run: Option<String>,
    /// The approval that is wanted.
    pub approval: Option<GateId>,
    /// A title, redacted.
    pub title: String,
    /// The question or the summary, redacted.
    pub text: String,
}

impl UserNotice {
    /// Returns the notice of an event; `None` if the event is none of those that a user is notified of.
    pub fn of_event(session: &SessionId, event: &Event) -> Option<Self> {
        if !event.audience.is_public() || event.origin.is_some() {
            return None;
        }
        let run = event.run.as_ref().map(|run| run.as_str().to_owned());
        let notice = |kind, approval, title: &str, text: &str| {
            let (title, text) = (plain(title, MAX_TITLE_CHARS), plain(text, MAX_TEXT_CHARS));
            Some(Self { kind, session: session.clone(), run, approval, title, text })
        };
        if let EventKind::Gate(GateEvent::Opened(question)) = &event.kind {
            return notice(NoticeKind::Approval, Some(question.gate.clone()), &question.title, &question.summary);
        }
        let EventKind::Run(RunEvent::Ended(report)) = &event.kind else { return None };
        match report.outcome {
            RunOutcome::Success => notice(NoticeKind::RunComplete, None, "Run complete", &report.summary),
            RunOutcome::Failed => notice(NoticeKind::RunFailed, None, "Run failed", &report.summary),
            RunOutcome::Denied => notice(NoticeKind::RunFailed, None, "Run denied", &report.summary),
            // Somebody has just done that.
            RunOutcome::Cancelled => None,
        }
    }

    const fn event_name(&self) -> &'static str {
        match self.kind {
            NoticeKind::Approval => "approval",
            NoticeKind::RunComplete => "run_complete",
            NoticeKind::RunFailed => "run_failed",
        }
    }

    fn command<'a>(&self, settings: &'a NotifySettings) -> Option<&'a str> {
        let command = match self.kind {
            NoticeKind::Approval => &settings.approval,
            NoticeKind::RunComplete => &settings.run_complete,
            NoticeKind::RunFailed => &settings.run_failed,
        };
        command.as_deref()
    }

    fn to_json(&self) -> String {
        let Self { session, run, approval, title, text, .. } = self;
        let object = json!({
            "event": self.event_name(),
            "sessionId": session.as_str(),
            "runId": run,
            "approvalId": approval.as_ref().map(GateId::as_str),
            "title": title,
            "text": text,
        });
        object.to_string() + "\n"
    }
}

/// Returns a text on one line without control characters and invisible ones, and of bounded length.
fn plain(text: &str, chars: usize) -> String {
    let visible = |letter: char| if letter.is_whitespace() || letter.is_control() { ' ' } else { letter };
    let text: String = text.chars().filter(|letter| !is_invisible(*letter)).map(visible).take(chars).collect();
    text.trim().to_owned()
}

/// The queue of notices.
#[derive(Debug)]
pub struct NoticeQueue {
    sender: mpsc::Sender<UserNotice>,
    receiver: Mutex<Option<mpsc::Receiver<UserNotice>>>,
}

impl NoticeQueue {
    /// Adds a notice. It never waits; if the queue is full the notice is dropped.
    pub fn push(&self, notice: UserNotice) {
        if self.sender.try_send(notice).is_err() {
            debug!("a notification was dropped: too many wait");
        }
    }
}

impl Default for NoticeQueue {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
        Self { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

/// Runs the notifiers of queued notices until the daemon shuts down.
pub async fn run(services: Arc<Services>) {
    let receiver = services.notices.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut receiver) = receiver else { return };
    let slots = Arc::new(Semaphore::new(MAX_CONCURRENT));
    loop {
        let notice = tokio::select! {
            biased;
            () = services.closing.wait() => return,
            notice = receiver.recv() => notice,
        };
        let Some(notice) = notice else { return };
        let Ok(settings) = services.model_config.settings() else { continue };
        let desktop = (settings.notify.desktop == Switch::On).then(|| os::desktop_command(&notice.title, &notice.text));
        let own = notice.command(&settings.notify).map(os::shell_command);
        for command in [own, desktop.flatten()].into_iter().flatten() {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            let (services, notice) = (Arc::clone(&services), notice.clone());
            tokio::spawn(async move {
                let environment = services.login_environment().await;
                let mut command = command;
                command.env_clear().envs(environment.variables()).stdout(Stdio::null()).stderr(Stdio::null());
                if let Err(why) = notify(command, &notice.to_json()).await {
                    warn!(event = notice.event_name(), why, "a notifier failed");
                }
                drop(slot);
            });
        }
    }
}

/// Runs one notifier to its end.
async fn notify(mut command: Command, input: &str) -> Result<(), String> {
    command.stdin(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
    let stdin = child.stdin.take();
    let work = async {
        if let Some(mut stdin) = stdin {
            // A notifier need not read its input.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait().await
    };
    match timeout(TIME_LIMIT, work).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(status.to_string()),
        Ok(Err(error)) => Err(format!("it cannot be waited for: {error}")),
        Err(_) => {
            os::kill_group(&mut child).await;
            Err(format!("it did not end within {} s", TIME_LIMIT.as_secs()))
        }
    }
}

/// The number of notices that may wait.
const QUEUE_CAPACITY: usize = 64;
/// The number of notifiers that may run at a time.
const MAX_CONCURRENT: usize = 4;
/// The time limit of a notifier.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// The maximum length of a title, and of a text.
const MAX_TITLE_CHARS: usize = 100;
const MAX_TEXT_CHARS: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_no_control_characters_and_are_bounded() {
        assert_eq!(plain("a\u{1b}[2J\n\u{202e}b\u{200b}", 80), "a [2J b");
        assert_eq!(plain(&"x".repeat(900), MAX_TEXT_CHARS).len(), MAX_TEXT_CHARS);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_notifier_that_does_not_end_is_killed_with_its_processes() {
        use std::io::BufRead;

        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = os::shell_command("sleep 1000 & echo started; wait");
        command.stdout(writer).stderr(Stdio::null());
        let notifier = tokio::spawn(notify(command, "{}\n"));
        let mut lines = std::io::BufReader::new(reader).lines();
        let (first, mut lines) = tokio::task::spawn_blocking(move || (lines.next(), lines)).await.unwrap();
        assert_eq!(first.unwrap().unwrap(), "started");
        tokio::time::pause();
        tokio::time::advance(TIME_LIMIT).await;
        assert_eq!(notifier.await.unwrap().unwrap_err(), "it did not end within 10 s");
        // The pipe ends when no process has it.
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || ended.send(lines.next().is_none()));
        assert_eq!(end.recv_timeout(Duration::from_secs(60)), Ok(true), "a process of the notifier is left");
    }
}
