//! `push run`: starts a run and follows it to its exit code.

mod budget;
mod follow;
mod inline;
mod ollama_hint;
mod report_file;
mod session;
mod worktree;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::sleep;

use self::budget::BudgetArgs;
use self::follow::{Output, RunFollower};
pub(super) use self::follow::{detached_hint, reattach_hint};
use self::report_file::ReportFile;
use self::session::RunSession;
pub(super) use self::session::{resolve_directory, resolve_remote_directory};
use super::answer::AnswerSource;
use super::approval::{ApprovalPolicies, ApprovalPolicy};
use super::console::{Console, Verbosity};
use super::context::Context;
use super::exit::{CliError, Exit};
use super::input::{Interrupts, OnTerminate, STOP_TIMEOUT, StopRequest};
use super::message::Message;
use super::report::Report;
use super::sanitize::sanitize_line;
use super::send::new_message_id;
use super::view::Echo;
use super::{duration, message};
use crate::client::{Access, Client, Request};
use crate::config::settings::rule::{Rule, RuleError};
use crate::kernel::gate;

/// Run a message and wait for its outcome
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Standard output is the answer: the final message of a model, or what the steps of a playbook print. On a terminal it is the \
whole transcript, unless --headless or --quiet is given; otherwise the transcript goes to standard error. At a terminal the run is shown in \
the inline view, as by `push chat`; --plain prints lines.

The exit code is that of the run: 0 success, 1 failed, 2 cancelled, 3 denied, 4 acceptance failed; \
64 is bad usage, 69 a daemon that cannot be reached. Ctrl-C cancels the run, a second one within two seconds exits at once. \
SIGTERM cancels it with --headless; without, SIGTERM and SIGHUP detach from it. \
Ctrl-D, or closing the terminal, detaches and the run continues: `push attach @last` attaches to it again.

Examples:
  push run '$ make test'
  push run --accept 'cargo test' @plan.md
  git diff | push run --headless 'review this'
  push run --session @last 'and now the docs'
  push run --idempotency-key \"$CI_JOB_ID\" --headless --report junit=push.xml @release.md")]
pub(crate) struct RunArgs {
    /// The message; `-` reads standard input, `@FILE` a file. A pipe or a file on standard input is appended to it
    message: Option<String>,
    /// Do not read standard input
    #[arg(long)]
    no_stdin: bool,
    /// The provider; default: PUSH_PROVIDER, then the configuration
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    provider: Option<String>,
    /// The model; default: PUSH_MODEL, then the configuration
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    model: Option<String>,
    #[command(flatten)]
    flags: RunFlags,
}

/// The common flags of `push run` and `push playbook`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunFlags {
    /// Never prompt, for scripts
    #[arg(long)]
    headless: bool,
    /// Print the result as one JSON object
    #[arg(long, conflicts_with = "jsonl")]
    json: bool,
    /// Print every event as a line of JSON
    #[arg(long)]
    jsonl: bool,
    /// Print lines instead of the inline view, for screen readers and simple terminals; also: PUSH_PLAIN=1
    #[arg(long)]
    plain: bool,
    /// Directory in which steps run; default: the current directory
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    cwd: Option<PathBuf>,
    /// Work in a new git worktree next to the repository, on BRANCH or on a new branch
    #[arg(long, value_name = "BRANCH", num_args = 0..=1, require_equals = true, conflicts_with_all = ["session", "idempotency_key"])]
    worktree: Option<Option<String>>,
    /// Continue in this session
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// A name for the new session
    #[arg(long, value_name = "TEXT", conflicts_with = "session")]
    name: Option<String>,
    /// How to answer approvals: deny (default with --headless), ask (default otherwise) or all
    #[arg(long, value_enum, value_name = "WHAT", hide_possible_values = true)]
    approve: Option<ApprovalPolicy>,
    /// Same as --approve all: approve everything except raising the budget
    #[arg(long, short, conflicts_with = "approve")]
    yes: bool,
    /// A rule for this run: what is allowed without asking, such as `exec(cargo test*)`; repeatable
    #[arg(long, value_name = "RULE", value_parser = allowing)]
    allow: Vec<Rule>,
    /// A rule for this run: what is denied, such as `write(.env*)`; repeatable
    #[arg(long, value_name = "RULE", value_parser = denying)]
    deny: Vec<Rule>,
    /// Sandbox for commands of models: local (confined) or none (not confined)
    #[arg(long, value_name = "PROVIDER", conflicts_with = "session")]
    sandbox: Option<String>,
    /// Acceptance check: a command that must succeed after the run; repeatable
    #[arg(long, value_name = "COMMAND")]
    accept: Vec<String>,
    /// Time limit of the run: 90s, 5m, 2h; a bare number is seconds
    #[arg(long, value_name = "DURATION", value_parser = duration::limit)]
    timeout: Option<Duration>,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Write a report when the run has ended: junit=FILE
    #[arg(long, value_name = "FORMAT=FILE", conflicts_with = "detach")]
    report: Option<ReportFile>,
    /// Idempotency key: the same key starts the run only once
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Print the ids of session and run, and exit
    #[arg(long, conflicts_with = "jsonl")]
    detach: bool,
}

