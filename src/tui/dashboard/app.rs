//! The edge of the dashboard: keys, signals, the daemon and the terminal. Everything else is pure.

use std::io;
use std::path::Path;
use std::time::Duration;

use crossterm::event::Event as TerminalEvent;
use serde_json::value::RawValue;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio::sync::{MutexGuard, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::model::{Dashboard, DashboardExit, Effect, Input, Watched};
use super::pane::{Answer, Reports};
use super::requests::{self, Report};
use super::update::{next_tick, prepare, restart, update};
use super::{view, watcher};
use crate::client::{Client, Notice, Repository, Request};
use crate::tui::client_task::CallError;
use crate::tui::clock::{now, wait_until};
use crate::tui::key_reader::KEYS;
use crate::tui::options::TuiError;
use crate::tui::screen_writer::ScreenWriter;
use crate::tui::signals::{Signal, Signals};
use crate::tui::terminal::{Screen, TerminalGuard, notification};

/// The shortest time between two drawings.
const FRAME: Duration = Duration::from_millis(16);
/// How long the last drawing may take.
const LAST_DRAWING: Duration = Duration::from_secs(1);
/// How many reports are applied between two drawings.
const REPORTS: usize = 512;
/// How many directories are looked up before their repositories are shown.
const DIRECTORIES: usize = 64;

/// The connections of the dashboard.
#[derive(Debug)]
pub(crate) struct Connections {
    /// For requests.
    pub(crate) requests: Client,
    /// For events.
    pub(crate) events: Client,
}

/// Shows the dashboard until the user leaves it. It continues with the state in which it was left.
pub(crate) async fn run(
    dashboard: &mut Dashboard,
    connections: Connections,
    notices: UnboundedReceiver<Notice>,
    make_report: &Reports,
) -> Result<DashboardExit, TuiError> {
    restart(dashboard);
    dashboard.shared.environment = connections.requests.environment().cloned();
    let mut app = App::start(dashboard, connections, make_report)?;
    let outcome = app.run(notices).await;
    let drained = app.terminal.drain(LAST_DRAWING).await;
    match (outcome?, drained) {
        (_, Err(_)) => Ok(DashboardExit::Unwritable),
        (exit, Ok(())) => Ok(exit),
    }
}

struct App<'a> {
    dashboard: &'a mut Dashboard,
    make_report: &'a Reports,
    writer: ScreenWriter,
    terminal: TerminalGuard,
    signals: Signals,
    keys: MutexGuard<'static, UnboundedReceiver<TerminalEvent>>,
    requests: UnboundedSender<(u64, Request<Box<RawValue>>)>,
    wanted: watch::Sender<Watched>,
    reports: Receiver<Report>,
    report_sender: Sender<Report>,
    /// They end with the dashboard.
    tasks: JoinSet<()>,
    draw_at: Option<Instant>,
    drawn_at: Instant,
    /// What the drawing that is being written shows to be read.
    drawn: Option<String>,
}

