//! The edge of the view: keys, signals, the daemon and the terminal. Everything else is pure.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossterm::event::Event as TerminalEvent;
use ratatui::text::{Line, Span};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use ulid::Ulid;

use super::client_task::{AutoDecision, Call, Report, serve};
use super::files;
use super::model::{Departure, Effect, Input, Millis, Model, Setup};
use super::signals::{Signal, Signals};
use super::terminal::TerminalGuard;
use super::text::theme::Theme;
use super::update::{next_tick, update};
use super::view;
use super::writer::{Frame, InlineWriter};
use crate::client::{Access, Client, Event, Notice, Request, RequestError, SessionSnapshot};
use crate::display::approval::PendingApproval;
use crate::display::sanitize::sanitize;
use crate::display::style::Style;
use crate::kernel::event::{EventKind, GateEvent};

/// How many events before the last one are shown when the view attaches.
const HISTORY_EVENTS: u64 = 3000;
/// How many lines of them are kept until the first drawing.
const HISTORY_LINES: usize = 2000;
/// The shortest time between two drawings.
const FRAME: Duration = Duration::from_millis(16);
/// How long a new size must last before it is drawn.
const RESIZE_PAUSE: Duration = Duration::from_millis(40);
/// How long the first drawing waits for the history.
const HISTORY_TIMEOUT: Duration = Duration::from_millis(500);
/// How many reports are applied between two drawings.
const REPORTS: usize = 512;

/// What the view shows.
pub(crate) struct Options {
    /// The session.
    pub(crate) session: String,
    /// The session as users name it.
    pub(crate) handle: String,
    /// The styles.
    pub(crate) theme: Theme,
    /// From where on the session is shown.
    pub(crate) start: StartPosition,
    /// What the user may do.
    pub(crate) access: Access,
    /// A message to send first.
    pub(crate) first_message: Option<String>,
    /// Decides approvals by a policy.
    pub(crate) auto_decision: Option<AutoDecision>,
}

/// From where on a session is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StartPosition {
    /// From a bounded number of events before the end.
    NearEnd,
    /// After this event.
    After(u64),
    /// The client follows the session already; the message of this run is not shown again.
    Run(String),
}

/// How the view ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// The user left.
    Detached {
        /// Whether a run is active.
        is_running: bool,
    },
    /// The user pressed Ctrl-C twice.
    Interrupted {
        /// Whether a run is active.
        is_running: bool,
    },
    /// The observer has seen what it waited for.
    Finished,
}

/// Why the view failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TuiError {
    /// The daemon cannot be reached or refused a request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The terminal cannot be used.
    #[error("cannot use the terminal")]
    Terminal(#[from] io::Error),
}

/// Shows a session until the user leaves or `observe` returns true for an event.
pub(crate) async fn run(
    mut client: Client,
    options: Options,
    notices: UnboundedReceiver<Notice>,
    observe: &mut (dyn FnMut(&Event) -> bool + Send),
) -> Result<Leave, TuiError> {
    let snapshot = client.request(Request::session_snapshot(&options.session)).await?;
    let (seen, history_end) = match &options.start {
        StartPosition::Run(_) => (0, 0),
        StartPosition::NearEnd => {
            attach(&mut client, &options, snapshot.last_seq.saturating_sub(HISTORY_EVENTS)).await?
        }
        StartPosition::After(seen) => attach(&mut client, &options, *seen).await?,
    };
    let mut app = App::start(client, options, snapshot, history_end)?;
    app.is_shortened = seen > 0;
    let outcome = app.run(notices, observe).await;
    let left = app.finish(outcome);
    app.task.abort();
    left
}

async fn attach(client: &mut Client, options: &Options, seen: u64) -> Result<(u64, u64), RequestError> {
    let replay = client.attach(&options.session, seen, options.access).await?;
    Ok((seen, replay.to_seq))
}

