//! The edge of the view: keys, signals, the daemon and the terminal. Everything else is pure.

use std::io;
use std::time::Duration;

use crossterm::event::Event as TerminalEvent;
use ratatui::text::{Line, Span};
use tokio::sync::MutexGuard;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use ulid::Ulid;

use super::client_task::{AutoDecision, Call, Report, serve};
use super::clock::{now, wait_until};
use super::files;
use super::key_reader::KEYS;
use super::model::{Effect, Input, LeaveReason, Model, Setup};
use super::options::{Options, StartPosition, TuiError, ViewExit};
use super::screen_writer::Screens;
use super::scrolled;
use super::signals::{Signal, Signals};
use super::terminal::{Screen, TerminalGuard, notification};
use super::text::wrap::truncate;
use super::update::{next_tick, update};
use super::view;
use super::writer::Frame;
use crate::client::{Access, Client, Event, Notice, Request, RequestError, SessionSnapshot};
use crate::display::approval::PendingApproval;
use crate::display::sanitize::sanitize;
use crate::display::style::Style;
use crate::kernel::event::{EventKind, GateEvent};

/// How many positions before the last one are shown when the view attaches: 3,000 events, and the numbers that one crash
/// of the daemon skips.
const HISTORY_EVENTS: u64 = 3000 + SKIPPED_NUMBERS;
/// How many numbers a crash of the daemon skips at most: it reserves them in advance, and uses none twice.
pub(crate) const SKIPPED_NUMBERS: u64 = 4096;
/// How many lines of them are kept until the first drawing.
const HISTORY_LINES: usize = 2000;
/// The shortest time between two drawings.
const FRAME: Duration = Duration::from_millis(16);
/// How long a new size must last before it is drawn.
const RESIZE_PAUSE: Duration = Duration::from_millis(40);
/// How wide rows are while the size changes: a narrower terminal makes more of wide rows, and moves the screen up.
const RESIZE_WIDTH: u16 = 40;
/// How long the first drawing waits for the history.
const HISTORY_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the last drawing may take.
const LAST_DRAWING: Duration = Duration::from_secs(1);
/// How many reports are applied between two drawings.
const REPORTS: usize = 512;

/// Shows a session until the user leaves or `observe` returns true for an event.
pub(crate) async fn run(
    mut client: Client,
    options: Options,
    notices: UnboundedReceiver<Notice>,
    observe: &mut (dyn FnMut(&Event) -> bool + Send),
) -> Result<ViewExit, TuiError> {
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
    let left = app.finish(outcome).await;
    app.task.abort();
    left
}

async fn attach(client: &mut Client, options: &Options, seen: u64) -> Result<(u64, u64), RequestError> {
    let replay = client.attach(&options.session, seen, options.access).await?;
    Ok((seen, replay.to_seq))
}

struct App {
    model: Model,
    screens: Screens,
    terminal: TerminalGuard,
    signals: Signals,
    keys: MutexGuard<'static, UnboundedReceiver<TerminalEvent>>,
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
    /// The approval whose card is being written.
    drawn_card: Option<String>,
    /// Whether the beginning of the session is not shown.
    is_shortened: bool,
}