impl<'a> App<'a> {
    fn start(
        dashboard: &'a mut Dashboard,
        connections: Connections,
        make_report: &'a Reports,
    ) -> Result<Self, TuiError> {
        let signals = Signals::listen()?;
        let keys = KEYS.try_lock().map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        let terminal = TerminalGuard::enter(Screen::Full)?;
        let (requests, received) = unbounded_channel();
        let (report_sender, reports) = channel(REPORTS);
        let (wanted, watched) = watch::channel(Watched::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(requests::serve(connections.requests, received, report_sender.clone()));
        tasks.spawn(watcher::watch(connections.events, watched, report_sender.clone()));
        let started = Instant::now();
        Ok(Self {
            dashboard,
            make_report,
            writer: ScreenWriter::default(),
            terminal,
            signals,
            keys,
            requests,
            wanted,
            reports,
            report_sender,
            tasks,
            draw_at: Some(started),
            drawn_at: started,
            drawn: None,
        })
    }

    async fn run(&mut self, mut notices: UnboundedReceiver<Notice>) -> Result<DashboardExit, TuiError> {
        let mut effects = update(self.dashboard, Input::Tick, now());
        loop {
            if let Some(exit) = self.perform(std::mem::take(&mut effects))? {
                return Ok(exit);
            }
            self.draw_if_due(&mut effects)?;
            let is_busy = self.terminal.is_busy();
            let tick = next_tick(self.dashboard).map(|at| Duration::from_millis(at.saturating_sub(now())));
            let input = tokio::select! {
                biased;
                signal = self.signals.next() => self.signal(signal),
                Some(event) = self.keys.recv() => self.terminal_event(event),
                written = self.terminal.written() => {
                    // A terminal that cannot be written is gone.
                    if written.is_err() {
                        return Ok(DashboardExit::Unwritable);
                    }
                    self.mark_drawn();
                    None
                }
                Some(notice) = notices.recv() => Some(Input::Notice(notice)),
                Some(report) = self.reports.recv() => {
                    self.apply_reports(report, &mut effects)?;
                    None
                }
                () = wait_until(self.draw_at), if !is_busy => None,
                () = sleep(tick.unwrap_or_default()), if tick.is_some() && effects.is_empty() => Some(Input::Tick),
                () = std::future::ready(()), if !effects.is_empty() => None,
            };
            if let Some(input) = input {
                effects.extend(self.apply(input));
            }
        }
    }

    fn apply(&mut self, input: Input) -> Vec<Effect> {
        let effects = update(self.dashboard, input, now());
        self.request_drawing();
        effects
    }

    /// Applies a report and those that have arrived after it.
    fn apply_reports(&mut self, report: Report, effects: &mut Vec<Effect>) -> Result<(), TuiError> {
        let mut next = Some(report);
        let mut count = 0;
        while let Some(report) = next.take() {
            match report {
                Report::Input(input) => effects.extend(self.apply(input)),
                Report::Lost(error) => return Err(error.into()),
            }
            count += 1;
            if count < REPORTS {
                next = self.reports.try_recv().ok();
            }
        }
        Ok(())
    }

    fn signal(&mut self, signal: Signal) -> Option<Input> {
        match signal {
            Signal::Interrupt | Signal::Detach => Some(Input::Terminate),
            Signal::Suspend => Some(Input::Suspend),
            Signal::Redraw => {
                self.request_drawing();
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
                self.request_drawing();
                None
            }
            TerminalEvent::Mouse(_) => None,
        }
    }

    /// Performs effects; returns how the dashboard ends, if it does.
    fn perform(&mut self, effects: Vec<Effect>) -> Result<Option<DashboardExit>, TuiError> {
        for effect in effects {
            match effect {
                // Without its task the daemon is lost, which the task reports.
                Effect::Send(number, request) => drop(self.requests.send((number, request))),
                Effect::Watch(wanted) => drop(self.wanted.send(wanted)),
                Effect::Leave(exit) => return Ok(Some(exit)),
                Effect::Report(number, kind) => {
                    let (report, sender) = ((self.make_report)(kind), self.report_sender.clone());
                    self.tasks.spawn(async move {
                        let result = report.await.map_err(|message| CallError { code: None, message });
                        // The dashboard may have ended.
                        let _ = sender.send(Report::Input(Input::Answer(Answer { number, result }))).await;
                    });
                }
                Effect::FindRepositories(directories) => {
                    let sender = self.report_sender.clone();
                    self.tasks.spawn_blocking(move || find_repositories(&directories, &sender));
                }
                Effect::Notify(text) => self.terminal.write(notification(&text)),
                Effect::Redraw => {
                    self.writer.forget();
                    self.request_drawing();
                }
                Effect::Suspend => {
                    self.terminal.suspend()?;
                    self.writer.forget();
                    self.request_drawing();
                }
            }
        }
        Ok(None)
    }

    fn request_drawing(&mut self) {
        self.draw_at.get_or_insert(self.drawn_at + FRAME);
    }

    /// Draws if it is time to. While the terminal has not taken the last drawing, changes are collected.
    fn draw_if_due(&mut self, effects: &mut Vec<Effect>) -> Result<(), TuiError> {
        let is_due = self.draw_at.is_some_and(|at| at <= Instant::now());
        if !is_due || self.terminal.is_busy() {
            return Ok(());
        }
        let size = crossterm::terminal::size()?;
        if size != self.dashboard.shared.size {
            effects.extend(update(self.dashboard, Input::Resize(size.0, size.1), now()));
        }
        effects.extend(prepare(self.dashboard, now()));
        self.draw_at = None;
        let text = self.writer.draw(&view::draw(self.dashboard), size);
        let pane = self.dashboard.panes.get(self.dashboard.active).filter(|_| !self.dashboard.shows_keys);
        self.drawn = pane.and_then(|pane| pane.to_be_read());
        self.drawn_at = Instant::now();
        if text.is_empty() {
            self.mark_drawn();
        } else {
            self.terminal.write(text);
        }
        Ok(())
    }

    /// Tells the pane that it is on the screen: not before the terminal has taken it.
    fn mark_drawn(&mut self) {
        let Some(shown) = self.drawn.take_if(|_| !self.terminal.is_busy()) else { return };
        self.dashboard.panes.iter_mut().for_each(|pane| pane.mark_drawn(&shown, now()));
    }
}

/// Finds the repositories of directories; a directory outside of one stands for itself.
fn find_repositories(directories: &[String], reports: &Sender<Report>) {
    for some in directories.chunks(DIRECTORIES) {
        let find = |directory: &String| {
            let found = Repository::find(Path::new(directory));
            let root = found.map_or_else(|| directory.clone(), |found| found.root.to_string_lossy().into_owned());
            (directory.clone(), root)
        };
        let found = some.iter().map(find).collect();
        if reports.blocking_send(Report::Input(Input::Repositories(found))).is_err() {
            return;
        }
    }
}
