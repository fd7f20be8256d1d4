//! `push config show`: prints the effective configuration and the origin of each value.

use serde_json::{Value, json};

use super::projects;
use crate::cli::console::{Palette, Style};
use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::format::{pad, width};
use crate::cli::models::{environment, kinds, models, read_config};
use crate::cli::sanitize::sanitize_line;
use crate::config::origin::{ConfigRow, ValueOrigin, effective_values};
use crate::provider::keys::KeySource;
use crate::provider::registry::ModelRegistry;

/// Show the effective configuration and the origin of each value, without keys
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Shows the values for a session started in this directory. A value comes from the file, a variable, a project's file or is \
the default. For keys only their location is shown.

Examples:
  push config show
  push config show --json | jq '.settings[] | select(.origin != \"default\")'")]
pub(super) struct ShowArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints every value and the locations of keys.
pub(super) async fn run(args: &ShowArgs, context: &mut Context) -> Result<Exit, CliError> {
    let paths = context.paths()?;
    let path = &paths.config;
    let file = read_config(path)?;
    let rows = effective_values(&file, &projects()?, &|name| std::env::var_os(name), &kinds());
    let keys = key_locations(&models(&paths, &file)).await;
    if args.json {
        let settings: Vec<Value> = rows.iter().map(row_object).collect();
        let keys: Vec<Value> = keys.iter().map(|(provider, place)| key_object(provider, place)).collect();
        let shown = json!({"file": path.display().to_string(), "exists": path.exists(), "settings": settings,
            "keys": keys});
        context.console.json(&shown)?;
    } else {
        let found = if path.exists() { "" } else { " (does not exist)" };
        let head = format!("{}{found}\n", sanitize_line(&path.display().to_string()));
        let palette = context.console.palette;
        context.console.text(&(head + &table(&rows, palette) + &key_table(&keys, palette)))?;
    }
    Ok(Exit::SUCCESS)
}

/// The location of a provider's key.
#[derive(Debug, PartialEq, Eq)]
enum KeyLocation {
    Known(KeySource),
    Missing,
    /// The lookup failed for this reason.
    Unknown(String),
}

async fn key_locations(models: &ModelRegistry) -> Vec<(String, KeyLocation)> {
    let environment = environment();
    let mut keys = Vec::new();
    for provider in models.names() {
        let place = match models.key_source(provider, &environment).await {
            Ok(Some(source)) => KeyLocation::Known(source),
            Ok(None) => KeyLocation::Missing,
            Err(error) => KeyLocation::Unknown(error.message),
        };
        keys.push((provider.to_owned(), place));
    }
    keys
}

fn key_object(provider: &str, place: &KeyLocation) -> Value {
    match place {
        KeyLocation::Known(KeySource::Variable(name)) => {
            json!({"provider": provider, "from": "variable", "variable": name})
        }
        KeyLocation::Known(KeySource::File(path)) => {
            json!({"provider": provider, "from": "file", "file": path.display().to_string()})
        }
        KeyLocation::Known(KeySource::Keyring) => json!({"provider": provider, "from": "keyring"}),
        KeyLocation::Missing => json!({"provider": provider, "from": "none"}),
        KeyLocation::Unknown(why) => json!({"provider": provider, "from": "unknown", "problem": why}),
    }
}

fn key_table(keys: &[(String, KeyLocation)], palette: Palette) -> String {
    let names: Vec<String> = keys.iter().map(|(provider, _)| sanitize_line(provider)).collect();
    let columns = names.iter().map(|name| width(name)).max().unwrap_or_default();
    let line = |((_, place), name): (&(String, KeyLocation), &String)| {
        let place = match place {
            KeyLocation::Known(source) => sanitize_line(&source.to_string()),
            KeyLocation::Missing => palette.paint(Style::Faint, "none"),
            KeyLocation::Unknown(why) => palette.paint(Style::Bad, &sanitize_line(why)),
        };
        format!("key of {}  {place}\n", pad(name, columns))
    };
    keys.iter().zip(&names).map(line).collect()
}