struct App {
    model: Model,
    writer: InlineWriter,
    terminal: TerminalGuard,
    signals: Signals,
    keys: UnboundedReceiver<TerminalEvent>,
    calls: UnboundedSender<(u64, Call)>,
    reports: Receiver<Report>,
    task: JoinHandle<()>,
    files: (Sender<Vec<String>>, Receiver<Vec<String>>),
    auto_decision: Option<AutoDecision>,
    first_message: Option<String>,
    started: Instant,
    /// When the next drawing is due; none if nothing has changed.
    draw_at: Option<Instant>,
    drawn_at: Instant,
    /// Whether the beginning of the session is not shown.
    is_shortened: bool,
}

impl App {
    fn start(client: Client, options: Options, snapshot: SessionSnapshot, history_end: u64) -> Result<Self, TuiError> {
        let signals = Signals::listen()?;
        let terminal = TerminalGuard::enter()?;
        let size = crossterm::terminal::size()?;
        let (calls, received) = unbounded_channel();
        let (sender, reports) = channel(REPORTS);
        let directory = snapshot.meta.cwd.clone();
        let task = tokio::spawn(serve(client, (options.session.clone(), directory), received, sender));
        let is_playbook = snapshot.meta.provider == "playbook";
        let own_run = match options.start {
            StartPosition::Run(run) => Some(run),
            StartPosition::NearEnd | StartPosition::After(_) => None,
        };
        let setup = Setup {
            theme: options.theme,
            session: options.session,
            handle: options.handle,
            snapshot,
            own_run,
            read_only: options.access != Access::Full,
            history_end,
            size,
            full_output: is_playbook,
            now: now(),
            new_id: || format!("msg_{}", Ulid::generate()),
        };
        let started = Instant::now();
        Ok(Self {
            model: Model::new(setup),
            writer: InlineWriter::default(),
            terminal,
            signals,
            keys: read_keys(),
            calls,
            reports,
            task,
            files: channel(1),
            auto_decision: options.auto_decision,
            first_message: options.first_message,
            started,
            draw_at: Some(started),
            drawn_at: started,
            is_shortened: false,
        })
    }

    /// Runs until the user leaves.
    async fn run(
        &mut self,
        mut notices: UnboundedReceiver<Notice>,
        observe: &mut (dyn FnMut(&Event) -> bool + Send),
    ) -> Result<Leave, TuiError> {
        let mut effects = self.first_calls();
        loop {
            if let Some(leave) = self.perform(std::mem::take(&mut effects))? {
                return Ok(leave);
            }
            // A terminal that cannot be written is gone, which detaches.
            if self.draw_if_due().is_err() {
                return Ok(self.detached());
            }
            let draw_at = if self.awaits_history() { Some(self.started + HISTORY_TIMEOUT) } else { self.draw_at };
            let tick = next_tick(&self.model).map(|at| Duration::from_millis(at.saturating_sub(now())));
            let input = tokio::select! {
                biased;
                signal = self.signals.next() => self.signal(signal),
                Some(event) = self.keys.recv() => self.terminal_event(event),
                Some(notice) = notices.recv() => Some(Input::Notice(notice)),
                report = self.reports.recv() => match report {
                    Some(report) => match self.report(report, observe, &mut effects)? {
                        Some(leave) => return Ok(leave),
                        None => None,
                    },
                    None => return Ok(self.detached()),
                },
                Some(files) = self.files.1.recv() => Some(Input::Files(files)),
                () = wait_until(draw_at) => None,
                () = sleep(tick.unwrap_or_default()), if tick.is_some() => Some(Input::Tick),
            };
            if let Some(input) = input {
                effects.extend(self.apply(input));
            }
        }
    }

    fn first_calls(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.model.read_only {
            effects.push(self.model.call(Call::ListQueue, None));
        }
        effects.push(self.model.call(Call::ListApprovals, None));
        if let Some(text) = self.first_message.take() {
            let id = (self.model.new_id)();
            effects.push(self.model.call(Call::Queue { id, text: text.clone() }, Some(text)));
        }
        effects
    }

