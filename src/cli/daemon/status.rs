//! `push daemon status`: prints the state of the daemon.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::format::size;
use crate::cli::sanitize::sanitize_line;
use crate::cli::sessions::age;
use crate::client::{MetricsReply, Request};

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

/// Returns the status as JSON; an address is null if the listener is disabled.
fn with_running(metrics: &MetricsReply) -> Value {
    json!({
        "running": true,
        "pid": metrics.pid,
        "version": metrics.version,
        "uptimeSeconds": metrics.uptime_seconds,
        "socket": metrics.socket,
        "http": metrics.http,
        "pi": metrics.pi,
        "pvp": metrics.pvp,
        "sessions": metrics.sessions,
        "connections": metrics.connections,
        "events": metrics.events,
        "journalBytes": metrics.journal_bytes,
        "memoryBytes": metrics.memory_bytes,
    })
}

fn describe(metrics: &MetricsReply) -> String {
    let number = |value: Option<u64>| value.unwrap_or_default();
    let text = |value: &Option<String>| sanitize_line(value.as_deref().unwrap_or_default());
    let state = if metrics.draining { "draining" } else { "running" };
    let address = |name: &str, at: &Option<String>| {
        at.as_deref().map_or_else(String::new, |at| format!("{name:<13}{}\n", sanitize_line(at)))
    };
    let listeners = address("http", &metrics.http) + &address("pi", &metrics.pi);
    let up = age(number(metrics.uptime_seconds).saturating_mul(1000));
    format!(
        "pushd {} {state} for {up} (pid {})\nsocket       {}\n{}sessions     {} ({} in memory)\nactive runs  {}\n\
         connections  {}\nevents       {}\njournal      {}\nmemory       {}\n",
        text(&metrics.version),
        metrics.pid.unwrap_or_default(),
        text(&metrics.socket),
        listeners,
        number(metrics.sessions),
        number(metrics.resident_sessions),
        number(metrics.active_runs),
        number(metrics.connections),
        number(metrics.events),
        size(number(metrics.journal_bytes)),
        size(number(metrics.memory_bytes)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_has_running_and_all_fields() {
        let status = with_running(&metrics(json!({"pid": 7, "version": "0.1.0"})));
        assert_eq!(status["running"], true);
        assert_eq!((&status["pid"], &status["http"]), (&json!(7), &Value::Null));
        assert_eq!(status.as_object().map(serde_json::Map::len), Some(13));
        let text = describe(&metrics(json!({"pid": 7, "version": "0.1.0", "uptimeSeconds": 61, "draining": false})));
        assert!(text.starts_with("pushd 0.1.0 running for 1m (pid 7)\n"), "{text}");
        assert!(!text.contains("pi  "), "{text}");
        let text = describe(&metrics(json!({"pi": "127.0.0.1:3141"})));
        assert!(text.contains("\npi           127.0.0.1:3141\nsessions"), "{text}");
        let text = describe(&metrics(json!({"http": "127.0.0.1:3140"})));
        assert!(text.contains("\nhttp         127.0.0.1:3140\nsessions"), "{text}");
    }

    fn metrics(metrics: Value) -> MetricsReply {
        serde_json::from_value(metrics).unwrap()
    }
}
