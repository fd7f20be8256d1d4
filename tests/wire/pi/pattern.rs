//! Patterns for lines: the relevant fields, with names for values that are not known before.
//!
//! An object matches if each field of the pattern matches; it may have others. A text that begins with `$` is special:
//! `$name` matches any value the first time and the same value afterwards, `$_` any value, `$none` an absent field,
//! `$~text` a text that contains it. A list matches item by item, unless it begins with `$has`: then each of
//! its other items must match some item.

use std::collections::BTreeMap;

use serde_json::Value;

/// The values of names.
pub(crate) type Names = BTreeMap<String, Value>;

/// Matches a value; names are bound only if the whole pattern matches.
pub(crate) fn matches(pattern: &Value, value: &Value, names: &mut Names) -> Result<(), String> {
    let mut bound = names.clone();
    compare(pattern, Some(value), &mut bound, "")?;
    *names = bound;
    Ok(())
}

fn compare(pattern: &Value, value: Option<&Value>, names: &mut Names, at: &str) -> Result<(), String> {
    let wrong = || Err(format!("at {at:?}: {pattern} is not {}", value.unwrap_or(&Value::from("(absent)"))));
    if let Some(word) = pattern.as_str().and_then(|text| text.strip_prefix('$')) {
        return match (word, value) {
            ("none", None) => Ok(()),
            ("none", Some(_)) | (_, None) => wrong(),
            ("_", Some(_)) => Ok(()),
            (word, Some(value)) => match word.strip_prefix('~') {
                Some(part) if value.as_str().is_some_and(|text| text.contains(part)) => Ok(()),
                Some(_) => wrong(),
                None => match names.get(word) {
                    Some(known) if known == value => Ok(()),
                    Some(known) => Err(format!("at {at:?}: ${word} is {known}, not {value}")),
                    None => {
                        names.insert(word.to_owned(), value.clone());
                        Ok(())
                    }
                },
            },
        };
    }
    match (pattern, value) {
        (Value::Object(fields), Some(Value::Object(value))) => {
            let mut fields = fields.iter();
            fields.try_for_each(|(name, field)| compare(field, value.get(name), names, &format!("{at}/{name}")))
        }
        (Value::Array(items), Some(Value::Array(values))) => list(items, values, names, at),
        (pattern, Some(value)) if pattern == value => Ok(()),
        _ => wrong(),
    }
}

fn list(items: &[Value], values: &[Value], names: &mut Names, at: &str) -> Result<(), String> {
    if let Some((first, wanted)) = items.split_first()
        && first == "$has"
    {
        let found = |item: &Value, names: &mut Names| values.iter().any(|value| matches(item, value, names).is_ok());
        let missing = wanted.iter().find(|item| !found(item, names));
        return missing.map_or(Ok(()), |item| Err(format!("at {at:?}: no {item} among {}", Value::from(values))));
    }
    if items.len() != values.len() {
        return Err(format!("at {at:?}: {} items, not {}: {}", values.len(), items.len(), Value::from(values)));
    }
    let mut pairs = items.iter().zip(values).enumerate();
    pairs.try_for_each(|(number, (item, value))| compare(item, Some(value), names, &format!("{at}/{number}")))
}

#[test]
fn a_pattern_matches_the_named_fields_and_ignores_others() {
    let value = serde_json::json!({"a": [1, {"b": "long text"}], "c": null});
    for (pattern, holds) in [
        (r#"{"a":[1,{"b":"$~text"}]}"#, true),
        (r#"{"a":[1,{"b":"$~texts"}]}"#, false),
        (r#"{"a":[1]}"#, false),
        (r#"{"a":["$has",{"b":"$x"}]}"#, true),
        (r#"{"a":["$has",2]}"#, false),
        (r#"{"a":["$x",{"b":"$x"}]}"#, false),
        (r#"{"c":"$none"}"#, false),
        (r#"{"d":"$none","c":"$_"}"#, true),
        (r#"{"d":"$_"}"#, false),
        (r#"{"c":0}"#, false),
    ] {
        let pattern: Value = serde_json::from_str(pattern).unwrap();
        assert_eq!(matches(&pattern, &value, &mut Names::new()).is_ok(), holds, "{pattern}");
    }
}
