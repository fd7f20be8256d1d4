//! `push queue`: messages that are sent when the active run has ended.

use serde_json::{Value, json};

use super::context::Context;
use super::exit::{CliError, Exit};
use super::format::{field, truncate};
use super::sanitize::sanitize_line;
use super::send::new_message_id;
use super::{ids, message};
use crate::client::{Client, Request};

/// List, add or remove queued messages of a session
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  push queue @last 'then update the changelog'\n  push queue @last\n  push queue @last --remove msg_01"
)]
pub(crate) struct QueueArgs {
    /// The session
    session: String,
    /// A message to add; `-` reads standard input, `@FILE` a file
    #[arg(conflicts_with = "remove")]
    message: Option<String>,
    /// Remove this message from the queue
    #[arg(long, value_name = "ID")]
    remove: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Shows or changes the queue.
pub(crate) async fn run(args: QueueArgs, context: &mut Context) -> Result<Exit, CliError> {
    let text = args.message.as_deref().map(message::read).transpose()?;
    let mut client = context.client().await?;
    let session = ids::resolve_session(&mut client, &args.session).await?;
    let (words, answer) = match (text, args.remove) {
        (Some(text), _) => add(&mut client, &session, &text).await?,
        (None, Some(typed)) => remove(&mut client, &session, &typed).await?,
        (None, None) => {
            let answer = client.request(Request::list_queue(&session)).await?;
            (table(&answer["messages"]), answer)
        }
    };
    if args.json {
        context.console.json(&answer)?;
    } else {
        context.console.text(&words)?;
    }
    Ok(Exit::SUCCESS)
}

async fn add(client: &mut Client, session: &str, text: &str) -> Result<(String, Value), CliError> {
    let answer = client.request(Request::queue_message(session, &new_message_id(), text)).await?;
    let place = match answer.get("position").and_then(Value::as_u64) {
        Some(0) | None => "started a run at once".to_owned(),
        Some(position) => format!("number {position} in the queue"),
    };
    let words = format!("{} {place}\n", sanitize_line(&field(&answer, "messageId")));
    Ok((words, answer))
}

async fn remove(client: &mut Client, session: &str, typed: &str) -> Result<(String, Value), CliError> {
    let waiting = client.request(Request::list_queue(session)).await?;
    let known = ids::column(&waiting["messages"], "messageId");
    let id = ids::resolve("queued message", "msg_", typed, &known)?;
    client.request(Request::remove_queued(session, &id)).await?;
    Ok((format!("{} removed from the queue\n", sanitize_line(&id)), json!({"removed": true, "messageId": id})))
}

fn table(messages: &Value) -> String {
    let items = messages.as_array().map(Vec::as_slice).unwrap_or_default();
    let line = |item: &Value| {
        let id = sanitize_line(&field(item, "messageId"));
        format!("{id}  {}\n", truncate(&sanitize_line(&field(item, "text")), 80))
    };
    items.iter().map(line).collect()
}
