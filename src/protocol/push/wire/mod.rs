//! The wire types of requests and responses; only this protocol uses them. Events are encoded by [`record`](crate::record).

pub(super) mod request;
pub(super) mod response;
