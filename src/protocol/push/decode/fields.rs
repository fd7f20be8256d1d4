//! Typed access to the fields of a payload, one at a time, so that an error names the bad field.
//!
//! A `null` field counts as missing; unknown fields are ignored.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::DecodeLimits;
use super::request_error::{FieldError, LengthLimit, RequestError};
use crate::kernel::environment::Environment;
use crate::kernel::id::Json;

/// The fields of one object.
pub(super) struct Fields<'a> {
    path: String,
    map: BTreeMap<String, &'a RawValue>,
}

impl<'a> Fields<'a> {
    /// Reads the object at the path `at`; a missing object has no fields.
    pub(super) fn read(at: &str, object: Option<&'a RawValue>) -> Result<Self, RequestError> {
        let map = match object {
            None => BTreeMap::new(),
            Some(raw) => serde_json::from_str(raw.get())
                .map_err(|_| field_error(at.to_owned(), FieldError::WrongType { expected: "an object" }))?,
        };
        Ok(Self { path: at.to_owned(), map })
    }

    /// Reads a required string that must not be empty.
    pub(super) fn required_text(&self, name: &str, bound: LengthLimit) -> Result<String, RequestError> {
        self.non_empty_text(name, bound)?.ok_or_else(|| self.error(name, FieldError::Missing))
    }

    /// Reads an optional string that must not be empty.
    pub(super) fn non_empty_text(&self, name: &str, bound: LengthLimit) -> Result<Option<String>, RequestError> {
        let text = self.any_text(name, bound)?;
        if text.as_deref() == Some("") {
            return Err(self.error(name, FieldError::Empty));
        }
        Ok(text)
    }

    /// Reads an optional string; an empty one counts as missing.
    pub(super) fn optional_text(&self, name: &str, bound: LengthLimit) -> Result<Option<String>, RequestError> {
        Ok(self.any_text(name, bound)?.filter(|text| !text.is_empty()))
    }

