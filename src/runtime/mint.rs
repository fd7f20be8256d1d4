//! The former name of `generate`, for the modules that still import it.

pub(super) use super::generate::*;