    fn apply(&mut self, input: Input) -> Vec<Effect> {
        let effects = update(&mut self.model, input, now());
        self.request_drawing(FRAME);
        effects
    }

    /// Applies a report and those that have arrived after it.
    fn report(
        &mut self,
        report: Report,
        observe: &mut (dyn FnMut(&Event) -> bool + Send),
        effects: &mut Vec<Effect>,
    ) -> Result<Option<Leave>, TuiError> {
        let mut next = Some(report);
        let mut count = 0;
        while let Some(report) = next.take() {
            match report {
                Report::Event(event) => {
                    let is_over = observe(&event);
                    let decided = self.decide(&event);
                    let is_history = !self.model.is_live();
                    effects.extend(self.apply(Input::Event(event)));
                    if is_history {
                        self.is_shortened |= self.model.transcript.keep_last(HISTORY_LINES);
                    }
                    if let Some(call) = decided {
                        effects.push(self.model.call(call, None));
                        self.model.card.iter_mut().for_each(|card| card.is_sent = true);
                    }
                    if is_over {
                        return Ok(Some(Leave::Finished));
                    }
                }
                Report::Reply { number, reply } => effects.extend(self.apply(Input::Reply { number, reply })),
                Report::Lost(error) => return Err(error.into()),
            }
            count += 1;
            if count < REPORTS {
                next = self.reports.try_recv().ok();
            }
        }
        Ok(None)
    }

    /// Returns the decision of the policy of the run.
    fn decide(&self, event: &Event) -> Option<Call> {
        let EventKind::Gate(GateEvent::Opened(question)) = event.recorded()? else { return None };
        let pending = PendingApproval::new(&event.session, event.run.as_deref(), question);
        let (decision, comment) = self.auto_decision.as_ref()?(&pending)?;
        Some(Call::Decide { pending: Box::new(pending), decision, comment, rule: None })
    }

    fn signal(&mut self, signal: Signal) -> Option<Input> {
        match signal {
            Signal::Interrupt => Some(Input::Interrupt),
            Signal::Detach => Some(Input::Detach),
            Signal::Suspend => Some(Input::Suspend),
            Signal::Redraw => {
                self.request_drawing(RESIZE_PAUSE);
                None
            }
        }
    }

    fn terminal_event(&mut self, event: TerminalEvent) -> Option<Input> {
        match event {
            TerminalEvent::Key(key) => Some(Input::Key(key)),
            TerminalEvent::Paste(text) => Some(Input::Paste(text)),
            TerminalEvent::FocusGained => Some(Input::Focus(true)),
            TerminalEvent::FocusLost => Some(Input::Focus(false)),
            TerminalEvent::Resize(_, _) => {
                self.request_drawing(RESIZE_PAUSE);
                None
            }
            TerminalEvent::Mouse(_) => None,
        }
    }

    /// Performs effects; returns how the view ends, if it does.
    fn perform(&mut self, effects: Vec<Effect>) -> Result<Option<Leave>, TuiError> {
        for effect in effects {
            match effect {
                // Without the task the daemon is lost, which the task reports.
                Effect::Call(number, call) => drop(self.calls.send((number, call))),
                Effect::Leave(Departure::Detached) => return Ok(Some(self.detached())),
                Effect::Leave(Departure::Interrupted) => {
                    return Ok(Some(Leave::Interrupted { is_running: self.model.run.is_some() }));
                }
                Effect::Suspend => self.suspend()?,
                Effect::ListFiles(directory) => {
                    let sender = self.files.0.clone();
                    tokio::task::spawn_blocking(move || sender.blocking_send(files::list(&directory)));
                }
                Effect::Notify(text) => self.terminal.write(&notification(&text))?,
                Effect::Redraw => {
                    self.terminal.write("\x1b[H\x1b[2J")?;
                    self.writer.forget();
                    self.request_drawing(Duration::ZERO);
                }
            }
        }
        Ok(None)
    }

    const fn detached(&self) -> Leave {
        Leave::Detached { is_running: self.model.run.is_some() }
    }

