//! A session as this protocol tells it: the sum of its events, and what each of them adds.

mod parts;

pub use parts::{ForkMessage, ForkPoint, SessionEvent, Summary};
