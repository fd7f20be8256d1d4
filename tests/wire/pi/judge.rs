//! Holds lines of both directions to the schemas.

use std::sync::LazyLock;

use jsonschema::{Draft, Registry, Validator};
use serde_json::Value;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/pi");

/// Panics when a line of the server is not valid.
pub(crate) fn line_of_the_server(line: &Value) {
    hold(&LINES, line);
}

/// Panics when a command is not valid.
pub(crate) fn command(line: &Value) {
    hold(&COMMANDS, line);
}

/// Tells whether a command is valid.
pub(crate) fn allows(line: &Value) -> bool {
    COMMANDS.is_valid(line)
}

fn hold(validator: &Validator, line: &Value) {
    let problems: Vec<String> =
        validator.iter_errors(line).map(|error| format!("at {:?}: {error}", error.instance_path().as_str())).collect();
    assert!(problems.is_empty(), "not valid under the schemas:\n  {line}\n  {}", problems.join("\n  "));
}

static LINES: LazyLock<Validator> = LazyLock::new(|| validator("pi-line.schema.json"));
static COMMANDS: LazyLock<Validator> = LazyLock::new(|| validator("pi-command.schema.json"));

fn validator(entrance: &str) -> Validator {
    let files = std::fs::read_dir(FOLDER).expect("the schemas");
    let mut registry = Registry::new();
    for file in files.flatten() {
        let name = file.file_name().into_string().expect("a name");
        registry = registry.add(name, read(&file.path())).expect("the names of the schemas are addresses");
    }
    let registry = registry.prepare().expect("the schemas refer to each other alone");
    let entrance = read(&std::path::Path::new(FOLDER).join(entrance));
    let options = jsonschema::options().with_draft(Draft::Draft202012).with_registry(&registry).offline();
    options.build(&entrance).expect("the schemas are schemas")
}

fn read(path: &std::path::Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("a schema")).expect("a schema is JSON")
}
