//! The fields of a payload, read one by one, so that a bad one is named in the answer.
//!
//! A field that is `null` counts as not said; a field that nobody asks for is ignored.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::DecodeLimits;
use super::ask::Environment;
use super::problem::{Bound, Fault, Problem};
use crate::kernel::id::Json;

/// The fields of one object.
pub(super) struct Fields<'a> {
    at: String,
    map: BTreeMap<String, &'a RawValue>,
}

impl<'a> Fields<'a> {
    /// Reads the object that stands at `at`; none at all has no fields.
    pub(super) fn read(at: &str, object: Option<&'a RawValue>) -> Result<Self, Problem> {
        let map = match object {
            None => BTreeMap::new(),
            Some(raw) => serde_json::from_str(raw.get())
                .map_err(|_| problem(at.to_owned(), Fault::Type { expected: "an object" }))?,
        };
        Ok(Self { at: at.to_owned(), map })
    }

    /// Reads a text that must be there and say something.
    pub(super) fn text(&self, name: &str, bound: Bound) -> Result<String, Problem> {
        self.key(name, bound)?.ok_or_else(|| self.fault(name, Fault::Missing))
    }

    /// Reads a text that must say something if it is there.
    pub(super) fn key(&self, name: &str, bound: Bound) -> Result<Option<String>, Problem> {
        let text = self.any_text(name, bound)?;
        if text.as_deref() == Some("") {
            return Err(self.fault(name, Fault::Empty));
        }
        Ok(text)
    }

    /// Reads a text of which an empty one counts as not said.
    pub(super) fn hint(&self, name: &str, bound: Bound) -> Result<Option<String>, Problem> {
        Ok(self.any_text(name, bound)?.filter(|text| !text.is_empty()))
    }