fn allowing(text: &str) -> Result<Rule, RuleError> {
    rule("allow", text)
}

fn denying(text: &str) -> Result<Rule, RuleError> {
    rule("deny", text)
}

/// Parses a rule whose effect may be left out.
fn rule(effect: &str, text: &str) -> Result<Rule, RuleError> {
    let whole = text.trim_start().starts_with(&format!("{effect}:"));
    if whole { text.parse() } else { format!("{effect}: {text}").parse() }
}

/// The message of a run and its provider.
#[derive(Debug)]
pub(super) struct RunPlan {
    /// The message.
    pub(super) message: Message,
    /// The provider of a new session, if one was named.
    pub(super) provider: Option<String>,
    /// The model of a new session, if one was named.
    pub(super) model: Option<String>,
    /// Whether the message is a playbook, independently of the configured provider.
    pub(super) is_playbook: bool,
}

/// Runs a message.
pub(crate) async fn run(args: RunArgs, context: &mut Context) -> Result<Exit, CliError> {
    let RunArgs { message, no_stdin, provider, model, flags } = args;
    let mut interrupts = flags.interrupts()?;
    let reading = message::read_for_run(message.as_deref(), no_stdin, &mut context.console);
    let message = tokio::select! {
        biased;
        // No run has started, so there is nothing to cancel.
        _ = interrupts.next() => return Ok(Exit::CANCELLED),
        message = reading => message?,
    };
    let (provider, model) = if context.is_remote() {
        // The variables are those of this machine.
        (provider, model)
    } else {
        let or_variable = |flag: Option<String>, variable| flag.or_else(|| read_variable(variable));
        (or_variable(provider, "PUSH_PROVIDER"), or_variable(model, "PUSH_MODEL"))
    };
    let plan = RunPlan { message, provider, model, is_playbook: false };
    execute(plan, flags, interrupts, context).await
}

/// Opens the session, starts the run and follows it to its exit code.
pub(super) async fn execute(
    plan: RunPlan,
    flags: RunFlags,
    mut interrupts: Interrupts,
    context: &mut Context,
) -> Result<Exit, CliError> {
    if let Some(file) = &flags.report {
        file.check()?;
    }
    let local_directory = flags.local_directory(context)?;
    let prepare = async {
        let mut client = context.client().await?;
        let directory = match client.host() {
            Some(_) => flags.remote_directory(&client)?,
            None => local_directory,
        };
        let session = session::open(&plan, &flags, directory.as_deref(), &mut client).await?;
        Ok::<_, CliError>((client, session))
    };
    let (mut client, session) = tokio::select! {
        biased;
        // No run has started, so there is nothing to cancel.
        _ = interrupts.next() => return Ok(Exit::CANCELLED),
        prepared = prepare => prepared?,
    };
    session.warn_about_directory(&flags, context);
    let text = plan.message.text_for(session.source());
    if session.source() == AnswerSource::Model && plan.message.consists_of_steps() {
        context.console.warn(
            "the message consists of steps, but a model reads it; `push playbook FILE` runs steps without a model",
        );
    }
    let begun = wait_for_start(start_run(&flags, &session, &text, &mut client), &mut interrupts).await?;
    let (run, interrupted) = match begun {
        StartOutcome::Abandoned => return Ok(Exit::CANCELLED),
        StartOutcome::Started(run) if flags.detach => {
            return print_detached(&flags, &session.id, &run, &client, context);
        }
        StartOutcome::Started(run) => (run, None),
        StartOutcome::Interrupted(run, request) => (run, Some(request)),
    };
    let report = match session.source() {
        AnswerSource::Steps => Report::new(&session.id, &run).with_step_output(),
        AnswerSource::Model => Report::new(&session.id, &run),
    };
    let (source, directory) = (session.source(), session.directory());
    let started = StartedRun { client, interrupts, report, interrupted, source, directory };
    let (report, outcome) = started.follow(&flags, context).await;
    if flags.session.is_none() && plan.provider.is_none() && !context.is_remote() {
        ollama_hint::suggest_ollama(&report, &context.paths()?, &mut context.console).await;
    }
    match &flags.report {
        Some(file) => file.write(&report, outcome, &mut context.console),
        None => outcome,
    }
}

