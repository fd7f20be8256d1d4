//! Validates lines of both directions against the schemas.

use std::sync::LazyLock;

use jsonschema::{Draft, Registry, Validator};
use serde_json::Value;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/pi");

/// Panics if a line of the server is not valid.
pub(crate) fn assert_valid_line(line: &Value) {
    assert_valid(&LINES, line);
}

/// Panics if a command is not valid.
pub(crate) fn assert_valid_command(line: &Value) {
    assert_valid(&COMMANDS, line);
}

/// Returns whether a command is valid.
pub(crate) fn is_valid_command(line: &Value) -> bool {
    COMMANDS.is_valid(line)
}

fn assert_valid(validator: &Validator, line: &Value) {
    let problems: Vec<String> =
        validator.iter_errors(line).map(|error| format!("at {:?}: {error}", error.instance_path().as_str())).collect();
    assert!(problems.is_empty(), "not valid under the schemas:\n  {line}\n  {}", problems.join("\n  "));
}

static LINES: LazyLock<Validator> = LazyLock::new(|| validator("pi-line.schema.json"));
static COMMANDS: LazyLock<Validator> = LazyLock::new(|| validator("pi-command.schema.json"));

fn validator(root: &str) -> Validator {
    let files = std::fs::read_dir(FOLDER).expect("the schemas");
    let mut registry = Registry::new();
    for file in files.flatten() {
        let name = file.file_name().into_string().expect("a name");
        registry = registry.add(name, read(&file.path())).expect("the names of the schemas are addresses");
    }
    let registry = registry.prepare().expect("references within the schemas");
    let root = read(&std::path::Path::new(FOLDER).join(root));
    let options = jsonschema::options().with_draft(Draft::Draft202012).with_registry(&registry).offline();
    options.build(&root).expect("valid schemas")
}

fn read(path: &std::path::Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("a schema")).expect("a schema is JSON")
}