impl App {
    fn start(client: Client, options: Options, snapshot: SessionSnapshot, history_end: u64) -> Result<Self, TuiError> {
        let signals = Signals::listen()?;
        let terminal = TerminalGuard::enter(Screen::Ordinary)?;
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
            can_switch: options.can_switch,
            history_end,
            size,
            full_output: is_playbook,
            now: now(),
            new_id: || format!("msg_{}", Ulid::generate()),
        };
        let started = Instant::now();
        let mut model = Model::new(setup);
        model.composer.restore(&options.draft.unwrap_or_default());
        Ok(Self {
            model,
            screens: Screens::default(),
            terminal,
            signals,
            keys: KEYS.try_lock().map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?,
            calls,
            reports,
            task,
            files: channel(1),
            auto_decision: options.auto_decision,
            first_message: options.first_message,
            started,
            draw_at: Some(started),
            drawn_at: started,
            drawn_card: None,
            is_shortened: false,
        })
    }

    /// Runs until the user leaves.
    async fn run(
        &mut self,
        mut notices: UnboundedReceiver<Notice>,
        observe: &mut (dyn FnMut(&Event) -> bool + Send),
    ) -> Result<ViewExit, TuiError> {
        let mut effects = self.first_calls();
        loop {
            if let Some(leave) = self.perform(std::mem::take(&mut effects)).await? {
                return Ok(leave);
            }
            self.draw_if_due()?;
            let draw_at = if self.awaits_history() { Some(self.started + HISTORY_TIMEOUT) } else { self.draw_at };
            let (is_busy, is_behind) = (self.terminal.is_busy(), self.model.transcript.rows.is_behind());
            let tick = next_tick(&self.model).map(|at| Duration::from_millis(at.saturating_sub(now())));
            let input = tokio::select! {
                biased;
                signal = self.signals.next() => self.signal(signal),
                Some(event) = self.keys.recv() => self.terminal_event(event),
                written = self.terminal.written() => {
                    // A terminal that cannot be written is gone, which detaches.
                    if written.is_err() {
                        return Ok(self.detached());
                    }
                    self.mark_card();
                    None
                }
                Some(notice) = notices.recv() => Some(Input::Notice(notice)),
                report = self.reports.recv(), if !(is_busy && is_behind) => match report {
                    Some(report) => match self.report(report, observe, &mut effects)? {
                        Some(leave) => return Ok(leave),
                        None => None,
                    },
                    // It reports why it ends, unless it panics.
                    None => return Err(TuiError::ConnectionTask),
                },
                Some(files) = self.files.1.recv() => Some(Input::Files(files)),
                () = wait_until(draw_at), if !is_busy => None,
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
    ) -> Result<Option<ViewExit>, TuiError> {
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
                        self.is_shortened |= self.model.transcript.rows.keep_last(HISTORY_LINES);
                    }
                    if let Some(call) = decided {
                        effects.push(self.model.call(call, None));
                        self.model.card.iter_mut().for_each(|card| card.is_sent = true);
                    }
                    if is_over {
                        return Ok(Some(ViewExit::Finished));
                    }
                }
                Report::Approvals(approvals) => effects.extend(self.apply(Input::Approvals(approvals))),
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
    async fn perform(&mut self, effects: Vec<Effect>) -> Result<Option<ViewExit>, TuiError> {
        for effect in effects {
            match effect {
                // Without the task the daemon is lost, which the task reports.
                Effect::Call(number, call) => drop(self.calls.send((number, call))),
                Effect::Leave(LeaveReason::Detached) => return Ok(Some(self.detached())),
                Effect::Leave(LeaveReason::Signalled) => {
                    return Ok(Some(ViewExit::Signalled { is_running: self.model.run.is_some() }));
                }
                Effect::Leave(LeaveReason::Interrupted) => {
                    return Ok(Some(ViewExit::Interrupted { is_running: self.model.run.is_some() }));
                }
                Effect::Switch(target) => return Ok(Some(ViewExit::Switch { target, draft: String::new() })),
                Effect::Suspend => self.suspend().await?,
                Effect::ListFiles(directory) => {
                    let sender = self.files.0.clone();
                    tokio::task::spawn_blocking(move || sender.blocking_send(files::list(&directory)));
                }
                Effect::Notify(text) => self.terminal.write(notification(&text)),
                Effect::Redraw => {
                    self.terminal.write("\x1b[H\x1b[2J".to_owned());
                    self.screens.forget();
                    self.request_drawing(Duration::ZERO);
                }
            }
        }
        Ok(None)
    }

    const fn detached(&self) -> ViewExit {
        ViewExit::Detached { is_running: self.model.run.is_some() }
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

    /// Draws if it is time to. While the terminal has not taken the last drawing, changes are collected.
    fn draw_if_due(&mut self) -> Result<(), TuiError> {
        let is_due = self.draw_at.is_some_and(|at| at <= Instant::now());
        if is_due && !self.terminal.is_busy() && !self.awaits_history() {
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
        self.draw_at = None;
        if std::mem::take(&mut self.is_shortened) {
            let text = format!("earlier output: `push log {}`", self.model.handle);
            let row = Line::from(Span::styled(text, self.model.theme.faint));
            self.model.transcript.rows.insert_before_unwritten(row);
        }
        let scrolled = self.model.scrolled.as_ref().filter(|_| last.is_none());
        let scrolled = scrolled.map(|view| scrolled::draw(&self.model, view));
        let card = self.model.card.as_ref().filter(|_| last.is_none() && scrolled.is_none());
        self.drawn_card = card.map(|card| card.pending.id().to_owned());
        let frame = last.cloned().or_else(|| scrolled.is_none().then(|| self.frame()));
        let text = self.screens.draw(&mut self.model.transcript.rows, (frame, scrolled), size);
        self.terminal.set_alternate(self.screens.shows_alternate());
        if text.is_empty() {
            self.mark_card();
        } else {
            self.terminal.write(text);
        }
        self.drawn_at = Instant::now();
        Ok(())
    }

    fn frame(&mut self) -> Frame {
        if !self.model.is_resizing() {
            return view::draw(&self.model);
        }
        let size = self.model.size;
        self.model.size.0 = size.0.min(RESIZE_WIDTH);
        let mut frame = view::draw(&self.model);
        frame.rows.iter_mut().for_each(|row| *row = truncate(row, self.model.size.0 - 1));
        self.model.size = size;
        frame
    }

    /// Records that a card is on the screen: not before the terminal has taken it.
    fn mark_card(&mut self) {
        let drawn = self.drawn_card.take_if(|_| !self.terminal.is_busy());
        if let Some(card) = self.model.card.as_mut().filter(|card| Some(card.pending.id()) == drawn.as_deref()) {
            card.mark_drawn(now());
        }
    }

    /// Replaces the region by a last frame and waits until the terminal has it.
    async fn draw_last(&mut self) -> Result<(), TuiError> {
        self.terminal.drain(LAST_DRAWING).await?;
        self.draw(Some(&Frame::default()))?;
        Ok(self.terminal.drain(LAST_DRAWING).await?)
    }

    async fn suspend(&mut self) -> Result<(), TuiError> {
        // A terminal that takes no output keeps the region.
        let _ = self.draw_last().await;
        self.terminal.suspend()?;
        self.screens.forget();
        self.request_drawing(Duration::ZERO);
        Ok(())
    }

    /// Takes the draft along if another session is shown next.
    fn keep_draft(&mut self, left: ViewExit) -> ViewExit {
        let ViewExit::Switch { target, .. } = left else { return left };
        let text = format!("left the session {}; Ctrl-P lists it", self.model.handle);
        self.model.transcript.note(Style::Faint, &text, self.model.now);
        ViewExit::Switch { target, draft: self.model.composer.discard() }
    }

    /// Removes the region; what was written and not sent is printed, so that it is not lost.
    async fn finish(&mut self, outcome: Result<ViewExit, TuiError>) -> Result<ViewExit, TuiError> {
        let now = self.model.now;
        self.model.transcript.close(now);
        let outcome = outcome.map(|left| self.keep_draft(left));
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
        let drawn = self.draw_last().await;
        let left = outcome?;
        match (left, drawn) {
            (left @ (ViewExit::Finished | ViewExit::Switch { .. }), drawn) => drawn.map(|()| left),
            // A terminal that is gone or takes no output needs no report.
            (ViewExit::Interrupted { .. }, Err(_)) => Ok(ViewExit::Interrupted { is_running: false }),
            (ViewExit::Detached { .. } | ViewExit::Signalled { .. } | ViewExit::Unwritable, Err(_)) => {
                Ok(ViewExit::Unwritable)
            }
            (
                left @ (ViewExit::Detached { .. }
                | ViewExit::Signalled { .. }
                | ViewExit::Interrupted { .. }
                | ViewExit::Unwritable),
                Ok(()),
            ) => Ok(left),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::client::testing::ScriptedDaemon;
    use crate::tui::terminal::pty::Pty;
    use crate::tui::text::theme::Theme;

    /// Set in the process that shows a view.
    const SHOWS: &str = "PUSH_TEST_SHOWS_A_VIEW";

    #[test]
    fn the_history_reaches_over_the_numbers_that_a_crash_skips() {
        assert_eq!(SKIPPED_NUMBERS, crate::kernel::limits::Limits::default().reserve);
    }

    #[test]
    fn a_connection_task_that_ends_without_a_report_ends_the_view_and_the_draft_is_printed() {
        if std::env::var_os(SHOWS).is_some() {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let error = runtime.block_on(async {
                let daemon = ScriptedDaemon::new();
                let (client, _peer) = tokio::join!(Client::open(daemon.config()), daemon.handshake("0.0.1"));
                let options = Options {
                    session: "s".into(),
                    handle: "s".into(),
                    theme: Theme::plain(),
                    start: StartPosition::Run("r".into()),
                    access: Access::Full,
                    first_message: None,
                    draft: Some("a draft".into()),
                    can_switch: false,
                    auto_decision: None,
                };
                let mut app = App::start(client.unwrap(), options, SessionSnapshot::default(), 0).unwrap();
                app.task.abort();
                let (_sender, notices) = unbounded_channel();
                let outcome = app.run(notices, &mut |_| false).await;
                app.finish(outcome).await.unwrap_err()
            });
            println!("{error}");
            return;
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = std::thread::current().name().unwrap().to_owned();
        command.args(["--exact", &name, "--nocapture", "--test-threads=1"]).env(SHOWS, "1").env("TERM", "xterm");
        let mut program = Pty::start(command, (80, 24));
        program.wait_for("not sent:");
        program.wait_for("a draft");
        program.wait_for(&TuiError::ConnectionTask.to_string());
        program.wait_for_end();
        assert_eq!(program.modes(), program.initial_modes);
    }
}
