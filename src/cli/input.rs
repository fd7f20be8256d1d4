//! Lines that somebody types, and signals that somebody sends.

use std::io::BufRead;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;

use super::console::Console;
pub(crate) use super::os::{Interrupts, Unseen};
use super::os::{discard_typed, is_foreground};

/// How long a daemon is waited for by somebody who wants to stop.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// The lines of standard input.
///
/// A thread waits for them, since a terminal cannot be waited for otherwise on every system; it ends with the process.
#[derive(Debug)]
pub(crate) struct TypedLines(mpsc::Receiver<String>);

impl TypedLines {
    /// Begins to read, if somebody types here and now.
    pub(crate) fn start(console: &Console) -> Option<Self> {
        (console.input_is_terminal && is_foreground()).then(Self::read)
    }

    fn read() -> Self {
        let (send, receive) = mpsc::channel(16);
        thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                // A terminal that cannot be read has not ended: nobody has pressed Ctrl-D.
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

    /// Drops what was typed before there was a question: it cannot be the answer.
    pub(crate) fn discard(&mut self) {
        discard_typed();
        while self.0.try_recv().is_ok() {}
    }

    /// Returns the next line; none at the end. Giving it up half-way loses nothing.
    pub(crate) async fn next(&mut self) -> Option<String> {
        self.0.recv().await
    }
}
