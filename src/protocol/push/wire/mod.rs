//! The wire types of requests and responses; only this adapter uses them. Events are encoded by [`record`](crate::record).

pub(super) mod request;
pub(super) mod response;
