//! WebSockets, for programs that speak nothing else: the handshake, who may come in, and the messages.
//!
//! Browsers and other users of the machine reach the same port. What they may do is decided before a single message is
//! read, by rules that are handed in.

mod codec;
mod door;
#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod os;
#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
mod os;
mod peer;
mod socket;
mod welcome;

pub use door::{Door, Refusal};
pub use peer::{Identity, Whose};
pub(super) use socket::halves;
pub use socket::{Receiver, Sender, SocketLimits};
pub use welcome::{Entry, Unwelcome, WelcomeLimits, Welcomed, welcome};
