//! The terminal: raw mode, its modes, output, and the restoration of the modes in every case.
//!
//! A thread writes, so that a terminal that takes no output stops neither keys nor signals.

use std::io::{self, IsTerminal, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use super::screen_writer::{ENTER_SCREEN, LEAVE_SCREEN};
use super::signals::{is_capable, is_foreground};

/// Whether the modes of the terminal are set.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// Whether the alternate screen is shown.
static ALTERNATE: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// Bracketed paste and reports of the focus.
const ENTER: &str = "\x1b[?2004h\x1b[?1004h";
/// Ends a synchronized update, the style and these modes; wraps lines and shows the cursor.
const LEAVE: &str = "\x1b[?2026l\x1b[0m\x1b[?7h\x1b[?1004l\x1b[?2004l\x1b[?25h";

/// Which screen of the terminal is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Screen {
    /// The ordinary one, with its scrollback.
    Ordinary,
    /// The alternate one.
    Full,
}

/// Returns whether the view can be used: standard input and output are a terminal that can move its cursor, and this
/// process is in its foreground.
pub(crate) fn is_usable() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && is_capable() && is_foreground()
}

/// Holds the terminal in raw mode until it is dropped.
#[derive(Debug)]
pub(crate) struct TerminalGuard {
    texts: Sender<String>,
    written: UnboundedReceiver<io::Result<()>>,
    /// How many texts are not written yet.
    waiting: usize,
    screen: Screen,
}

impl TerminalGuard {
    /// Sets the modes. A panic restores the terminal before its message is printed.
    pub(crate) fn enter(screen: Screen) -> io::Result<Self> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore(Output::Possible);
                before(panic);
            }));
        });
        set_modes(screen)?;
        let (texts, received) = channel();
        let (sender, written) = unbounded_channel();
        std::thread::spawn(move || write_texts(&received, &sender));
        Ok(Self { texts, written, waiting: 0, screen })
    }

    /// Writes to the terminal, in the background.
    pub(crate) fn write(&mut self, text: String) {
        if self.texts.send(text).is_ok() {
            self.waiting += 1;
        }
    }

    /// Records whether the alternate screen is shown, which is left with the modes.
    #[expect(clippy::unused_self, reason = "only who holds the terminal changes its screen")]
    pub(crate) fn set_alternate(&self, is_shown: bool) {
        ALTERNATE.store(is_shown, Ordering::SeqCst);
    }

    /// Returns whether something is not written yet.
    pub(crate) const fn is_busy(&self) -> bool {
        self.waiting > 0
    }

    /// Waits until a text is written; forever if there is none. Cancel-safe.
    pub(crate) async fn written(&mut self) -> io::Result<()> {
        if self.waiting == 0 {
            return std::future::pending().await;
        }
        let result = self.written.recv().await;
        self.waiting -= 1;
        result.unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()))
    }

    /// Waits until everything is written; fails if the terminal does not take it within a time.
    pub(crate) async fn drain(&mut self, within: Duration) -> io::Result<()> {
        while self.is_busy() {
            timeout(within, self.written()).await.map_err(io::Error::from).flatten()?;
        }
        Ok(())
    }

    /// Restores the modes, stops this process until it is continued, and sets the modes again.
    pub(crate) fn suspend(&self) -> io::Result<()> {
        restore(self.output());
        super::signals::stop_process()?;
        set_modes(self.screen)
    }

    const fn output(&self) -> Output {
        if self.is_busy() { Output::Blocked } else { Output::Possible }
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore(self.output());
    }
}

/// Whether the terminal takes output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Possible,
    Blocked,
}

fn write_texts(texts: &Receiver<String>, written: &UnboundedSender<io::Result<()>>) {
    while let Ok(text) = texts.recv() {
        let mut out = io::stdout().lock();
        let result = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        drop(out);
        if written.send(result).is_err() {
            return;
        }
    }
}

fn set_modes(screen: Screen) -> io::Result<()> {
    enable_raw_mode()?;
    ACTIVE.store(true, Ordering::SeqCst);
    let mut out = io::stdout().lock();
    if screen == Screen::Full {
        ALTERNATE.store(true, Ordering::SeqCst);
        out.write_all(ENTER_SCREEN.as_bytes())?;
    }
    out.write_all(ENTER.as_bytes())?;
    out.flush()
}

/// Restores the terminal. Best effort: it may be closed. What needs no output comes first.
fn restore(output: Output) {
    if ACTIVE.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
        if output == Output::Possible {
            let mut out = io::stdout().lock();
            let screen = if ALTERNATE.swap(false, Ordering::SeqCst) { LEAVE_SCREEN } else { "" };
            let _ = write!(out, "{screen}{LEAVE}").and_then(|()| out.flush());
        }
    }
}

/// Returns the escape sequence of a notification. The text has no control characters.
pub(crate) fn notification(text: &str) -> String {
    let name = std::env::var("TERM").unwrap_or_default();
    if name.starts_with("rxvt") || name.starts_with("foot") {
        format!("\x1b]777;notify;push;{text}\x1b\\")
    } else {
        format!("\x1b]9;{text}\x1b\\")
    }
}

#[cfg(all(test, unix))]
#[path = "../../tests/support/pty.rs"]
pub(crate) mod pty;

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::pty::Pty;
    use super::*;

    /// Set in the process that panics.
    const PANICS: &str = "PUSH_TEST_PANICS";

    #[test]
    fn a_panic_restores_the_terminal_before_its_message_is_printed() {
        if std::env::var_os(PANICS).is_some() {
            let mut guard = TerminalGuard::enter(Screen::Full).unwrap();
            guard.write("drawn".to_owned());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(guard.drain(Duration::from_secs(30))).unwrap();
            panic!("a defect");
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = std::thread::current().name().unwrap().to_owned();
        command.args(["--exact", &name, "--nocapture", "--test-threads=1"]).env(PANICS, "1");
        let mut program = Pty::start(command, (80, 24));
        program.wait_for(&format!("{ENTER_SCREEN}{ENTER}drawn"));
        program.wait_for(&format!("{LEAVE_SCREEN}{LEAVE}"));
        program.wait_for("a defect");
        program.wait_for_end();
        assert_eq!(program.modes(), program.initial_modes);
    }
}
