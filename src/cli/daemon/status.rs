//! `push daemon status`: prints the state of the daemon.

use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::format::size;
use crate::cli::sanitize::sanitize_line;
use crate::cli::sessions::age;
use crate::client::Request;

/// Show the state of the daemon; exit code 69 if it is not running
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  push daemon status\n  push daemon status --json | jq .pid")]
pub(crate) struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the state of the daemon without starting it.
pub(super) async fn run(args: StatusArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut client = match context.client_if_running().await {
        Ok(client) => client,
        Err(error) if error.is_not_running() => {
            if args.json {
                context.console.json(&json!({"running": false}))?;
            } else {
                context.console.line("pushd is not running")?;
            }
            return Ok(Exit::UNAVAILABLE);
        }
        Err(error) => return Err(error),
    };
    let metrics = client.request(Request::metrics()).await?;
    if args.json {
        context.console.json(&with_running(&metrics))?;
    } else {
        context.console.text(&describe(&metrics))?;
    }
    Ok(Exit::SUCCESS)
}

/// The fields of the status besides `running`; an address is null if the listener is disabled.
const FIELDS: [&str; 12] = [
    "pid",
    "version",
    "uptimeSeconds",
    "socket",
    "http",
    "pi",
    "pvp",
    "sessions",
    "connections",
    "events",
    "journalBytes",
    "memoryBytes",
];

fn with_running(metrics: &Value) -> Value {
    let mut status = Map::from_iter([("running".to_owned(), Value::Bool(true))]);
    let field = |name: &str| (name.to_owned(), metrics.get(name).cloned().unwrap_or_default());
    status.extend(FIELDS.map(field));
    Value::Object(status)
}

fn describe(metrics: &Value) -> String {
    let number = |name| metrics.get(name).and_then(Value::as_u64).unwrap_or_default();
    let text = |name| sanitize_line(metrics.get(name).and_then(Value::as_str).unwrap_or_default());
    let draining = metrics.get("draining").and_then(Value::as_bool).unwrap_or_default();
    let state = if draining { "draining" } else { "running" };
    let pi = metrics.get("pi").and_then(Value::as_str).map(|at| format!("pi           {}\n", sanitize_line(at)));
    let up = age(number("uptimeSeconds").saturating_mul(1000));
    format!(
        "pushd {} {state} for {up} (pid {})\nsocket       {}\n{}sessions     {} ({} in memory)\nactive runs  {}\n\
         connections  {}\nevents       {}\njournal      {}\nmemory       {}\n",
        text("version"),
        number("pid"),
        text("socket"),
        pi.unwrap_or_default(),
        number("sessions"),
        number("residentSessions"),
        number("activeRuns"),
        number("connections"),
        number("events"),
        size(number("journalBytes")),
        size(number("memoryBytes")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_has_running_and_all_fields() {
        let status = with_running(&json!({"pid": 7, "version": "0.1.0"}));
        assert_eq!(status["running"], true);
        assert_eq!((&status["pid"], &status["http"]), (&json!(7), &Value::Null));
        assert_eq!(status.as_object().map(Map::len), Some(1 + FIELDS.len()));
        let text = describe(&json!({"pid": 7, "version": "0.1.0", "uptimeSeconds": 61, "draining": false}));
        assert!(text.starts_with("pushd 0.1.0 running for 1m (pid 7)\n"), "{text}");
        assert!(!text.contains("pi  "), "{text}");
        let text = describe(&json!({"pi": "127.0.0.1:3141"}));
        assert!(text.contains("\npi           127.0.0.1:3141\nsessions"), "{text}");
    }
}