    /// Reads a whole number that is not negative.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        self.value(name, "a whole number that is not negative")
    }

    /// Reads a whole number that is at least one.
    pub(super) fn positive(&self, name: &str) -> Result<Option<u64>, Problem> {
        match self.value(name, "a whole number above zero")? {
            Some(0) => Err(self.fault(name, Fault::Type { expected: "a whole number above zero" })),
            number => Ok(number),
        }
    }

    /// Reads an amount above zero, in millionths.
    pub(super) fn millionths(&self, name: &str) -> Result<Option<u64>, Problem> {
        const EXPECTED: &str = "an amount above zero";
        let Some(amount) = self.value::<f64>(name, EXPECTED)? else { return Ok(None) };
        let millionths = (amount * 1e6).round();
        if !(1.0..=MOST_MILLIONTHS).contains(&millionths) {
            return Err(self.fault(name, Fault::Type { expected: EXPECTED }));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was just bounded")]
        Ok(Some(millionths as u64))
    }

    /// Reads how many entries a page may have; more than `most` are never given.
    pub(super) fn page(&self, name: &str, default: u32, most: u32) -> Result<u32, Problem> {
        let asked = self.positive(name)?.unwrap_or(u64::from(default));
        Ok(u32::try_from(asked).unwrap_or(most).min(most))
    }

    /// Reads an exit code.
    pub(super) fn exit_code(&self, name: &str) -> Result<Option<i32>, Problem> {
        self.value(name, "an exit code")
    }

    /// Reads yes or no.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Problem> {
        self.value(name, "true or false")
    }

    /// Reads an object that is passed on to the letter.
    pub(super) fn object(&self, name: &str, bound: Bound) -> Result<Option<Json>, Problem> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        if !raw.get().starts_with('{') {
            return Err(self.fault(name, Fault::Type { expected: "an object" }));
        }
        if !bound.holds(raw.get()) {
            return Err(self.fault(name, Fault::Long { bound }));
        }
        Ok(Some(Json::new(raw.get())))
    }

    /// Reads any value that is passed on to the letter.
    pub(super) fn json(&self, name: &str, bound: Bound) -> Result<Option<Json>, Problem> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        if !bound.holds(raw.get()) {
            return Err(self.fault(name, Fault::Long { bound }));
        }
        Ok(Some(Json::new(raw.get())))
    }

    /// Reads the fields of an object within this one.
    pub(super) fn inner(&self, name: &str) -> Result<Self, Problem> {
        Self::read(&self.path(name), self.raw(name))
    }

    /// Reads a list of texts.
    pub(super) fn texts(&self, name: &str, most: usize, bound: Bound) -> Result<Vec<String>, Problem> {
        let texts: Vec<String> = self.value(name, "a list of strings")?.unwrap_or_default();
        if texts.len() > most {
            return Err(self.fault(name, Fault::Many { limit: most }));
        }
        if texts.iter().any(|text| !bound.holds(text)) {
            return Err(self.fault(name, Fault::Long { bound }));
        }
        Ok(texts)
    }

    /// Reads a list of objects.
    pub(super) fn objects(&self, name: &str, most: usize) -> Result<Vec<Self>, Problem> {
        let items: Vec<&'a RawValue> = self.value(name, "a list of objects")?.unwrap_or_default();
        if items.len() > most {
            return Err(self.fault(name, Fault::Many { limit: most }));
        }
        let path = self.path(name);
        items
            .into_iter()
            .enumerate()
            .map(|(at, item)| Self::read(&format!("{path}[{at}]"), Some(item)))
            .collect()
    }

    /// Reads the environment of a user.
    pub(super) fn environment(&self, limits: &DecodeLimits) -> Result<Option<Environment>, Problem> {
        const NAME: &str = "environment";
        let Some(variables) =
            self.value::<BTreeMap<String, String>>(NAME, "an object whose values are strings")?
        else {
            return Ok(None);
        };
        if variables.len() > limits.variables {
            return Err(self.fault(NAME, Fault::Many { limit: limits.variables }));
        }
        let size: usize = variables.iter().map(|(name, value)| name.len() + value.len()).sum();
        if size > limits.environment {
            return Err(self.fault(NAME, Fault::Long { bound: Bound::Bytes(limits.environment) }));
        }
        if variables.keys().any(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(self.fault(NAME, Fault::VariableName));
        }
        if variables.values().any(|value| value.contains('\0')) {
            return Err(self.fault(NAME, Fault::Nul));
        }
        Ok(Some(Environment::new(variables)))
    }

    /// Names what is wrong with a field.
    pub(super) fn fault(&self, name: &str, fault: Fault) -> Problem {
        problem(self.path(name), fault)
    }

    fn any_text(&self, name: &str, bound: Bound) -> Result<Option<String>, Problem> {
        read_text(self.raw(name), bound).map_err(|fault| self.fault(name, fault))
    }

    fn value<T: Deserialize<'a>>(&self, name: &str, expected: &'static str) -> Result<Option<T>, Problem> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let value = serde_json::from_str(raw.get());
        value.map(Some).map_err(|_| self.fault(name, Fault::Type { expected }))
    }

    fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.map.get(name).copied().filter(|raw| raw.get() != "null")
    }

    fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.at)
    }
}

/// A thousand million whole ones: beyond, a float does not count them one by one.
const MOST_MILLIONTHS: f64 = 1e15;

/// Reads a text of at most `bound`.
pub(super) fn read_text(raw: Option<&RawValue>, bound: Bound) -> Result<Option<String>, Fault> {
    let Some(raw) = raw else { return Ok(None) };
    if !raw.get().starts_with('"') {
        return Err(Fault::Type { expected: "a string" });
    }
    let text: String = serde_json::from_str(raw.get()).map_err(|_| Fault::NotUnicode)?;
    if !bound.holds(&text) {
        return Err(Fault::Long { bound });
    }
    Ok(Some(text))
}

/// Names what is wrong at a place.
pub(super) const fn problem(field: String, fault: Fault) -> Problem {
    Problem::Field { field, fault }
}
