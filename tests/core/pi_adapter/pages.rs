//! Checks lines against the schemas.

use std::sync::LazyLock;

use jsonschema::{Draft, Registry, Validator};
use serde_json::Value;

/// The files, each with the name by which others refer to it.
pub(crate) const FILES: [(&str, &str); 5] = [
    ("pi-line.schema.json", include_str!("../../../schemas/pi/pi-line.schema.json")),
    ("pi-command.schema.json", include_str!("../../../schemas/pi/pi-command.schema.json")),
    ("pi-response.schema.json", include_str!("../../../schemas/pi/pi-response.schema.json")),
    ("pi-event.schema.json", include_str!("../../../schemas/pi/pi-event.schema.json")),
    ("pi-defs.schema.json", include_str!("../../../schemas/pi/pi-defs.schema.json")),
];

/// Panics if a line of the server is not valid.
pub(crate) fn check_line(line: &[u8]) {
    let text = std::str::from_utf8(line).expect("a line is a text");
    assert!(!text.contains(['\n', '\r']), "{text:?}");
    if let Err(problems) = validate(&LINES, text) {
        panic!("the line is not valid under the schemas:\n  {text}\n  {}", problems.join("\n  "));
    }
}

/// Returns all errors of a line of the server.
pub(crate) fn validate_line(line: &str) -> Result<(), Vec<String>> {
    validate(&LINES, line)
}

/// Returns all errors of a command.
pub(crate) fn validate_command(line: &str) -> Result<(), Vec<String>> {
    validate(&COMMANDS, line)
}

fn validate(validator: &Validator, line: &str) -> Result<(), Vec<String>> {
    let message: Value = serde_json::from_str(line).map_err(|error| vec![format!("no JSON: {error}")])?;
    let problems: Vec<String> = validator
        .iter_errors(&message)
        .map(|error| format!("at {:?}: {error}", error.instance_path().as_str()))
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

static LINES: LazyLock<Validator> = LazyLock::new(|| validator(FILES[0].1));
static COMMANDS: LazyLock<Validator> = LazyLock::new(|| validator(FILES[1].1));

fn validator(root: &str) -> Validator {
    let mut registry = Registry::new();
    for (name, text) in FILES {
        registry = registry.add(name, parse(text)).expect("the names of the schemas are addresses");
    }
    let registry = registry.prepare().expect("the schemas refer to each other alone");
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_registry(&registry)
        .offline()
        .build(&parse(root))
        .expect("the schemas are schemas")
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("a schema is JSON")
}

#[test]
fn a_schema_names_no_host_and_has_the_id_of_its_file() {
    for (name, text) in FILES {
        let schema = parse(text);
        assert_eq!(schema["$id"], name);
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(text.matches("://").count(), 1, "{name}");
    }
}
