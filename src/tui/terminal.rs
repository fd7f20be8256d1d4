//! The terminal: raw mode, its modes, and their restoration in every case.

use std::io::{self, IsTerminal, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::terminal::{disable_raw_mode, enable_raw_mode};

use super::signals::{is_capable, is_foreground};

/// Whether the modes of the terminal are set.
static ACTIVE: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// Bracketed paste and reports of the focus.
const ENTER: &str = "\x1b[?2004h\x1b[?1004h";
/// Ends a synchronized update, the style and these modes, and shows the cursor.
const LEAVE: &str = "\x1b[?2026l\x1b[0m\x1b[?1004l\x1b[?2004l\x1b[?25h";

/// Returns whether the view can be used: standard input and output are a terminal that can move its cursor, and this
/// process is in its foreground.
pub(crate) fn is_usable() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && is_capable() && is_foreground()
}

/// Holds the terminal in raw mode until it is dropped.
#[derive(Debug)]
pub(crate) struct TerminalGuard(());

impl TerminalGuard {
    /// Sets the modes. A panic restores the terminal before its message is printed.
    pub(crate) fn enter() -> io::Result<Self> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        set_modes()?;
        Ok(Self(()))
    }

    /// Writes to the terminal.
    pub(crate) fn write(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Restores the modes, stops this process until it is continued, and sets the modes again.
    pub(crate) fn suspend(&self) -> io::Result<()> {
        restore();
        super::signals::stop_process()?;
        set_modes()
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
    }
}

fn set_modes() -> io::Result<()> {
    enable_raw_mode()?;
    ACTIVE.store(true, Ordering::SeqCst);
    let mut out = io::stdout().lock();
    out.write_all(ENTER.as_bytes())?;
    out.flush()
}

/// Restores the terminal. Best effort: it may be closed.
fn restore() {
    if ACTIVE.swap(false, Ordering::SeqCst) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
        let _ = disable_raw_mode();
    }
}

#[cfg(all(test, unix))]
#[path = "../../tests/support/pty.rs"]
mod pty;

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
            let guard = TerminalGuard::enter().unwrap();
            guard.write("drawn").unwrap();
            panic!("a defect");
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = std::thread::current().name().unwrap().to_owned();
        command.args(["--exact", &name, "--nocapture", "--test-threads=1"]).env(PANICS, "1");
        let mut program = Pty::start(command, (80, 24));
        program.wait_for(&format!("{ENTER}drawn"));
        program.wait_for(LEAVE);
        program.wait_for("a defect");
        program.wait_for_end();
        assert_eq!(program.modes(), program.initial_modes);
    }
}
