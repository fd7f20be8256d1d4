//! WebSockets: the handshake, access control, peer identification, and messages.
//!
//! Browsers and other users of the machine can reach the same port. Access is decided before the first message is
//! read, by a policy that the caller passes in.

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
