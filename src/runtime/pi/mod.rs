//! The Pi protocol on the daemon's sessions.
//!
//! The rooms: `bureau` is what all its connections share and drives the book of commands, `connection` serves one of
//! them, `crowd` holds what waits to be sent, a `seat` is the protocol's place at one session and tells its story,
//! `work` carries commands out, `breaker` refuses shell commands that keep running into their limits.

mod archive;
mod breaker;
mod bureau;
mod chores;
mod connection;
mod crowd;
mod desk;
mod figures;
mod file_plan;
mod files;
mod limits;
mod seat;
mod seats;
mod session_list;
mod spelling;
mod work;

pub(super) use connection::{PiEndpoint, PiPeer, Via};