    fn request_drawing(&mut self, pause: Duration) {
        let due = match pause {
            FRAME => self.drawn_at + FRAME,
            pause => Instant::now() + pause,
        };
        self.draw_at = Some(match self.draw_at {
            // A pause after a change of the size is not shortened by what happens during it.
            Some(at) if pause == FRAME => at.max(due),
            Some(_) | None => due,
        });
    }

    fn draw_if_due(&mut self) -> Result<(), TuiError> {
        let is_due = self.draw_at.is_some_and(|at| at <= Instant::now());
        if is_due && !self.awaits_history() {
            self.draw(None)?;
        }
        Ok(())
    }

    /// Returns whether the first drawing waits for the events of the history.
    fn awaits_history(&self) -> bool {
        !self.model.is_live() && self.started.elapsed() < HISTORY_TIMEOUT
    }

    fn draw(&mut self, last: Option<&Frame>) -> Result<(), TuiError> {
        let size = crossterm::terminal::size()?;
        if size != self.model.size {
            // It has no effects.
            let _ = update(&mut self.model, Input::Resize(size.0, size.1), now());
        }
        self.model.now = now();
        let mut finished = self.model.transcript.take_finished();
        if std::mem::take(&mut self.is_shortened) {
            let text = format!("earlier output: `push log {}`", self.model.handle);
            finished.insert(0, Line::from(Span::styled(text, self.model.theme.faint)));
        }
        let text = match last {
            Some(frame) => self.writer.draw(&finished, frame, size),
            None => self.writer.draw(&finished, &view::draw(&self.model), size),
        };
        if !text.is_empty() {
            self.terminal.write(&text)?;
        }
        if last.is_none()
            && let Some(card) = &mut self.model.card
        {
            // After the write, which takes as long as the terminal needs.
            card.mark_drawn(now());
        }
        self.draw_at = None;
        self.drawn_at = Instant::now();
        Ok(())
    }

    fn suspend(&mut self) -> Result<(), TuiError> {
        self.draw(Some(&Frame::default()))?;
        self.terminal.suspend()?;
        self.writer.forget();
        self.request_drawing(Duration::ZERO);
        Ok(())
    }

    /// Removes the region; what was written and not sent is printed, so that it is not lost.
    fn finish(&mut self, outcome: Result<Leave, TuiError>) -> Result<Leave, TuiError> {
        let now = self.model.now;
        self.model.transcript.close(now);
        let drafts = self.model.pending.values().filter_map(|pending| pending.draft.clone());
        let mut unsent: Vec<_> = drafts.map(|text| ("sent, and not confirmed by pushd:", text)).collect();
        unsent.push(("not sent:", self.model.composer.message()));
        let field = self.model.card.as_ref().and_then(|card| card.unsent_text()).map(str::to_owned);
        unsent.extend(field.map(|text| ("not sent:", text)));
        for (label, text) in unsent.iter().filter(|(_, text)| !text.trim().is_empty()) {
            self.model.transcript.note(Style::Attention, label, now);
            for line in sanitize(text).lines() {
                self.model.transcript.note(Style::Strong, &format!("  {line}"), now);
            }
        }
        let drawn = self.draw(Some(&Frame::default()));
        let left = outcome?;
        // A terminal that is gone needs no report.
        match (left, drawn) {
            (Leave::Finished, drawn) => drawn.map(|()| left),
            (Leave::Detached { .. } | Leave::Interrupted { .. }, _) => Ok(left),
        }
    }
}

/// Reads keys on a thread, which ends with the process.
fn read_keys() -> UnboundedReceiver<TerminalEvent> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = crossterm::event::read() {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Returns the escape sequence of a notification. The text has no control characters.
fn notification(text: &str) -> String {
    let name = std::env::var("TERM").unwrap_or_default();
    if name.starts_with("rxvt") || name.starts_with("foot") {
        format!("\x1b]777;notify;push;{text}\x1b\\")
    } else {
        format!("\x1b]9;{text}\x1b\\")
    }
}

/// Returns the time in milliseconds since 1970.
fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
