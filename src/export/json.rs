//! One JSON object: the session, and its entries in order.

use serde_json::{Value, json};

use super::{Entry, Renderer, Survey};
use crate::display::sanitize::escape_json;

/// The name and the version of the format.
const FORMAT: &str = "push.export.v1";

/// Writes the JSON object; an entry is a line.
#[derive(Debug, Default)]
pub struct JsonRenderer {
    has_entries: bool,
}

impl Renderer for JsonRenderer {
    fn begin(&mut self, survey: &Survey, out: &mut String) {
        let session = serde_json::to_value(&survey.session).unwrap_or(Value::Null);
        let session = escape_json(&session.to_string()).into_owned();
        *out += &format!("{{\"format\":{},\n\"session\":{session},\n\"entries\":[", json!(FORMAT));
    }

    fn entry(&mut self, entry: &Entry, out: &mut String) {
        *out += if std::mem::replace(&mut self.has_entries, true) { ",\n" } else { "\n" };
        *out += &escape_json(&serde_json::to_string(entry).unwrap_or_else(|_| "null".to_owned()));
    }

    fn end(&mut self, _: &Survey, out: &mut String) {
        *out += "\n]}\n";
    }
}
