//! The serde types of records: exactly what is stored, and what clients of the native protocol receive.

pub(crate) mod event;
pub(crate) mod participant;
pub(crate) mod word;

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::kernel::id::Json;

/// A string, borrowed when encoding and owned after decoding.
pub(crate) type Text<'a> = Cow<'a, str>;

/// A JSON value, passed on verbatim.
pub(crate) type Raw<'a> = Cow<'a, RawValue>;

/// Borrows a string of the kernel.
pub(crate) const fn text(text: &str) -> Text<'_> {
    Cow::Borrowed(text)
}

/// Borrows an optional string of the kernel.
pub(crate) fn some_text(text: Option<&String>) -> Option<Text<'_>> {
    text.map(|text| Cow::Borrowed(text.as_str()))
}

/// Borrows a JSON value of the kernel.
///
/// A text that is not one JSON value would break the line it is inserted into, and is written as `null`. A line feed
/// between two tokens would do the same, and is written as a space.
pub(crate) fn raw(json: &Json) -> Raw<'_> {
    single_line(json.as_str()).unwrap_or(Cow::Borrowed(RawValue::NULL))
}

/// Returns a JSON value without characters that could end the line it is inserted into; `None` if the text is not one
/// JSON value.
pub(crate) fn single_line(text: &str) -> Option<Raw<'_>> {
    let value = serde_json::from_str::<&RawValue>(text).ok()?;
    if !value.get().bytes().any(|byte| byte < b' ') {
        return Some(Cow::Borrowed(value));
    }
    // JSON strings contain no control characters, so these are insignificant whitespace.
    let plain = |letter: char| if letter < ' ' { ' ' } else { letter };
    RawValue::from_string(value.get().chars().map(plain).collect()).ok().map(Cow::Owned)
}

/// Converts a JSON value to the kernel's type.
pub(crate) fn json(raw: &RawValue) -> Json {
    Json::new(raw.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_can_break_its_line() {
        let forged = "{\n\"a\" :\r\n\t[1,\n\"é\\n\"]}\n{\"type\":\"run_complete\"}";
        assert_eq!(raw(&Json::new(forged)).get(), "null", "two values are none");
        let torn = forged.split_once("\n{").map_or("", |(value, _)| value);
        assert_eq!(raw(&Json::new(torn)).get(), "{ \"a\" :   [1, \"é\\n\"]}");
        let plain = Json::new("{\"a\": 1.50, \"b\": \"\\u0000\u{7f}\"}");
        assert_eq!(raw(&plain).get(), plain.as_str(), "the rest stays as it was written");
    }
}
