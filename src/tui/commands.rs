//! The `/` commands: verbs of `push` for the session that is shown.

use super::client_task::{Call, CallReply};
use super::model::{Effect, FollowUp, LeaveReason, Model};
use crate::display::sanitize::{escape_line, sanitize_line};
use crate::display::style::Style;

/// The commands: name, arguments and description.
pub(crate) const COMMANDS: &[(&str, &str, &str)] = &[
    ("/help", "", "list the commands and keys"),
    ("/status", "", "show the state of the session"),
    ("/queue", "", "list the queued messages"),
    ("/steer", "TEXT", "send a message into the active run"),
    ("/cancel", "", "cancel the active run"),
    ("/approvals", "", "list the pending approvals of all sessions"),
    ("/rules", "", "list the remembered approvals"),
    ("/compact", "[INSTRUCTIONS]", "summarise the older part of the conversation"),
    ("/rename", "NAME", "rename the session"),
    ("/detach", "", "leave; the run continues"),
    ("/end", "", "end the session: it accepts no more messages"),
];

/// The keys, for the help.
pub(crate) const KEYS: &[(&str, &str)] = &[
    ("Enter", "send; during a run the message is queued"),
    ("Alt-Enter, Ctrl-J", "line break"),
    ("Ctrl-S", "send into the active run (steer)"),
    ("Tab", "complete, or move the focus: approval, queue, message"),
    ("Up, Down", "earlier messages, in the first and last row"),
    ("PageUp", "scroll back; / searches, q or Esc returns"),
    ("Ctrl-N", "new session in this directory"),
    ("Ctrl-P", "list of sessions and commands"),
    ("Ctrl-O", "show all output of tools, or fold it"),
    ("Ctrl-T", "show or fold the model's reasoning"),
    ("Ctrl-_", "undo"),
    ("Ctrl-C", "cancel the run; twice within two seconds leaves"),
    ("Ctrl-D", "leave, on an empty line; the run continues"),
    ("Ctrl-Z", "suspend"),
    ("!COMMAND", "run a command of your own"),
    ("@FILE", "name a file; an image is attached"),
];

/// Returns whether a text is a command: a slash and a word, not a path.
pub(crate) fn is_command(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default();
    word.strip_prefix('/').is_some_and(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase()))
}

/// Executes a command; the composer is empty already.
pub(crate) fn execute(model: &mut Model, text: &str) -> Vec<Effect> {
    let (name, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    let rest = rest.trim().to_owned();
    let draft = Some(text.to_owned());
    match name {
        "/help" => {
            print_help(model);
            Vec::new()
        }
        "/status" => vec![model.call_then(Call::Snapshot, None, FollowUp::Print)],
        "/queue" => vec![model.call_then(Call::ListQueue, None, FollowUp::Print)],
        "/approvals" => vec![model.call_then(Call::ListApprovals, None, FollowUp::Print)],
        "/rules" => vec![model.call_then(Call::ListRules, None, FollowUp::Print)],
        "/steer" if !rest.is_empty() => {
            let id = (model.new_id)();
            vec![model.call(Call::Steer { id, text: rest }, draft)]
        }
        "/cancel" => vec![model.call(Call::Cancel, None)],
        "/compact" => {
            let instructions = (!rest.is_empty()).then_some(rest);
            vec![model.call(Call::Compact { instructions }, draft)]
        }
        "/rename" if !rest.is_empty() => vec![model.call(Call::Rename { name: rest }, draft)],
        "/detach" => vec![Effect::Leave(LeaveReason::Detached)],
        "/end" => vec![model.call(Call::End, draft)],
        "/steer" | "/rename" => {
            model.composer.restore(text);
            model.show_hint(format!("{name} needs a text"));
            Vec::new()
        }
        _ => {
            model.composer.restore(text);
            model.show_hint(format!("{} is not a command; /help lists them", sanitize_line(name)));
            Vec::new()
        }
    }
}

/// Prints a reply.
pub(crate) fn print_reply(model: &mut Model, reply: &CallReply) {
    let lines: Vec<String> = match reply {
        CallReply::Done | CallReply::Sessions(_) => return,
        CallReply::Queue(messages) if messages.is_empty() => vec!["no message is queued".to_owned()],
        CallReply::Queue(messages) => {
            let numbered = messages.iter().enumerate();
            numbered.map(|(at, message)| format!("queued {}: {}", at + 1, sanitize_line(&message.text))).collect()
        }
        CallReply::Approvals(approvals) if approvals.is_empty() => vec!["no approval is pending".to_owned()],
        CallReply::Approvals(approvals) => approvals
            .iter()
            .map(|approval| {
                let (id, session) = (sanitize_line(approval.question.gate.as_str()), sanitize_line(&approval.session));
                format!("{id} in {session}: {}", escape_line(&approval.question.summary))
            })
            .collect(),
        CallReply::Rules(grants) if grants.is_empty() => vec!["nothing is remembered".to_owned()],
        CallReply::Rules(grants) => grants
            .iter()
            .map(|grant| format!("{}  {}", escape_line(&grant.rule), sanitize_line(&grant.repository)))
            .collect(),
        CallReply::Snapshot(snapshot) => {
            let meta = &snapshot.meta;
            vec![
                format!("session {}, {}", model.handle, sanitize_line(snapshot.state.as_str())),
                format!("directory {}", sanitize_line(&meta.cwd)),
                format!("model {}", sanitize_line(&model.provider)),
                format!("usage {}", model.usage.words()),
                format!("queued {}, last event {}", snapshot.queued, snapshot.last_seq),
            ]
        }
    };
    let now = model.now;
    lines.iter().for_each(|line| model.transcript.note(Style::Faint, line, now));
}

fn print_help(model: &mut Model) {
    let now = model.now;
    for (name, arguments, about) in COMMANDS {
        let usage = format!("{name} {arguments}");
        model.transcript.note(Style::Faint, &format!("{usage:<26} {about}"), now);
    }
    for (key, about) in KEYS {
        model.transcript.note(Style::Faint, &format!("{key:<26} {about}"), now);
    }
}
