//! Explains a git error about its configuration in a command that succeeded.
//!
//! `git branch -d` rewrites the configuration to drop the section of the branch. In the sandbox the configuration
//! cannot be replaced, so git prints an error, deletes the branch all the same and exits with 0.

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::sandbox::{Chunk, Stream};

/// Forwards output and detects the error in it.
#[derive(Default)]
pub(super) struct ConfigNotice {
    /// The end of the output so far, which may be the start of the error.
    tail: Vec<u8>,
    found: bool,
}

impl ConfigNotice {
    /// Forwards output until it ends or the receiver is closed.
    pub(super) async fn forward(&mut self, printed: &mut mpsc::Receiver<Chunk>, out: &mpsc::Sender<Chunk>) {
        while let Some(chunk) = printed.recv().await {
            self.scan(&chunk.bytes);
            if out.send(chunk).await.is_err() {
                return;
            }
        }
    }

    /// Returns the explanation to print, if the error occurred.
    pub(super) fn explanation(&self) -> Option<Chunk> {
        self.found.then(|| Chunk { stream: Stream::Stderr, bytes: Bytes::from_static(EXPLANATION.as_bytes()) })
    }

    fn scan(&mut self, bytes: &[u8]) {
        if self.found {
            return;
        }
        self.tail.extend_from_slice(bytes);
        self.found = self.tail.windows(CONFIG_ERROR.len()).any(|part| part == CONFIG_ERROR);
        let from = self.tail.len().saturating_sub(CONFIG_ERROR.len() - 1);
        self.tail.drain(..from);
    }
}

/// The error message of git.
const CONFIG_ERROR: &[u8] = b"could not write config file ";

const EXPLANATION: &str = "(the git configuration is read-only in the sandbox and was not changed; the rest of the command \
    was done)\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_error_is_found_wherever_output_is_split() {
        let text = b"Deleted branch x.\nerror: could not write config file .git/config: Device or resource busy\n";
        for at in 0..=text.len() {
            let mut notice = ConfigNotice::default();
            notice.scan(&text[..at]);
            notice.scan(&text[at..]);
            assert!(notice.explanation().is_some(), "{at}");
        }
        let mut notice = ConfigNotice::default();
        notice.scan(b"could not write config");
        notice.scan(b"uration file ");
        assert!(notice.explanation().is_none());
    }
}
