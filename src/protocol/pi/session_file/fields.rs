//! Lenient deserialization of fields that other programs wrote: a value of the wrong type counts as missing.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::kernel::time::Now;

use super::parse_rfc3339;

/// Deserializes a value, or returns the default if it has the wrong type.
pub(super) fn loose<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let raw = <&RawValue>::deserialize(from)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// Deserializes an object; the array form that serde accepts for structs is refused.
pub(super) fn object<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    if !raw.get().starts_with('{') {
        return None;
    }
    serde_json::from_str(raw.get()).ok()
}

/// A timestamp in either form: RFC 3339 text, or milliseconds since 1970.
#[derive(Default, Clone, Copy)]
pub(super) struct Timestamp(pub(super) Option<Now>);

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(from)?.get();
        if raw.starts_with('"') {
            let text: Option<String> = serde_json::from_str(raw).ok();
            return Ok(Self(text.and_then(|text| parse_rfc3339(&text))));
        }
        if let Ok(millis) = serde_json::from_str::<u64>(raw) {
            return Ok(Self(Some(Now(millis))));
        }
        // A float-to-integer cast saturates.
        let millis = serde_json::from_str::<f64>(raw).ok().filter(|millis| *millis >= 0.0);
        Ok(Self(millis.map(|millis| Now(millis as u64))))
    }
}

/// The elements of an array, limited by a budget shared with other arrays.
pub(super) struct Elements<'r>(pub(super) &'r mut usize);

impl<'de> DeserializeSeed<'de> for Elements<'_> {
    type Value = Vec<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(element) = elements.next_element::<&RawValue>()? {
            *self.0 = self.0.checked_sub(1).ok_or_else(|| A::Error::custom("too many"))?;
            found.push(element);
        }
        Ok(found)
    }
}
