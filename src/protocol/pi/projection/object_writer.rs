//! A writer for JSON objects, field by field: most values are serialized already.

use crate::kernel::id::Json;
use crate::record::{json, wire};

/// A JSON object under construction.
pub(super) struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> ObjectWriter<'a> {
    /// Opens an object.
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    /// Writes a string field.
    pub(super) fn text(mut self, name: &str, text: &str) -> Self {
        self.name(name);
        json::string(self.out, text);
        self
    }

    /// Writes a string field unless it is `None`.
    pub(super) fn optional_text(self, name: &str, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.text(name, text),
            None => self,
        }
    }

    /// Writes an integer field.
    pub(super) fn number(mut self, name: &str, number: u64) -> Self {
        self.name(name);
        json::number(self.out, number);
        self
    }

    /// Writes a boolean field.
    pub(super) fn flag(self, name: &str, flag: bool) -> Self {
        self.raw(name, if flag { b"true" } else { b"false" })
    }

    /// Writes a field whose value is serialized already.
    pub(super) fn raw(mut self, name: &str, json: &[u8]) -> Self {
        self.name(name);
        self.out.extend_from_slice(json);
        self
    }

    /// Writes a JSON value of an event as its record has it: one value on one line, whatever the event holds.
    pub(super) fn json(self, name: &str, json: &Json) -> Self {
        self.raw(name, wire::raw(json).get().as_bytes())
    }

    /// Writes an array field of serialized values.
    pub(super) fn list<'t>(mut self, name: &str, items: impl Iterator<Item = &'t str>) -> Self {
        self.name(name);
        self.out.push(b'[');
        for (at, item) in items.enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            self.out.extend_from_slice(item.as_bytes());
        }
        self.out.push(b']');
        self
    }

    /// Writes a field whose value `value` serializes.
    pub(super) fn with(mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) -> Self {
        self.name(name);
        value(self.out);
        self
    }

    /// Closes the object.
    pub(super) fn end(self) {
        self.out.push(b'}');
    }

    fn name(&mut self, name: &str) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        json::string(self.out, name);
        self.out.push(b':');
    }
}

/// Serializes one object into a string.
pub(super) fn object(write: impl FnOnce(ObjectWriter<'_>)) -> std::sync::Arc<str> {
    let mut out = Vec::new();
    write(ObjectWriter::new(&mut out));
    // The writer only receives UTF-8.
    String::from_utf8_lossy(&out).into()
}

/// Writes a content array of one text block.
pub(super) fn write_text_content(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"[");
    ObjectWriter::new(out).text("type", "text").text("text", text).end();
    out.extend_from_slice(b"]");
}
