//! The built-in provider: a message is a list of steps in Markdown, which the provider executes in order.
//!
//! It needs no model, no network and no key. Its position follows from the journaled facts of the run alone: the
//! number of completed items and the outcome of the last step. Prose is sent as text; steps use the same tools as a
//! model.

pub mod parse;

use serde_json::{Value, json};

use super::{APPROVE_REMEDY, Provider, Question, ReportSender, TurnFuture};
use crate::kernel::effect::{FinishReport, TurnRequest};
use crate::kernel::event::{CallResult, Purpose, RunOutcome, STOPPED_WITH_DAEMON, ToolOutcome};
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

    fn turn(&self, turn: TurnRequest, mut reports: ReportSender) -> TurnFuture {
        Box::pin(async move {
            match next_action(&turn) {
                NextAction::Text(text) => {
                    for word in text.split_inclusive(char::is_whitespace) {
                        reports.send_text(word).await?;
                    }
                    reports.end_text().await?;
                    reports.end_turn().await
                }
                NextAction::Call { tool, args, question } => {
                    reports.request_call(tool, args, Purpose::Work, question).await?;
                    reports.end_turn().await
                }
                NextAction::Finish(finish) => reports.finish(finish).await,
            }
        })
    }

    fn finish_at_stop(&self, turn: &TurnRequest) -> Option<FinishReport> {
        match next_action(turn) {
            NextAction::Finish(finish) if finish.outcome != RunOutcome::Success => Some(finish),
            // Acceptance checks may follow a success.
            NextAction::Finish(_) | NextAction::Text(_) | NextAction::Call { .. } => None,
        }
    }
}

