//! Typed lines and signals.

use std::io::BufRead;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;

use super::console::Console;
pub(crate) use super::os::{HiddenInput, Interrupts};
use super::os::{flush_input, is_foreground};

/// What a signal requests of a client that follows a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopRequest {
    /// Cancel the run.
    Cancel,
    /// Exit and let the run continue.
    Detach,
}

/// What SIGTERM requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnTerminate {
    /// Cancel the run, for a script that follows it to its end.
    Cancel,
    /// Exit and let the run continue, as when the terminal is closed.
    Detach,
}

/// How long to wait for the daemon after a request to stop.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The lines of standard input.
///
/// A thread reads them, since not every system can poll a terminal; the thread ends with the process.
#[derive(Debug)]
pub(crate) struct InputLines(mpsc::Receiver<String>);

impl InputLines {
    /// Starts reading, if standard input is a terminal and this process is in its foreground.
    pub(crate) fn start(console: &Console) -> Option<Self> {
        (console.input_is_terminal && is_foreground()).then(Self::read)
    }

    fn read() -> Self {
        let (send, receive) = mpsc::channel(16);
        thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                // A read error is not the end of the input: only Ctrl-D detaches.
                let Ok(line) = line else {
                    loop {
                        thread::park();
                    }
                };
                if send.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self(receive)
    }

    /// Drops what was typed before the prompt, since it cannot be the answer.
    pub(crate) fn discard_pending(&mut self) {
        flush_input();
        while self.0.try_recv().is_ok() {}
    }

    /// Returns the next line; none at the end. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.0.recv().await
    }
}
