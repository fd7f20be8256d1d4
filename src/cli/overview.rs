//! `push` without a verb: lists the latest sessions and suggests commands.

use super::context::Context;
use super::exit::{CliError, Exit};
use super::sessions;
use crate::client::Request;

/// Prints the latest sessions and useful next commands.
pub(crate) async fn run(context: &mut Context) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let latest = client.request(Request::list_sessions(10)).await?.sessions;
    let waiting = client.request(Request::list_approvals(None)).await?.approvals.len();
    let table = sessions::session_table(&latest, &context.console);
    context.console.text(&table)?;
    context.console.text(&next_commands(!table.is_empty(), waiting))?;
    Ok(Exit::SUCCESS)
}

fn next_commands(sessions: bool, waiting: usize) -> String {
    let mut commands = Vec::new();
    if waiting > 0 {
        commands.push(("push approvals", "list pending approvals"));
    }
    if sessions {
        commands.push(("push attach @last", "attach to the latest session"));
        commands.push(("push log @last", "show its history"));
    }
    commands.push(("push run MESSAGE", "start a run, for example: push run '$ date'"));
    commands.push(("push help", "list all commands"));
    let heading = if sessions { "\n" } else { "No sessions yet.\n\n" };
    let lines = commands.iter().map(|(command, summary)| format!("  {command:<20} {summary}\n"));
    heading.to_owned() + &lines.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::next_commands;

    #[test]
    fn the_suggested_commands_depend_on_sessions_and_approvals() {
        let none = next_commands(false, 0);
        assert!(none.starts_with("No sessions yet."));
        assert!(none.contains("push run") && !none.contains("attach") && !none.contains("approvals"));
        let some = next_commands(true, 2);
        assert!(some.contains("push approvals") && some.contains("push attach @last"));
    }
}
