//! Reads the keys of the terminal.

use std::sync::LazyLock;

use crossterm::event::Event as TerminalEvent;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The keys of the terminal. One thread reads them for all views, so that none is lost between two.
pub(crate) static KEYS: LazyLock<Mutex<UnboundedReceiver<TerminalEvent>>> = LazyLock::new(|| Mutex::new(read_keys()));

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