fn row_object(row: &ConfigRow) -> Value {
    let mut object = json!({"key": row.key, "value": row.value, "origin": origin_name(&row.origin)});
    match &row.origin {
        ValueOrigin::File { line } => object["line"] = json!(line),
        ValueOrigin::Project { path, line } => {
            object["line"] = json!(line);
            object["file"] = json!(path.display().to_string());
        }
        ValueOrigin::Variable(name) => object["variable"] = json!(name),
        ValueOrigin::Default => {}
    }
    object
}

const fn origin_name(origin: &ValueOrigin) -> &'static str {
    match origin {
        ValueOrigin::File { .. } => "file",
        ValueOrigin::Project { .. } => "project",
        ValueOrigin::Variable(_) => "variable",
        ValueOrigin::Default => "default",
    }
}

fn table(rows: &[ConfigRow], palette: Palette) -> String {
    let cells: Vec<(String, String)> =
        rows.iter().map(|row| (sanitize_line(&row.key), sanitize_line(&format_value(&row.value)))).collect();
    let columns =
        |of: fn(&(String, String)) -> &String| cells.iter().map(|cell| width(of(cell))).max().unwrap_or_default();
    let (keys, values) = (columns(|cell| &cell.0), columns(|cell| &cell.1).min(MAX_VALUE_WIDTH));
    let line = |(row, (key, value)): (&ConfigRow, &(String, String))| {
        let origin = palette.paint(Style::Faint, &describe_origin(&row.origin));
        format!("{}  {}  {origin}\n", pad(key, keys), pad(value, values))
    };
    rows.iter().zip(&cells).map(line).collect()
}

/// The maximum width of the value column; longer values exceed it.
const MAX_VALUE_WIDTH: usize = 40;

fn format_value(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name} {value}")).collect();
            fields.join(", ")
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => value.to_string(),
    }
}

fn describe_origin(origin: &ValueOrigin) -> String {
    match origin {
        ValueOrigin::File { line } => format!("file, line {line}"),
        ValueOrigin::Project { path, line } => {
            format!("{}, line {line}", sanitize_line(&path.display().to_string()))
        }
        ValueOrigin::Variable(name) => name.clone(),
        ValueOrigin::Default => "default".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_aligned_and_sanitized() {
        let row = |key: &str, value: Value, origin| ConfigRow { key: key.into(), value, origin };
        let rows = [
            row("model", json!("a\u{1b}[2Jb"), ValueOrigin::File { line: 3 }),
            row("limits.max_turns", Value::Null, ValueOrigin::Default),
            row("prices.m", json!({"input": 1.25}), ValueOrigin::Variable("X".into())),
        ];
        assert_eq!(
            table(&rows, Palette::Plain),
            "model             ab          file, line 3\n\
             limits.max_turns  -           default\n\
             prices.m          input 1.25  X\n"
        );
    }

    #[test]
    fn keys_are_shown_by_location() {
        let keys = [
            ("a".to_owned(), KeyLocation::Known(KeySource::Variable("A_API_KEY".into()))),
            ("bee".to_owned(), KeyLocation::Known(KeySource::File("/c/keys.toml".into()))),
            ("c".to_owned(), KeyLocation::Known(KeySource::Keyring)),
            ("d".to_owned(), KeyLocation::Missing),
            ("e".to_owned(), KeyLocation::Unknown("x\u{1b}[2J".into())),
        ];
        assert_eq!(
            key_table(&keys, Palette::Plain),
            "key of a    A_API_KEY\nkey of bee  /c/keys.toml\nkey of c    the keyring\nkey of d    none\nkey of e    x\n"
        );
        let words: Vec<Value> = keys.iter().map(|(name, place)| key_object(name, place)["from"].clone()).collect();
        assert_eq!(words, ["variable", "file", "keyring", "none", "unknown"]);
    }

    #[test]
    fn an_origin_has_a_name_and_its_details() {
        let row = |origin| row_object(&ConfigRow { key: "k".into(), value: json!(1), origin });
        assert_eq!(
            row(ValueOrigin::Project { path: "/p".into(), line: 2 }),
            json!({"key": "k", "value": 1, "origin": "project", "file": "/p", "line": 2})
        );
        assert_eq!(
            row(ValueOrigin::Variable("V".into())),
            json!({"key": "k", "value": 1, "origin": "variable", "variable": "V"})
        );
    }
}
