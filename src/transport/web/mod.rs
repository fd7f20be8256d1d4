//! WebSockets, for programs that speak nothing else: the handshake, who may come in, and the messages.
//!
//! Browsers and other users of the machine reach the same port. What they may do is decided before a single message is
//! read, by rules that are handed in.

mod codec;
mod socket;

pub(super) use socket::halves;
pub use socket::{Receiver, Sender, SocketLimits};
