//! The built-in provider: a message is a list of steps in Markdown, which the provider executes in order.
//!
//! It needs no model, no network and no key. Its position follows from the journaled facts of the run alone: the
//! number of completed items and the outcome of the last step. Prose is sent as text; steps use the same tools as a
//! model.

pub mod parse;

use serde_json::json;

use super::{APPROVE_REMEDY, Provider, Question, Reports, Turning};
use crate::kernel::effect::{Finish, Turn};
use crate::kernel::event::{Ending, Outcome, Purpose, STOPPED_WITH_DAEMON, Settlement};
use parse::{Item, parse};

/// The name by which sessions select the provider.
pub const NAME: &str = "playbook";

/// The tools that steps use.
pub const TOOLS: [&str; 3] = [EXEC, WRITE, READ];

const EXEC: &str = "sandbox_exec";
const WRITE: &str = "sandbox_write_file";
const READ: &str = "sandbox_read_file";

/// The playbook provider.
#[derive(Debug, Clone, Copy)]
pub struct Playbook;

impl Provider for Playbook {
    fn name(&self) -> &'static str {
        NAME
    }

    fn turn(&self, turn: Turn, mut reports: Reports) -> Turning {
        Box::pin(async move {
            match next(&turn) {
                Next::Say(text) => {
                    for word in text.split_inclusive(char::is_whitespace) {
                        reports.say(word).await?;
                    }
                    reports.done_saying().await?;
                    reports.turn_done().await
                }
                Next::Call { tool, args, question } => {
                    reports.call(tool, args, Purpose::Work, question).await?;
                    reports.turn_done().await
                }
                Next::Finish(finish) => reports.finish(finish).await,
            }
        })
    }

    fn finish_at_stop(&self, turn: &Turn) -> Option<Finish> {
        match next(turn) {
            Next::Finish(finish) if finish.outcome != Outcome::Success => Some(finish),
            // Acceptance checks may follow a success.
            Next::Finish(_) | Next::Say(_) | Next::Call { .. } => None,
        }
    }
}

/// The action of one turn.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Say(String),
    Call { tool: &'static str, args: String, question: Option<Question> },
    Finish(Finish),
}

/// Decides the next action from the completed items.
fn next(turn: &Turn) -> Next {
    let items = parse(&turn.text);
    let problems: Vec<_> = parse::problems(&items).map(|(line, text)| problem(line, text)).collect();
    if !problems.is_empty() {
        return Next::Finish(Finish::for_good("INVALID_PLAYBOOK", problems.join("; ")));
    }
    let plan = plan(turn);
    let done = turn.done as usize;
    if let Some(finish) = done.checked_sub(1).and_then(|last| broken_off(&plan, last, turn.last.as_ref())) {
        return Next::Finish(finish);
    }
    match plan.get(done) {
        Some(item) => begin(item),
        None if !parse::has_steps(&plan) => {
            Next::Finish(Finish::for_good("PROVIDER_NOT_CONFIGURED", NO_STEPS))
        }
        None => Next::Finish(success(steps(&plan))),
    }
}

/// Returns the items of the message, with the steering messages inserted where the run received them.
fn plan(turn: &Turn) -> Vec<Item> {
    let mut plan = parse(&turn.text);
    for (at, steering) in &turn.steers {
        let at = (*at as usize).min(plan.len());
        // A steering message that cannot be parsed does not end the run; it is reported as text.
        let items = parse(&steering.text).into_iter().map(|item| match item {
            Item::Problem { line, text } => Item::Say(format!("(line {line} cannot be used: {text})\n")),
            Item::Say(_) | Item::Exec { .. } | Item::Write { .. } | Item::Read { .. } => item,
        });
        plan.splice(at..at, items.collect::<Vec<_>>());
    }
    plan
}

/// Sets the policy comment of the question for a step that is marked to ask first.
fn of_step(question: Question) -> Question {
    Question { policy_comment: format!("the step asks before it runs; {APPROVE_REMEDY}"), ..question }
}

fn begin(item: &Item) -> Next {
    match item {
        Item::Say(text) => Next::Say(text.clone()),
        Item::Exec { command, ask, go_on: _ } => {
            let args = json!({ "command": command }).to_string();
            let question = ask.then(|| {
                of_step(Question::plain("exec", "Approve command".to_owned(), command.clone(), args.clone()))
            });
            Next::Call { tool: EXEC, args, question }
        }
        Item::Write { path, content, ask } => {
            let args = json!({ "path": path, "content": content }).to_string();
            let question = ask.then(|| {
                let summary = format!("write {} bytes to {path}", content.len());
                of_step(Question::plain("write", format!("Approve writing {path}"), summary, args.clone()))
            });
            Next::Call { tool: WRITE, args, question }
        }
        Item::Read { path } => {
            Next::Call { tool: READ, args: json!({ "path": path }).to_string(), question: None }
        }
        Item::Problem { line, text } => {
            Next::Finish(Finish::for_good("INVALID_PLAYBOOK", problem(*line, text)))
        }
    }
}

