//! Typed access to the fields of a command, one at a time, so that an error names the bad field.

use serde_json::{Map, Value};

/// An invalid field and why it is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldError {
    pub(super) field: String,
    pub(super) message: String,
}

impl FieldError {
    pub(super) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

/// The fields of one object.
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    /// The prefix of its field names in error messages.
    prefix: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) const fn new(map: &'a Map<String, Value>) -> Self {
        Self { map, prefix: "" }
    }

    /// Reads a required object.
    pub(super) fn nested(&self, name: &'static str, at: &'static str) -> Result<Self, FieldError> {
        match self.value(name) {
            Some(Value::Object(map)) => Ok(Self { map, prefix: at }),
            Some(_) | None => Err(self.error(name, "must be an object")),
        }
    }

    /// Returns a field unless it is missing or `null`.
    pub(super) fn value(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Returns a field if it is a string.
    pub(super) fn text_of(&self, name: &str) -> Option<&'a str> {
        self.value(name).and_then(Value::as_str)
    }

    /// Reads an optional string of any length.
    pub(super) fn any_text(&self, name: &str) -> Result<Option<&'a str>, FieldError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.error(name, "must be a string")),
        }
    }

    /// Reads an optional string of at most `most` characters.
    pub(super) fn text(&self, name: &str, most: usize) -> Result<Option<String>, FieldError> {
        let Some(text) = self.any_text(name)? else { return Ok(None) };
        self.check_length(name, text, most)?;
        Ok(Some(text.to_owned()))
    }

    /// Reads an optional string that must not be blank.
    pub(super) fn non_empty_text(&self, name: &str, most: usize) -> Result<Option<String>, FieldError> {
        let text = self.text(name, most)?;
        if text.as_deref().is_some_and(|text| text.trim().is_empty()) {
            return Err(self.error(name, "must not be empty"));
        }
        Ok(text)
    }

    /// Reads a required string that must not be blank.
    pub(super) fn required_text(&self, name: &str, most: usize) -> Result<String, FieldError> {
        self.non_empty_text(name, most)?.ok_or_else(|| self.error(name, "must be a string and is missing"))
    }

    /// Reads a required string that may be empty.
    pub(super) fn required_maybe_empty_text(&self, name: &str, most: usize) -> Result<String, FieldError> {
        self.text(name, most)?.ok_or_else(|| self.error(name, "must be a string and is missing"))
    }

    /// Reads an optional list of command ids.
    pub(super) fn id_list(&self, name: &str, most: usize, chars: usize) -> Result<Vec<String>, FieldError> {
        let items = match self.value(name) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(self.error(name, "must be a list of command ids")),
        };
        if items.len() > most {
            let found = items.len();
            return Err(self.error(name, format!("must be at most {most} command ids, not {found}")));
        }
        let key = |(at, item): (usize, &Value)| {
            let field = format!("{name}[{at}]");
            let text = item.as_str().filter(|text| !text.trim().is_empty());
            let text = text.ok_or_else(|| self.error(&field, "must be a command id"))?;
            self.check_length(&field, text, chars)?;
            Ok(text.to_owned())
        };
        items.iter().enumerate().map(key).collect()
    }

    /// Reads an optional unsigned integer.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, FieldError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let number = value.as_u64();
        number.map(Some).ok_or_else(|| self.error(name, "must be a whole number that is not negative"))
    }

    /// Reads an optional boolean.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, FieldError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(self.error(name, "must be true or false")),
        }
    }

    /// Reads a required boolean.
    pub(super) fn required_flag(&self, name: &str) -> Result<bool, FieldError> {
        self.flag(name)?.ok_or_else(|| self.error(name, "must be true or false"))
    }

    /// Reads an optional keyword.
    pub(super) fn keyword<T>(
        &self,
        name: &str,
        allowed: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, FieldError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let found = value.as_str().and_then(parse);
        found.map(Some).ok_or_else(|| self.error(name, format!("must be one of {allowed}")))
    }

    /// Reads an optional path of bounded length, without `..` or NUL.
    pub(super) fn path(&self, name: &str, most: usize, rule: PathRule) -> Result<Option<String>, FieldError> {
        let Some(path) = self.non_empty_text(name, most)? else { return Ok(None) };
        let steps_back = path.split(['/', '\\']).any(|part| part == "..");
        if steps_back || path.contains('\0') {
            let reason = format!("{name} contains potentially dangerous path components");
            return Err(match rule {
                PathRule::SessionFile => self.error(name, format!("{reason}; {name} must be {SESSION_PATH}")),
                PathRule::Absolute | PathRule::Any => self.error(name, reason),
            });
        }
        if rule != PathRule::Any && !is_absolute(&path) {
            return Err(self.error(name, format!("{name} must be an absolute path")));
        }
        Ok(Some(path))
    }

    pub(super) fn check_length(&self, name: &str, text: &str, most: usize) -> Result<(), FieldError> {
        // A string has at most as many characters as bytes, so short strings need no counting.
        let found = if text.len() > most { text.chars().count() } else { 0 };
        if found > most {
            return Err(self.error(name, format!("must be at most {most} characters, not {found}")));
        }
        Ok(())
    }

    pub(super) fn error(&self, name: &str, message: impl Into<String>) -> FieldError {
        FieldError::new(format!("{}{name}", self.prefix), message)
    }
}

/// Which paths a field accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathRule {
    /// Absolute paths.
    Absolute,
    /// Absolute paths under a session directory.
    SessionFile,
    /// Any path.
    Any,
}

/// The requirement on the path of a session file, for errors.
const SESSION_PATH: &str = "an absolute path under an allowed session directory, without `..`";

/// Returns whether a path is absolute on Unix or on Windows.
fn is_absolute(path: &str) -> bool {
    let drive = |path: &str| {
        let mut chars = path.chars();
        chars.next().is_some_and(|letter| letter.is_ascii_alphabetic())
            && chars.next() == Some(':')
            && matches!(chars.next(), Some('/' | '\\'))
    };
    path.starts_with('/') || path.starts_with("\\\\") || drive(path)
}