/// The action of one turn.
#[derive(Debug, PartialEq, Eq)]
enum NextAction {
    Text(String),
    Call { tool: &'static str, args: String, question: Option<Question> },
    Finish(FinishReport),
}

/// Decides the next action from the completed items.
fn next_action(turn: &TurnRequest) -> NextAction {
    let items = parse(&turn.text);
    let problems: Vec<_> = parse::problems(&items).map(|(line, text)| format_problem(line, text)).collect();
    if !problems.is_empty() {
        return NextAction::Finish(FinishReport::permanent_failure("INVALID_PLAYBOOK", problems.join("; ")));
    }
    let plan = plan(turn);
    let done = turn.steps_done as usize;
    if let Some(finish) = done.checked_sub(1).and_then(|last| failed_step(&plan, last, turn.last_call.as_ref())) {
        return NextAction::Finish(finish);
    }
    match plan.get(done) {
        Some(item) => start_item(item),
        None if !parse::has_steps(&plan) => {
            NextAction::Finish(FinishReport::permanent_failure("PROVIDER_NOT_CONFIGURED", NO_STEPS))
        }
        None => NextAction::Finish(success(count_steps(&plan))),
    }
}

/// Returns the items of the message, with the steering messages inserted where the run received them.
fn plan(turn: &TurnRequest) -> Vec<Item> {
    let mut plan = parse(&turn.text);
    for (at, steering) in &turn.steers {
        let at = (*at as usize).min(plan.len());
        // A steering message that cannot be parsed does not end the run; it is reported as text.
        let items = parse(&steering.text).into_iter().map(|item| match item {
            Item::Problem { line, text } => Item::Prose(format!("(line {line} cannot be used: {text})\n")),
            Item::Prose(_) | Item::Exec { .. } | Item::Write { .. } | Item::Read { .. } => item,
        });
        plan.splice(at..at, items.collect::<Vec<_>>());
    }
    plan
}

/// Returns the question for a step that is marked to ask first.
fn asking_step(kind: &'static str, title: String, summary: String, mut details: Value) -> Question {
    details["reason"] = ASKS_FIRST.into();
    let question = Question::plain(kind, title, summary, details.to_string());
    Question { policy_comment: format!("{ASKS_FIRST}; {APPROVE_REMEDY}"), ..question }
}

/// Why a step that is marked to ask first asks.
const ASKS_FIRST: &str = "the step asks before it runs";

fn start_item(item: &Item) -> NextAction {
    match item {
        Item::Prose(text) => NextAction::Text(text.clone()),
        Item::Exec { command, ask, continue_on_failure: _ } => {
            let args = json!({ "command": command });
            let question =
                ask.then(|| asking_step("exec", "Approve command".to_owned(), command.clone(), args.clone()));
            NextAction::Call { tool: EXEC, args: args.to_string(), question }
        }
        Item::Write { path, content, ask } => {
            let args = json!({ "path": path, "content": content });
            let question = ask.then(|| {
                let summary = format!("write {} bytes to {path}", content.len());
                asking_step("write", format!("Approve writing {path}"), summary, args.clone())
            });
            NextAction::Call { tool: WRITE, args: args.to_string(), question }
        }
        Item::Read { path } => {
            NextAction::Call { tool: READ, args: json!({ "path": path }).to_string(), question: None }
        }
        Item::Problem { line, text } => {
            NextAction::Finish(FinishReport::permanent_failure("INVALID_PLAYBOOK", format_problem(*line, text)))
        }
    }
}

/// Returns the end of the run if the item at `last` is a step that failed and does not allow failure.
fn failed_step(plan: &[Item], last: usize, settlement: Option<&CallResult>) -> Option<FinishReport> {
    let item = plan.get(last)?;
    let what = match item {
        Item::Prose(_) | Item::Problem { .. } | Item::Exec { continue_on_failure: true, .. } => return None,
        Item::Exec { command, .. } => command.lines().next().unwrap_or_default().to_owned(),
        Item::Write { path, .. } => format!("write {path}"),
        Item::Read { path } => format!("read {path}"),
    };
    let settlement = settlement?;
    match settlement.outcome {
        ToolOutcome::Succeeded | ToolOutcome::Skipped => return None,
        ToolOutcome::Failed | ToolOutcome::Aborted => {}
    }
    let number = count_steps(&plan[..=last]);
    let all = count_steps(plan);
    if settlement.error.as_ref().is_some_and(|error| error.kind == STOPPED_WITH_DAEMON) {
        return Some(FinishReport {
            outcome: RunOutcome::Failed,
            reason: Some("stopped".to_owned()),
            summary: format!("step {number} of {all} was ended when the daemon was stopped: {what}"),
            error: None,
        });
    }
    let why = settlement.error.as_ref().map_or("it was interrupted", |error| error.message.as_str());
    Some(FinishReport {
        outcome: RunOutcome::Failed,
        reason: Some("step_failed".to_owned()),
        summary: format!("step {number} of {all} failed ({why}): {what}"),
        error: None,
    })
}

fn count_steps(items: &[Item]) -> usize {
    items.iter().filter(|item| !matches!(item, Item::Prose(_) | Item::Problem { .. })).count()
}

fn format_problem(line: usize, text: &str) -> String {
    format!("line {line}: {text}")
}

const NO_STEPS: &str = "no model is configured; `push config` chooses one, or start a line of the message with `$ ` to \
    run a command without a model";

fn success(steps: usize) -> FinishReport {
    let plural = if steps == 1 { "" } else { "s" };
    FinishReport {
        outcome: RunOutcome::Success,
        reason: None,
        summary: format!("{steps} step{plural} done"),
        error: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::effect::ModelChoice;
    use crate::kernel::event::{Budget, Steering};
    use crate::kernel::id::{CallId, Fingerprint, MessageId, RunId, Seq};
    use crate::kernel::state::RunUsage;

    #[test]
    fn the_next_item_follows_from_the_number_of_completed_items() {
        let text = "First.\n\n$ one\n$? two\n";
        assert!(matches!(next_action(&turn(text, 0, None)), NextAction::Text(_)));
        assert!(matches!(next_action(&turn(text, 1, None)), NextAction::Call { question: None, .. }));
        let action = next_action(&turn(text, 2, Some(ToolOutcome::Succeeded)));
        assert!(matches!(action, NextAction::Call { question: Some(question), .. } if question.summary == "two"));
        assert_eq!(
            outcome(&turn(text, 3, Some(ToolOutcome::Succeeded))),
            Some((RunOutcome::Success, "2 steps done".into()))
        );
    }

    #[test]
    fn a_failing_step_ends_the_run_unless_it_may_fail() {
        let failed = outcome(&turn("$ one\n$ two", 1, Some(ToolOutcome::Failed)));
        assert_eq!(failed, Some((RunOutcome::Failed, "step 1 of 2 failed (it was interrupted): one".into())));
        let text = "```sh continue\none\n```\n$ two";
        assert!(matches!(next_action(&turn(text, 1, Some(ToolOutcome::Failed))), NextAction::Call { .. }));
        assert!(matches!(next_action(&turn("$ one\n$ two", 1, Some(ToolOutcome::Skipped))), NextAction::Call { .. }));
    }

    #[test]
    fn a_message_without_steps_is_shown_and_fails() {
        assert!(matches!(next_action(&turn("Only words.", 0, None)), NextAction::Text(_)));
        let NextAction::Finish(finish) = next_action(&turn("Only words.", 1, None)) else { panic!("it goes on") };
        assert_eq!(finish.error.map(|error| error.kind).as_deref(), Some("PROVIDER_NOT_CONFIGURED"));
    }

    #[test]
    fn a_message_with_a_mistake_runs_nothing() {
        let NextAction::Finish(finish) = next_action(&turn("$ one\n```sh sometimes\ntwo\n```\n", 0, None)) else {
            panic!("it runs")
        };
        assert_eq!(finish.reason.as_deref(), Some("invalid_playbook"));
    }

    #[test]
    fn a_steering_message_is_executed_next() {
        let mut turn = turn("$ one\n$ two", 1, Some(ToolOutcome::Succeeded));
        turn.steers.push((1, steering("$ between")));
        assert!(matches!(next_action(&turn), NextAction::Call { args, .. } if args.contains("between")));
        turn.steps_done = 2;
        assert!(matches!(next_action(&turn), NextAction::Call { args, .. } if args.contains("two")));
        turn.steers.push((2, steering("```sh wrongly\n```")));
        assert!(matches!(next_action(&turn), NextAction::Text(_)));
    }

    fn turn(text: &str, done: u32, last: Option<ToolOutcome>) -> TurnRequest {
        let last = last.map(|ending| CallResult {
            call: CallId::new("c"),
            tool: "sandbox_exec".into(),
            purpose: Purpose::Work,
            millis: 1,
            outcome: ending,
            exit_code: None,
            text: String::new(),
            error: None,
            diff: None,
        });
        let (run, message) = (RunId::new("r"), MessageId::new("m"));
        TurnRequest {
            run,
            text: text.into(),
            message,
            steers: Vec::new(),
            steps_done: done,
            last_call: last,
            checks_started: false,
            budget: Budget::default(),
            needs_environment: false,
            spent: RunUsage::default(),
            context_from: Seq::ZERO,
            last_seq: Seq::ZERO,
            rules: Vec::new(),
            granted: Vec::new(),
            model_choice: ModelChoice::default(),
        }
    }

    fn steering(text: &str) -> Steering {
        let (message, by) = (MessageId::new("s"), "cli".into());
        Steering { message, text: text.into(), images: Vec::new(), fingerprint: Fingerprint(0), by }
    }

    fn outcome(turn: &TurnRequest) -> Option<(RunOutcome, String)> {
        match next_action(turn) {
            NextAction::Finish(finish) => Some((finish.outcome, finish.summary)),
            NextAction::Text(_) | NextAction::Call { .. } => None,
        }
    }
}
