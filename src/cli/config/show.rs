//! `push config show`: prints the effective configuration and the origin of each value.

use serde_json::{Value, json};

use super::projects;
use crate::cli::console::{Palette, Style};
use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::models::{environment, models};
use crate::cli::plain::plain_line;
use crate::config::file;
use crate::config::origin::{Origin, Row, rows};
use crate::provider::keys::Source;
use crate::provider::registry::Models;

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
    let file = file::read(path)?;
    let rows = rows(&file, &projects()?, &|name| std::env::var_os(name));
    let keys = keys(&models(&paths, &file)).await;
    if args.json {
        let settings: Vec<Value> = rows.iter().map(object).collect();
        let keys: Vec<Value> = keys.iter().map(|(provider, place)| key_object(provider, place)).collect();
        let shown = json!({"file": path.display().to_string(), "exists": path.exists(), "settings": settings,
            "keys": keys});
        context.console.json(&shown)?;
    } else {
        let found = if path.exists() { "" } else { " (does not exist)" };
        let head = format!("{}{found}\n", plain_line(&path.display().to_string()));
        let palette = context.console.palette;
        context.console.text(&(head + &table(&rows, palette) + &key_table(&keys, palette)))?;
    }
    Ok(Exit::SUCCESS)
}

/// The location of a provider's key.
#[derive(Debug, PartialEq, Eq)]
enum KeyPlace {
    At(Source),
    Nowhere,
    /// The lookup failed for this reason.
    Unknown(String),
}

async fn keys(models: &Models) -> Vec<(String, KeyPlace)> {
    let environment = environment();
    let mut keys = Vec::new();
    for provider in models.names() {
        let place = match models.key_source(provider, &environment).await {
            Ok(Some(source)) => KeyPlace::At(source),
            Ok(None) => KeyPlace::Nowhere,
            Err(error) => KeyPlace::Unknown(error.message),
        };
        keys.push((provider.to_owned(), place));
    }
    keys
}

fn key_object(provider: &str, place: &KeyPlace) -> Value {
    match place {
        KeyPlace::At(Source::Variable(name)) => {
            json!({"provider": provider, "from": "variable", "variable": name})
        }
        KeyPlace::At(Source::File(path)) => {
            json!({"provider": provider, "from": "file", "file": path.display().to_string()})
        }
        KeyPlace::At(Source::Keyring) => json!({"provider": provider, "from": "keyring"}),
        KeyPlace::Nowhere => json!({"provider": provider, "from": "none"}),
        KeyPlace::Unknown(why) => json!({"provider": provider, "from": "unknown", "problem": why}),
    }
}

fn key_table(keys: &[(String, KeyPlace)], palette: Palette) -> String {
    let width = keys.iter().map(|(provider, _)| provider.chars().count()).max().unwrap_or_default();
    let line = |(provider, place): &(String, KeyPlace)| {
        let place = match place {
            KeyPlace::At(source) => plain_line(&source.to_string()),
            KeyPlace::Nowhere => palette.paint(Style::Faint, "none"),
            KeyPlace::Unknown(why) => palette.paint(Style::Bad, &plain_line(why)),
        };
        format!("key of {:width$}  {place}\n", plain_line(provider))
    };
    keys.iter().map(line).collect()
}

fn object(row: &Row) -> Value {
    let mut object = json!({"key": row.key, "value": row.value, "origin": word(&row.origin)});
    match &row.origin {
        Origin::File { line } => object["line"] = json!(line),
        Origin::Project { path, line } => {
            object["line"] = json!(line);
            object["file"] = json!(path.display().to_string());
        }
        Origin::Variable(name) => object["variable"] = json!(name),
        Origin::Default => {}
    }
    object
}

const fn word(origin: &Origin) -> &'static str {
    match origin {
        Origin::File { .. } => "file",
        Origin::Project { .. } => "project",
        Origin::Variable(_) => "variable",
        Origin::Default => "default",
    }
}

fn table(rows: &[Row], palette: Palette) -> String {
    let cells: Vec<(String, String)> =
        rows.iter().map(|row| (plain_line(&row.key), plain_line(&shown(&row.value)))).collect();
    let width = |of: fn(&(String, String)) -> &String| {
        cells.iter().map(|cell| of(cell).chars().count()).max().unwrap_or_default()
    };
    let (keys, values) = (width(|cell| &cell.0), width(|cell| &cell.1).min(WIDEST));
    let line = |(row, (key, value)): (&Row, &(String, String))| {
        let origin = palette.paint(Style::Faint, &told(&row.origin));
        format!("{key:keys$}  {value:values$}  {origin}\n")
    };
    rows.iter().zip(&cells).map(line).collect()
}

/// The maximum width of the value column; longer values exceed it.
const WIDEST: usize = 40;

fn shown(value: &Value) -> String {
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

fn told(origin: &Origin) -> String {
    match origin {
        Origin::File { line } => format!("file, line {line}"),
        Origin::Project { path, line } => format!("{}, line {line}", plain_line(&path.display().to_string())),
        Origin::Variable(name) => name.clone(),
        Origin::Default => "default".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_columns_and_foreign_text_is_harmless() {
        let row = |key: &str, value: Value, origin| Row { key: key.into(), value, origin };
        let rows = [
            row("model", json!("a\u{1b}[2Jb"), Origin::File { line: 3 }),
            row("limits.max_turns", Value::Null, Origin::Default),
            row("prices.m", json!({"input": 1.25}), Origin::Variable("X".into())),
        ];
        assert_eq!(
            table(&rows, Palette::Plain),
            "model             ab          file, line 3\n\
             limits.max_turns  -           default\n\
             prices.m          input 1.25  X\n"
        );
    }

    #[test]
    fn of_keys_their_places_are_told() {
        let keys = [
            ("a".to_owned(), KeyPlace::At(Source::Variable("A_API_KEY".into()))),
            ("bee".to_owned(), KeyPlace::At(Source::File("/c/keys.toml".into()))),
            ("c".to_owned(), KeyPlace::At(Source::Keyring)),
            ("d".to_owned(), KeyPlace::Nowhere),
            ("e".to_owned(), KeyPlace::Unknown("x\u{1b}[2J".into())),
        ];
        assert_eq!(
            key_table(&keys, Palette::Plain),
            "key of a    A_API_KEY\nkey of bee  /c/keys.toml\nkey of c    the keyring\nkey of d    none\nkey of e    x\n"
        );
        let words: Vec<Value> =
            keys.iter().map(|(name, place)| key_object(name, place)["from"].clone()).collect();
        assert_eq!(words, ["variable", "file", "keyring", "none", "unknown"]);
    }

    #[test]
    fn an_origin_is_a_word_with_its_particulars() {
        let row = |origin| object(&Row { key: "k".into(), value: json!(1), origin });
        assert_eq!(
            row(Origin::Project { path: "/p".into(), line: 2 }),
            json!({"key": "k", "value": 1, "origin": "project", "file": "/p", "line": 2})
        );
        assert_eq!(
            row(Origin::Variable("V".into())),
            json!({"key": "k", "value": 1, "origin": "variable", "variable": "V"})
        );
    }
}
