//! WebSockets: the handshake, access control, peer identification, and messages.
//!
//! Browsers and other users of the machine can reach the same port. Access is decided before the first message is
//! read, by a policy that the caller passes in.

mod access_policy;
mod codec;
mod handshake;
#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod os;
#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
mod os;
mod peer;
mod socket;

pub use access_policy::{AccessPolicy, AccessRefusal, WebEndpoint};
pub use handshake::{Authorizer, HandshakeError, UpgradedConnection, handshake};
pub use peer::{PeerIdentity, PeerOwner};
pub(super) use socket::split;
pub use socket::{Receiver, Sender, SocketLimits};
