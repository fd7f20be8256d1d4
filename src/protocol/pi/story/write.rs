//! Objects of the wire, written field by field: most of what is written is already JSON.

use crate::protocol::json;

/// An object that is being written.
pub(super) struct Object<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> Object<'a> {
    /// Begins an object.
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    /// Writes a text.
    pub(super) fn text(mut self, name: &str, text: &str) -> Self {
        self.name(name);
        json::string(self.out, text);
        self
    }

    /// Writes a text, if there is one.
    pub(super) fn maybe(self, name: &str, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.text(name, text),
            None => self,
        }
    }

    /// Writes a whole number.
    pub(super) fn number(mut self, name: &str, number: u64) -> Self {
        self.name(name);
        json::number(self.out, number);
        self
    }

    /// Writes yes or no.
    pub(super) fn flag(self, name: &str, flag: bool) -> Self {
        self.raw(name, if flag { b"true" } else { b"false" })
    }

    /// Writes what is JSON already.
    pub(super) fn raw(mut self, name: &str, json: &[u8]) -> Self {
        self.name(name);
        self.out.extend_from_slice(json);
        self
    }

    /// Writes a value that is JSON already in a list.
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

    /// Writes whatever `value` writes.
    pub(super) fn with(mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) -> Self {
        self.name(name);
        value(self.out);
        self
    }

    /// Ends the object.
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

/// Makes a text of what an object writes.
pub(super) fn object(write: impl FnOnce(Object<'_>)) -> std::sync::Arc<str> {
    let mut out = Vec::new();
    write(Object::new(&mut out));
    // What is written is made of texts.
    String::from_utf8_lossy(&out).into()
}

/// Writes the blocks of a content that is one text.
pub(super) fn text_content(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"[");
    Object::new(out).text("type", "text").text("text", text).end();
    out.extend_from_slice(b"]");
}
