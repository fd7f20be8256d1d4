//! The types of the protocol as they are spelled on the wire; nothing outside the adapter names one.

pub(super) mod event;
pub(super) mod request;
pub(super) mod response;
pub(super) mod word;

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::kernel::id::Json;

/// A text, borrowed while it is written and owned once it was read.
pub(super) type Text<'a> = Cow<'a, str>;

/// A JSON value that is passed on to the letter.
pub(super) type Raw<'a> = Cow<'a, RawValue>;

/// Borrows a text of the kernel.
pub(super) const fn text(text: &str) -> Text<'_> {
    Cow::Borrowed(text)
}

/// Borrows an optional text of the kernel.
pub(super) fn some_text(text: Option<&String>) -> Option<Text<'_>> {
    text.map(|text| Cow::Borrowed(text.as_str()))
}

/// Borrows a JSON value of the kernel.
///
/// What is no JSON value would tear the line that it is put into, and is written as `null`.
pub(super) fn raw(json: &Json) -> Raw<'_> {
    Cow::Borrowed(serde_json::from_str::<&RawValue>(json.as_str()).unwrap_or(RawValue::NULL))
}

/// Takes a JSON value as the kernel carries it.
pub(super) fn json(raw: &RawValue) -> Json {
    Json::new(raw.get())
}