    /// Reads an optional unsigned integer.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, RequestError> {
        self.value(name, "a whole number that is not negative")
    }

    /// Reads an optional positive integer.
    pub(super) fn positive(&self, name: &str) -> Result<Option<u64>, RequestError> {
        match self.value(name, "a whole number above zero")? {
            Some(0) => Err(self.error(name, FieldError::WrongType { expected: "a whole number above zero" })),
            number => Ok(number),
        }
    }

    /// Reads an optional positive amount, in millionths.
    pub(super) fn millionths(&self, name: &str) -> Result<Option<u64>, RequestError> {
        const EXPECTED: &str = "an amount above zero";
        let Some(amount) = self.value::<f64>(name, EXPECTED)? else { return Ok(None) };
        let millionths = (amount * 1e6).round();
        if !(1.0..=MAX_MILLIONTHS).contains(&millionths) {
            return Err(self.error(name, FieldError::WrongType { expected: EXPECTED }));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was just bounded")]
        Ok(Some(millionths as u64))
    }

    /// Reads a page size, capped at `most`.
    pub(super) fn page(&self, name: &str, default: u32, most: u32) -> Result<u32, RequestError> {
        let value = self.positive(name)?.unwrap_or(u64::from(default));
        Ok(u32::try_from(value).unwrap_or(most).min(most))
    }

    /// Reads an optional exit code.
    pub(super) fn exit_code(&self, name: &str) -> Result<Option<i32>, RequestError> {
        self.value(name, "an exit code")
    }

    /// Reads an optional boolean.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, RequestError> {
        self.value(name, "true or false")
    }

    /// Reads an optional object, passed on verbatim.
    pub(super) fn object(&self, name: &str, bound: LengthLimit) -> Result<Option<Json>, RequestError> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        if !raw.get().starts_with('{') {
            return Err(self.error(name, FieldError::WrongType { expected: "an object" }));
        }
        if !bound.allows(raw.get()) {
            return Err(self.error(name, FieldError::TooLong { bound }));
        }
        Ok(Some(Json::new(raw.get())))
    }

    /// Reads an optional value, passed on verbatim.
    pub(super) fn json(&self, name: &str, bound: LengthLimit) -> Result<Option<Json>, RequestError> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        if !bound.allows(raw.get()) {
            return Err(self.error(name, FieldError::TooLong { bound }));
        }
        Ok(Some(Json::new(raw.get())))
    }

    /// Reads a nested object.
    pub(super) fn nested(&self, name: &str) -> Result<Self, RequestError> {
        Self::read(&self.field_path(name), self.raw(name))
    }

    /// Reads an optional list of strings.
    pub(super) fn texts(&self, name: &str, most: usize, bound: LengthLimit) -> Result<Vec<String>, RequestError> {
        let texts: Vec<String> = self.value(name, "a list of strings")?.unwrap_or_default();
        if texts.len() > most {
            return Err(self.error(name, FieldError::TooManyEntries { limit: most }));
        }
        if texts.iter().any(|text| !bound.allows(text)) {
            return Err(self.error(name, FieldError::TooLong { bound }));
        }
        Ok(texts)
    }

    /// Reads an optional list of objects.
    pub(super) fn objects(&self, name: &str, most: usize) -> Result<Vec<Self>, RequestError> {
        let items: Vec<&'a RawValue> = self.value(name, "a list of objects")?.unwrap_or_default();
        if items.len() > most {
            return Err(self.error(name, FieldError::TooManyEntries { limit: most }));
        }
        let path = self.field_path(name);
        items.into_iter().enumerate().map(|(at, item)| Self::read(&format!("{path}[{at}]"), Some(item))).collect()
    }

    /// Reads the user's environment.
    pub(super) fn environment(&self, limits: &DecodeLimits) -> Result<Option<Environment>, RequestError> {
        const NAME: &str = "environment";
        let Some(variables) = self.value::<BTreeMap<String, String>>(NAME, "an object whose values are strings")?
        else {
            return Ok(None);
        };
        if variables.len() > limits.variables {
            return Err(self.error(NAME, FieldError::TooManyEntries { limit: limits.variables }));
        }
        let size: usize = variables.iter().map(|(name, value)| name.len() + value.len()).sum();
        if size > limits.environment {
            return Err(self.error(NAME, FieldError::TooLong { bound: LengthLimit::Bytes(limits.environment) }));
        }
        if variables.keys().any(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(self.error(NAME, FieldError::BadVariableName));
        }
        if variables.values().any(|value| value.contains('\0')) {
            return Err(self.error(NAME, FieldError::ContainsNul));
        }
        Ok(Some(Environment::new(variables)))
    }

    /// Makes the error of a field.
    pub(super) fn error(&self, name: &str, error: FieldError) -> RequestError {
        field_error(self.field_path(name), error)
    }

    fn any_text(&self, name: &str, bound: LengthLimit) -> Result<Option<String>, RequestError> {
        read_text(self.raw(name), bound).map_err(|error| self.error(name, error))
    }

    fn value<T: Deserialize<'a>>(&self, name: &str, expected: &'static str) -> Result<Option<T>, RequestError> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let value = serde_json::from_str(raw.get());
        value.map(Some).map_err(|_| self.error(name, FieldError::WrongType { expected }))
    }

    fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.map.get(name).copied().filter(|raw| raw.get() != "null")
    }

    fn field_path(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }
}

/// One billion units; above that an f64 may not be exact to a millionth.
const MAX_MILLIONTHS: f64 = 1e15;

/// Reads an optional string of bounded length.
pub(super) fn read_text(raw: Option<&RawValue>, bound: LengthLimit) -> Result<Option<String>, FieldError> {
    let Some(raw) = raw else { return Ok(None) };
    if !raw.get().starts_with('"') {
        return Err(FieldError::WrongType { expected: "a string" });
    }
    let text: String = serde_json::from_str(raw.get()).map_err(|_| FieldError::NotUnicode)?;
    if !bound.allows(&text) {
        return Err(FieldError::TooLong { bound });
    }
    Ok(Some(text))
}

/// Makes the error of a field path.
pub(super) const fn field_error(field: String, error: FieldError) -> RequestError {
    RequestError::Field { field, error }
}