/// A run that has started.
struct StartedRun {
    client: Client,
    interrupts: Interrupts,
    report: Report,
    /// The signal that arrived while it started.
    interrupted: Option<StopRequest>,
    source: AnswerSource,
    /// The directory of the session.
    directory: String,
}

impl StartedRun {
    /// Follows it to its end, in the inline view or line by line; returns its report and the exit code.
    async fn follow(self, flags: &RunFlags, context: &mut Context) -> (Report, Result<Exit, CliError>) {
        let Self { client, interrupts, report, interrupted, source, directory } = self;
        if interrupted.is_none() && flags.uses_inline_view(context) {
            return inline::follow(client, report, flags.policies(), context).await;
        }
        let output = flags.output(source, context);
        let mut follow = RunFollower::new(client, interrupts, report, flags.policies(), (output, directory));
        let outcome = match follow_run(&mut follow, interrupted, &mut context.console).await {
            // The run continues, so it has no exit code yet.
            Err(error) if error.is_broken_pipe() => Ok(Exit::BROKEN_PIPE),
            outcome => outcome,
        };
        (follow.into_report(), outcome)
    }
}

/// Handles the signal that arrived while the run started, then follows the run to its end.
async fn follow_run(
    follow: &mut RunFollower,
    interrupted: Option<StopRequest>,
    console: &mut Console,
) -> Result<Exit, CliError> {
    if let Some(request) = interrupted
        && let Some(exit) = follow.handle_signal(request, console).await?
    {
        return Ok(exit);
    }
    follow.follow_to_end(console).await
}

/// The result of starting a run.
#[derive(Debug, PartialEq, Eq)]
enum StartOutcome {
    /// The run has started.
    Started(String),
    /// The run has started, and a signal requested to stop.
    Interrupted(String, StopRequest),
    /// The user exited before the daemon confirmed the run.
    Abandoned,
}

/// Waits for the start of a run, also after a first signal: the run may have started, and its id is needed to cancel
/// it.
///
/// After the signal it waits for the daemon for a limited time only.
async fn wait_for_start(
    begin: impl Future<Output = Result<String, CliError>>,
    interrupts: &mut Interrupts,
) -> Result<StartOutcome, CliError> {
    tokio::pin!(begin);
    let request = tokio::select! {
        run = &mut begin => return Ok(StartOutcome::Started(run?)),
        request = interrupts.next() => request,
    };
    tokio::select! {
        run = &mut begin => Ok(StartOutcome::Interrupted(run?, request)),
        _ = interrupts.next() => Ok(StartOutcome::Abandoned),
        () = sleep(STOP_TIMEOUT) => Ok(StartOutcome::Abandoned),
    }
}

impl RunFlags {
    /// Starts listening for signals; with `--headless` SIGTERM cancels the run.
    pub(super) fn interrupts(&self) -> io::Result<Interrupts> {
        let on_terminate = if self.headless { OnTerminate::Cancel } else { OnTerminate::Detach };
        Interrupts::listen(on_terminate)
    }

    /// Returns the approval policies. Approving everything does not include raising the budget.
    const fn policies(&self) -> ApprovalPolicies {
        let work = match (self.approve, self.yes, self.headless) {
            (Some(policy), _, _) => policy,
            (None, true, _) => ApprovalPolicy::All,
            (None, false, true) => ApprovalPolicy::Deny,
            (None, false, false) => ApprovalPolicy::Ask,
        };
        let budget = match (work, self.headless) {
            (ApprovalPolicy::Deny, _) | (ApprovalPolicy::All, true) => ApprovalPolicy::Deny,
            (ApprovalPolicy::Ask, _) | (ApprovalPolicy::All, false) => ApprovalPolicy::Ask,
        };
        ApprovalPolicies { work, budget }
    }

