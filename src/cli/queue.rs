//! `push queue`: messages that are sent when the active run has ended.

use serde_json::{Value, json};

use super::console::Console;
use super::context::Context;
use super::exit::{CliError, Exit};
use super::format::truncate;
use super::sanitize::sanitize_line;
use super::send::new_message_id;
use super::table::{Column, plain, table};
use super::{ids, message};
use crate::client::{Client, QueuedMessage, Request};

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
    let (output, answer) = match (text, args.remove) {
        (Some(text), _) => add(&mut client, &session, &text).await?,
        (None, Some(typed)) => remove(&mut client, &session, &typed).await?,
        (None, None) => {
            let (reply, json) = client.request_with_json(Request::list_queue(&session)).await?;
            (message_table(&reply.messages, &context.console), json)
        }
    };
    if args.json {
        context.console.json(&answer)?;
    } else {
        context.console.text(&output)?;
        if output.is_empty() {
            context.console.notice("no queued messages");
        }
    }
    Ok(Exit::SUCCESS)
}

async fn add(client: &mut Client, session: &str, text: &str) -> Result<(String, Value), CliError> {
    let request = Request::queue_message(session, &new_message_id(), text);
    let (reply, json) = client.request_with_json(request).await?;
    let place = match reply.position {
        0 => "started a run at once".to_owned(),
        position => format!("number {position} in the queue"),
    };
    Ok((format!("{} {place}\n", sanitize_line(&reply.message_id)), json))
}

async fn remove(client: &mut Client, session: &str, typed: &str) -> Result<(String, Value), CliError> {
    let waiting = client.request(Request::list_queue(session)).await?.messages;
    let known: Vec<String> = waiting.into_iter().map(|message| message.message_id).collect();
    let id = ids::resolve("queued message", "msg_", typed, &known)?;
    client.request(Request::remove_queued(session, &id)).await?;
    Ok((format!("{} removed from the queue\n", sanitize_line(&id)), json!({"removed": true, "messageId": id})))
}

fn message_table(messages: &[QueuedMessage], console: &Console) -> String {
    let cells = |message: &QueuedMessage| {
        let id = sanitize_line(ids::short(&message.message_id));
        [id, truncate(&sanitize_line(&message.text), 80)].map(plain)
    };
    let rows: Vec<_> = messages.iter().map(cells).collect();
    table([Column::whole("ID"), Column::shortened("MESSAGE", 8)], &rows, console)
}
