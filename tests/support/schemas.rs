//! Validates protocol lines against the schemas; every test that sees a line should call it.
#![allow(dead_code, reason = "not every test uses everything")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::LazyLock;

use jsonschema::{Draft, Registry, Validator};
use serde_json::Value;

/// The schema files, each with the name by which the others refer to it.
pub(crate) const FILES: [(&str, &str); 5] = [
    ("push-runtime-envelope.schema.json", include_str!("../../schemas/push-runtime-envelope.schema.json")),
    (
        "push-runtime-request-envelope.schema.json",
        include_str!("../../schemas/push-runtime-request-envelope.schema.json"),
    ),
    (
        "push-runtime-response-envelope.schema.json",
        include_str!("../../schemas/push-runtime-response-envelope.schema.json"),
    ),
    ("push-runtime-event-envelope.schema.json", include_str!("../../schemas/push-runtime-event-envelope.schema.json")),
    ("push-runtime-defs.schema.json", include_str!("../../schemas/push-runtime-defs.schema.json")),
];

/// Panics when a line is not a valid message of the protocol.
pub(crate) fn check_line(line: &str) {
    if let Err(problems) = validate_line(line) {
        panic!("the line is not valid under the schemas:\n  {line}\n  {}", problems.join("\n  "));
    }
}

/// Returns everything that is invalid in a line.
pub(crate) fn validate_line(line: &str) -> Result<(), Vec<String>> {
    let message: Value = serde_json::from_str(line).map_err(|error| vec![format!("no JSON: {error}")])?;
    let problems: Vec<String> = VALIDATOR
        .iter_errors(&message)
        .map(|error| format!("at {:?}: {error}", error.instance_path().as_str()))
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| {
    let mut registry = Registry::new();
    for (name, text) in FILES {
        registry = registry.add(name, parse(text)).expect("the names of the schemas are addresses");
    }
    let registry = registry.prepare().expect("the schemas refer to each other alone");
    let (_, entrance) = FILES[0];
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_registry(&registry)
        .offline()
        .build(&parse(entrance))
        .expect("the schemas are schemas")
});

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("a schema is JSON")
}
