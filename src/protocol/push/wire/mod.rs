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
/// What is no JSON value would tear the line that it is put into, and is written as `null`. So would a line feed between
/// two tokens, which is written as a blank.
pub(super) fn raw(json: &Json) -> Raw<'_> {
    whole_line(json.as_str()).unwrap_or(Cow::Borrowed(RawValue::NULL))
}

/// Reads a JSON value and takes out of it whatever could end the line that it is put into; none if it is no value.
pub(super) fn whole_line(text: &str) -> Option<Raw<'_>> {
    let value = serde_json::from_str::<&RawValue>(text).ok()?;
    if !value.get().bytes().any(|byte| byte < b' ') {
        return Some(Cow::Borrowed(value));
    }
    // Inside its strings JSON holds no such characters, so that these are white space and mean nothing.
    let plain = |letter: char| if letter < ' ' { ' ' } else { letter };
    RawValue::from_string(value.get().chars().map(plain).collect()).ok().map(Cow::Owned)
}

/// Takes a JSON value as the kernel carries it.
pub(super) fn json(raw: &RawValue) -> Json {
    Json::new(raw.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_can_end_its_line() {
        let forged = "{\n\"a\" :\r\n\t[1,\n\"é\\n\"]}\n{\"type\":\"run_complete\"}";
        assert_eq!(raw(&Json::new(forged)).get(), "null", "two values are none");
        let torn = forged.split_once("\n{").map_or("", |(value, _)| value);
        assert_eq!(raw(&Json::new(torn)).get(), "{ \"a\" :   [1, \"é\\n\"]}");
        let plain = Json::new("{\"a\": 1.50, \"b\": \"\\u0000\u{7f}\"}");
        assert_eq!(raw(&plain).get(), plain.as_str(), "the rest stays as it was written");
    }
}