    /// Returns the directory of a new session on this machine, which may be in a new worktree; none if a session is
    /// continued.
    fn local_directory(&self, context: &mut Context) -> Result<Option<String>, CliError> {
        if context.is_remote() && self.worktree.is_some() {
            let message = "--worktree adds a worktree on this machine; add one there, and name it with --cwd";
            return Err(CliError::Usage(message.to_owned()));
        }
        if self.session.is_some() || context.is_remote() {
            return Ok(None);
        }
        let directory = resolve_directory(self.cwd.as_deref())?;
        let Some(branch) = &self.worktree else { return Ok(Some(directory)) };
        let worktree = worktree::add(&directory, branch.as_deref())?;
        context.console.warn(&worktree.note());
        Ok(Some(worktree.directory))
    }

    /// Returns the directory of a new session on another machine; none if a session is continued.
    fn remote_directory(&self, client: &Client) -> Result<Option<String>, CliError> {
        match self.session {
            Some(_) => Ok(None),
            None => resolve_remote_directory(self.cwd.as_deref(), client.home_directory()).map(Some),
        }
    }

    /// Returns whether the run is shown in the inline view.
    fn uses_inline_view(&self, context: &Context) -> bool {
        !self.json && !self.jsonl && !self.headless && context.uses_inline_view(self.plain)
    }

    fn output(&self, source: AnswerSource, context: &Context) -> Output {
        let console = &context.console;
        let is_watched = console.output_is_terminal && !self.headless && console.verbosity != Verbosity::Quiet;
        match (self.json, self.jsonl) {
            (true, _) => Output::Result,
            (_, true) => Output::Events,
            (false, false) if is_watched => Output::Text(context.view(Echo::Nothing)),
            (false, false) => Output::Answer(Box::new(context.answer_view(source))),
        }
    }
}