/// Returns the end of the run if the item at `last` is a step that failed and does not allow failure.
fn broken_off(plan: &[Item], last: usize, settlement: Option<&Settlement>) -> Option<Finish> {
    let item = plan.get(last)?;
    let what = match item {
        Item::Say(_) | Item::Problem { .. } | Item::Exec { go_on: true, .. } => return None,
        Item::Exec { command, .. } => command.lines().next().unwrap_or_default().to_owned(),
        Item::Write { path, .. } => format!("write {path}"),
        Item::Read { path } => format!("read {path}"),
    };
    let settlement = settlement?;
    match settlement.ending {
        Ending::Done | Ending::Skipped => return None,
        Ending::Failed | Ending::Cut => {}
    }
    let number = steps(&plan[..=last]);
    let all = steps(plan);
    if settlement.fault.as_ref().is_some_and(|fault| fault.kind == STOPPED_WITH_DAEMON) {
        return Some(Finish {
            outcome: Outcome::Failed,
            reason: Some("stopped".to_owned()),
            summary: format!("step {number} of {all} was ended when the daemon was stopped: {what}"),
            fault: None,
        });
    }
    let why = settlement.fault.as_ref().map_or("it was cut short", |fault| fault.message.as_str());
    Some(Finish {
        outcome: Outcome::Failed,
        reason: Some("step_failed".to_owned()),
        summary: format!("step {number} of {all} failed ({why}): {what}"),
        fault: None,
    })
}

fn steps(items: &[Item]) -> usize {
    items.iter().filter(|item| !matches!(item, Item::Say(_) | Item::Problem { .. })).count()
}

fn problem(line: usize, text: &str) -> String {
    format!("line {line}: {text}")
}

const NO_STEPS: &str = "the message has no steps, and no model is chosen that could answer it: `push config` chooses \
    one, `push run --provider NAME --model NAME` does for one session; without a model, lines that begin with `$ ` and \
    fenced `sh` or `bash` blocks are run";

fn success(steps: usize) -> Finish {
    let plural = if steps == 1 { "" } else { "s" };
    Finish {
        outcome: Outcome::Success,
        reason: None,
        summary: format!("{steps} step{plural} done"),
        fault: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::effect::Voice;
    use crate::kernel::event::{Budget, Steering};
    use crate::kernel::id::{CallId, Fingerprint, MessageId, RunId, Seq};
    use crate::kernel::state::Spent;

    #[test]
    fn the_plan_is_walked_by_what_is_done() {
        let text = "First.\n\n$ one\n$? two\n";
        assert!(matches!(next(&turn(text, 0, None)), Next::Say(_)));
        assert!(matches!(next(&turn(text, 1, None)), Next::Call { question: None, .. }));
        let asked = next(&turn(text, 2, Some(Ending::Done)));
        assert!(matches!(asked, Next::Call { question: Some(question), .. } if question.summary == "two"));
        assert_eq!(
            outcome(&turn(text, 3, Some(Ending::Done))),
            Some((Outcome::Success, "2 steps done".into()))
        );
    }

    #[test]
    fn a_failing_step_ends_the_run_unless_it_may_fail() {
        let failed = outcome(&turn("$ one\n$ two", 1, Some(Ending::Failed)));
        assert_eq!(failed, Some((Outcome::Failed, "step 1 of 2 failed (it was cut short): one".into())));
        let text = "```sh continue\none\n```\n$ two";
        assert!(matches!(next(&turn(text, 1, Some(Ending::Failed))), Next::Call { .. }));
        assert!(matches!(next(&turn("$ one\n$ two", 1, Some(Ending::Skipped))), Next::Call { .. }));
    }

    #[test]
    fn a_message_without_steps_is_said_and_fails() {
        assert!(matches!(next(&turn("Only words.", 0, None)), Next::Say(_)));
        let Next::Finish(finish) = next(&turn("Only words.", 1, None)) else { panic!("it goes on") };
        assert_eq!(finish.fault.map(|fault| fault.kind).as_deref(), Some("PROVIDER_NOT_CONFIGURED"));
    }

    #[test]
    fn a_message_with_a_mistake_runs_nothing() {
        let Next::Finish(finish) = next(&turn("$ one\n```sh sometimes\ntwo\n```\n", 0, None)) else {
            panic!("it runs")
        };
        assert_eq!(finish.reason.as_deref(), Some("invalid_playbook"));
    }

    #[test]
    fn what_is_said_into_a_run_comes_next() {
        let mut turn = turn("$ one\n$ two", 1, Some(Ending::Done));
        turn.steers.push((1, steering("$ between")));
        assert!(matches!(next(&turn), Next::Call { args, .. } if args.contains("between")));
        turn.done = 2;
        assert!(matches!(next(&turn), Next::Call { args, .. } if args.contains("two")));
        turn.steers.push((2, steering("```sh wrongly\n```")));
        assert!(matches!(next(&turn), Next::Say(_)));
    }

    fn turn(text: &str, done: u32, last: Option<Ending>) -> Turn {
        let last = last.map(|ending| Settlement {
            call: CallId::new("c"),
            tool: "sandbox_exec".into(),
            purpose: Purpose::Work,
            millis: 1,
            ending,
            exit_code: None,
            text: String::new(),
            fault: None,
        });
        let (run, message) = (RunId::new("r"), MessageId::new("m"));
        Turn {
            run,
            text: text.into(),
            message,
            steers: Vec::new(),
            done,
            last,
            checking: false,
            budget: Budget::default(),
            needs_environment: false,
            spent: Spent::default(),
            context_from: Seq::ZERO,
            last_seq: Seq::ZERO,
            rules: Vec::new(),
            granted: Vec::new(),
            voice: Voice::default(),
        }
    }

    fn steering(text: &str) -> Steering {
        let (message, by) = (MessageId::new("s"), "cli".into());
        Steering { message, text: text.into(), images: Vec::new(), fingerprint: Fingerprint(0), by }
    }

    fn outcome(turn: &Turn) -> Option<(Outcome, String)> {
        match next(turn) {
            Next::Finish(finish) => Some((finish.outcome, finish.summary)),
            Next::Say(_) | Next::Call { .. } => None,
        }
    }
}