/// Returns the value of an environment variable that is not empty.
pub(super) fn read_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Sends the message and returns the id of its run.
async fn start_run(args: &RunFlags, session: &RunSession, text: &str, client: &mut Client) -> Result<String, CliError> {
    let id = args.idempotency_key.as_deref().map_or_else(new_message_id, message_id);
    let mut request = Request::send_user_message(&session.id, &id, text).with_environment(client.environment());
    if !args.accept.is_empty() {
        request = request.with("acceptanceCriteria", criteria(&args.accept));
    }
    if let Some(limit) = args.timeout {
        request = request.with("timeoutMs", u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    }
    let mut rules: Vec<String> = args.allow.iter().chain(&args.deny).map(ToString::to_string).collect();
    // The policy is stored with the run, so it also holds while no client is attached.
    rules.extend(match args.policies().work {
        ApprovalPolicy::All => Some(gate::APPROVE_ALL.to_owned()),
        ApprovalPolicy::Deny => Some(gate::DENY_ALL.to_owned()),
        ApprovalPolicy::Ask => None,
    });
    if !rules.is_empty() {
        request = request.with("rules", rules);
    }
    request = request.with_some("budget", args.budget.to_json());
    let reply = client.request(request).await?;
    if reply.repeated && !args.detach {
        // The run was started before, so its events have to be replayed.
        client.attach(&session.id, session.seen, Access::Full).await?;
    }
    Ok(reply.run_id)
}

fn print_detached(
    args: &RunFlags,
    session: &str,
    run: &str,
    client: &Client,
    context: &mut Context,
) -> Result<Exit, CliError> {
    if args.json {
        context.console.json(&json!({"sessionId": session, "runId": run}))?;
    } else {
        context.console.line(&format!("{} {}", sanitize_line(session), sanitize_line(run)))?;
    }
    context.console.note(&reattach_hint(client, session));
    Ok(Exit::SUCCESS)
}

fn criteria(commands: &[String]) -> Value {
    let numbered = commands.iter().enumerate();
    numbered
        .map(|(index, check)| json!({"id": format!("check-{}", index + 1), "check": check, "exitCode": 0}))
        .collect()
}

/// Derives a message id from an idempotency key.
fn message_id(key: &str) -> String {
    let digest = Sha256::digest(key.as_bytes());
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("msg_{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[tokio::test]
    async fn a_retry_with_the_same_key_follows_the_first_run_from_its_start() {
        use crate::client::testing::{ScriptedDaemon, replay, with_timeout};
        let daemon = ScriptedDaemon::new();
        let settings = daemon.config();
        let args = args(&[
            "hi",
            "--idempotency-key",
            "job-7",
            "--headless",
            "--timeout",
            "2",
            "--accept",
            "make",
            "--model",
            "m",
            "--max-turns",
            "3",
        ]);
        let script = async {
            let mut peer = daemon.handshake("0.0.1").await;
            let list = peer.request("list_sessions").await;
            peer.answer(&list, json!({"sessions": [{"sessionId": "s", "state": "running", "cwd": "/"}]})).await;
            let start = peer.request("start_session").await;
            assert_eq!(start["payload"]["idempotencyKey"], "job-7");
            assert_eq!(start["payload"]["mode"], "headless");
            assert_eq!(start["payload"]["cwd"], "/");
            assert_eq!(start["payload"]["model"], "m");
            peer.answer(&start, json!({"sessionId": "s", "state": "completed", "repeated": true})).await;
            let snapshot = peer.request("get_session_snapshot").await;
            peer.answer(&snapshot, json!({"lastSeq": 9, "meta": {"provider": "ollama", "cwd": "/"}})).await;
            let send = peer.request("send_user_message").await;
            assert_eq!(send["payload"]["clientMessageId"], message_id("job-7"));
            assert_eq!(send["payload"]["timeoutMs"], 2000);
            assert_eq!(send["payload"]["acceptanceCriteria"][0]["check"], "make");
            assert_eq!(send["payload"]["budget"], json!({"maxTurns": 3}));
            peer.answer(&send, json!({"runId": "r", "accepted": true, "repeated": true})).await;
            let attach = peer.request("attach_session").await;
            assert_eq!(attach["payload"]["lastSeenSeq"], 0);
            peer.answer(&attach, json!({"replay": replay(1, 2)})).await;
            peer.run_event(1, "user_message", json!({"text": "hi"})).await;
            peer
        };
        let work = async {
            let mut client = Client::open(settings).await.unwrap();
            let plan = RunPlan {
                message: Message::from_text("hi"),
                provider: None,
                model: args.model.clone(),
                is_playbook: false,
            };
            let session = session::open(&plan, &args.flags, Some("/"), &mut client).await.unwrap();
            assert_eq!((session.seen, session.source()), (0, AnswerSource::Model));
            let run = start_run(&args.flags, &session, "hi", &mut client).await.unwrap();
            (run, client.next().await.unwrap().seq)
        };
        let (outcome, _peer) = with_timeout(async { tokio::join!(work, script) }).await;
        assert_eq!(outcome, ("r".to_owned(), 1));
    }

    #[test]
    fn approvals_are_denied_with_headless_and_prompted_for_otherwise() {
        for (flags, work, budget) in [
            (&["x"][..], ApprovalPolicy::Ask, ApprovalPolicy::Ask),
            (&["x", "--headless"], ApprovalPolicy::Deny, ApprovalPolicy::Deny),
            (&["x", "--yes"], ApprovalPolicy::All, ApprovalPolicy::Ask),
            (&["x", "--headless", "--yes"], ApprovalPolicy::All, ApprovalPolicy::Deny),
            (&["x", "--headless", "--approve", "ask"], ApprovalPolicy::Ask, ApprovalPolicy::Ask),
            (&["x", "--approve", "deny"], ApprovalPolicy::Deny, ApprovalPolicy::Deny),
        ] {
            assert_eq!(args(flags).flags.policies(), ApprovalPolicies { work, budget }, "{flags:?}");
        }
    }

    fn args(words: &[&str]) -> RunArgs {
        let command = <RunArgs as clap::Args>::augment_args(clap::Command::new("run"));
        let matches = command.get_matches_from(std::iter::once(&"run").chain(words));
        <RunArgs as clap::FromArgMatches>::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn a_key_is_always_the_same_message() {
        assert_eq!(message_id("k"), message_id("k"));
        assert_ne!(message_id("k"), message_id("l"));
        assert_eq!(message_id("k").len(), 36);
    }

    #[test]
    fn criteria_are_numbered_in_order() {
        assert_eq!(
            criteria(&["make".into(), "make test".into()]),
            json!([{"id": "check-1", "check": "make", "exitCode": 0}, {"id": "check-2", "check": "make test", "exitCode": 0}])
        );
    }
}
