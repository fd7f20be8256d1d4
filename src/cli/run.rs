//! `push run`: one run from its message to its exit code.

mod budget;
mod follow;
mod offer;
mod report_file;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use ulid::Ulid;

use self::budget::BudgetArgs;
use self::follow::{Follow, Output};
use self::report_file::ReportFile;
use super::approval::{Policies, Policy};
use super::context::Context;
use super::exit::{CliError, Exit};
use super::input::Interrupts;
use super::phrase::field;
use super::plain::plain_line;
use super::report::Report;
use super::send::new_message_id;
use super::view::Echo;
use super::{ids, message};
use crate::client::{Access, Client, Repository, Request};
use crate::config::settings::rule::{Rule, RuleError};

/// Run a message to its end
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The exit code is that of the run: 0 success, 1 failed, 2 cancelled, 3 denied, 4 acceptance failed; \
64 is bad usage, 69 a daemon that cannot be reached. Ctrl-C cancels the run, a second one leaves at once. \
A closed terminal leaves the run alone: `push attach @last` goes on with it.

Examples:
  push run '$ make test'
  push run --accept 'cargo test' @plan.md
  git diff | push run --headless --json -
  push run --session @last 'and now the docs'
  push run --idempotency-key \"$CI_JOB_ID\" --headless --report junit=push.xml @release.md")]
pub(crate) struct RunArgs {
    /// The message; `-` reads standard input, as a pipe does without it, and `@FILE` a file
    message: Option<String>,
    /// Ask nobody: for scripts
    #[arg(long)]
    headless: bool,
    /// Print the result as one JSON object
    #[arg(long, conflicts_with = "jsonl")]
    json: bool,
    /// Print every event as a line of JSON
    #[arg(long)]
    jsonl: bool,
    /// Who answers; PUSH_PROVIDER unless said, then what is configured
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    provider: Option<String>,
    /// Which of its models; PUSH_MODEL unless said, then what is configured
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    model: Option<String>,
    /// Where steps run; the current directory unless said
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    cwd: Option<PathBuf>,
    /// Go on in this session
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// A name for the new session
    #[arg(long, value_name = "TEXT", conflicts_with = "session")]
    name: Option<String>,
    /// What to do with approvals: deny (headless), ask (otherwise) or all
    #[arg(long, value_enum, value_name = "WHAT", hide_possible_values = true)]
    approve: Option<Policy>,
    /// The same as --approve all: yes to what the run wants to do, never to more than its budget
    #[arg(long, short, conflicts_with = "approve")]
    yes: bool,
    /// A rule for this run alone: what goes ahead unasked, as `exec(cargo test*)`; may be given again
    #[arg(long, value_name = "RULE", value_parser = allowing)]
    allow: Vec<Rule>,
    /// A rule for this run alone: what does not happen, as `write(.env*)`; may be given again
    #[arg(long, value_name = "RULE", value_parser = denying)]
    deny: Vec<Rule>,
    /// Where a model's commands run: local (behind the walls of the system) or none (without any)
    #[arg(long, value_name = "PROVIDER", conflicts_with = "session")]
    sandbox: Option<String>,
    /// A command that must succeed afterwards; may be given again
    #[arg(long, value_name = "COMMAND")]
    accept: Vec<String>,
    /// How long the run may take
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Write a report when the run is over: junit=FILE
    #[arg(long, value_name = "FORMAT=FILE", conflicts_with = "detach")]
    report: Option<ReportFile>,
    /// Run once however often this is called with the same key
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Print the ids of session and run, and leave
    #[arg(long, conflicts_with_all = ["jsonl", "approve", "yes"])]
    detach: bool,
}

fn allowing(text: &str) -> Result<Rule, RuleError> {
    rule("allow", text)
}

fn denying(text: &str) -> Result<Rule, RuleError> {
    rule("deny", text)
}

/// Reads a rule whose effect may be left out.
fn rule(effect: &str, text: &str) -> Result<Rule, RuleError> {
    let whole = text.trim_start().starts_with(&format!("{effect}:"));
    if whole { text.parse() } else { format!("{effect}: {text}").parse() }
}

/// Runs a message.
pub(crate) async fn run(args: RunArgs, context: &mut Context) -> Result<Exit, CliError> {
    let text = message::read_standard(typed(&args, context)?)?;
    if let Some(file) = &args.report {
        file.check()?;
    }
    let place = if args.session.is_none() { Some(place(args.cwd.as_deref())?) } else { None };
    let mut interrupts = Interrupts::listen()?;
    let prepare = async {
        let mut client = context.client().await?;
        let session = session(&args, place.as_deref(), &mut client).await?;
        Ok::<_, CliError>((client, session))
    };
    let (mut client, (session, seen)) = tokio::select! {
        biased;
        // Nothing has begun, so there is nothing to cancel.
        () = interrupts.next() => return Ok(Exit::CANCELLED),
        prepared = prepare => prepared?,
    };
    client.expect(&session, seen);
    let begun = uninterrupted(begin(&args, &session, seen, &text, &mut client), &mut interrupts).await?;
    let (run, interrupted) = match begun {
        Begun::Left => return Ok(Exit::CANCELLED),
        Begun::Run(run) if args.detach => return detached(&args, &session, &run, context),
        Begun::Run(run) => (run, false),
        Begun::Interrupted(run) => (run, true),
    };
    let report = Report::new(&session, &run);
    let mut follow = Follow::new(client, interrupts, report, args.policies(), args.output(context));
    let outcome = async {
        if interrupted && let Some(exit) = follow.interrupted(&mut context.console).await? {
            return Ok(exit);
        }
        follow.until_over(&mut context.console).await
    };
    let outcome = match outcome.await {
        // The run goes on, so there is no exit code of it to pass on.
        Err(error) if error.is_quiet() => Ok(Exit::BROKEN_PIPE),
        outcome => outcome,
    };
    if args.session.is_none() && said(args.provider.as_deref(), "PUSH_PROVIDER").is_none() {
        offer::offer(follow.report(), &context.paths()?, &mut context.console).await;
    }
    match &args.report {
        Some(file) => file.write(follow.report(), outcome, &mut context.console),
        None => outcome,
    }
}

/// Returns the message as it was typed; what comes through a pipe needs no mention.
fn typed<'a>(args: &'a RunArgs, context: &Context) -> Result<&'a str, CliError> {
    match &args.message {
        Some(message) => Ok(message),
        None if !context.console.input_is_terminal => Ok("-"),
        None => Err(CliError::Usage("what is to be run? For instance: push run '$ date'".into())),
    }
}

/// How it went to begin a run.
#[derive(Debug, PartialEq, Eq)]
enum Begun {
    /// It has begun.
    Run(String),
    /// It has begun, and somebody wants it to stop.
    Interrupted(String),
    /// Somebody left before it was known to have begun.
    Left,
}

/// Waits for a run to begin through one wish to stop: it may have begun, and then it must be cancelled by its name.
async fn uninterrupted(
    begin: impl Future<Output = Result<String, CliError>>,
    interrupts: &mut Interrupts,
) -> Result<Begun, CliError> {
    tokio::pin!(begin);
    tokio::select! {
        run = &mut begin => return Ok(Begun::Run(run?)),
        () = interrupts.next() => {}
    }
    tokio::select! {
        run = &mut begin => Ok(Begun::Interrupted(run?)),
        () = interrupts.next() => Ok(Begun::Left),
    }
}

impl RunArgs {
    /// A yes to everything that a run wants to do is none to spending more than was set.
    const fn policies(&self) -> Policies {
        let work = match (self.approve, self.yes, self.headless) {
            (Some(policy), _, _) => policy,
            (None, true, _) => Policy::All,
            (None, false, true) => Policy::Deny,
            (None, false, false) => Policy::Ask,
        };
        let budget = match (work, self.headless) {
            (Policy::Deny, _) | (Policy::All, true) => Policy::Deny,
            (Policy::Ask, _) | (Policy::All, false) => Policy::Ask,
        };
        Policies { work, budget }
    }

    fn output(&self, context: &Context) -> Output {
        match (self.json, self.jsonl) {
            (true, _) => Output::Result,
            (_, true) => Output::Events,
            (false, false) => Output::Text(context.view(Echo::Nothing)),
        }
    }
}

/// Returns what a flag says, or else a variable; an empty one says nothing.
fn said(flag: Option<&str>, variable: &str) -> Option<String> {
    let told = || std::env::var(variable).ok().filter(|value| !value.is_empty());
    flag.map(str::to_owned).or_else(told)
}

/// Finds or begins the session, and returns from which event on the run is to be followed.
async fn session(
    args: &RunArgs,
    place: Option<&str>,
    client: &mut Client,
) -> Result<(String, u64), CliError> {
    if let Some(typed) = &args.session {
        let session = ids::session(client, typed).await?;
        if args.idempotency_key.is_some() {
            // The run may be long over.
            return Ok((session, 0));
        }
        let snapshot = client.ask(Request::session_snapshot(&session)).await?;
        return Ok((session, snapshot.get("lastSeq").and_then(Value::as_u64).unwrap_or_default()));
    }
    let key = args.idempotency_key.clone().unwrap_or_else(|| format!("key_{}", Ulid::generate()));
    let repository = place.and_then(|place| Repository::find(Path::new(place)));
    let request = Request::start_session(&key)
        .with("mode", if args.headless { "headless" } else { "interactive" })
        .with_some("provider", said(args.provider.as_deref(), "PUSH_PROVIDER"))
        .with_some("model", said(args.model.as_deref(), "PUSH_MODEL"))
        .with_some("cwd", place)
        .with_some("name", args.name.clone())
        .with_some("sandboxProvider", args.sandbox.clone())
        .with_some("repo", repository.map(|repository| repository.to_json()))
        .with("metadata", json!({"source": "cli"}))
        .with_environment(client.environment());
    let answer = client.ask(request).await?;
    Ok((field(&answer, "sessionId"), 0))
}

/// Sends the message and returns its run.
async fn begin(
    args: &RunArgs,
    session: &str,
    seen: u64,
    text: &str,
    client: &mut Client,
) -> Result<String, CliError> {
    let id = args.idempotency_key.as_deref().map_or_else(new_message_id, message_id);
    let mut request = Request::send_user_message(session, &id, text).with_environment(client.environment());
    if !args.accept.is_empty() {
        request = request.with("acceptanceCriteria", criteria(&args.accept));
    }
    if let Some(limit) = args.timeout {
        request = request.with("timeoutMs", u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    }
    let rules: Vec<String> = args.allow.iter().chain(&args.deny).map(ToString::to_string).collect();
    if !rules.is_empty() {
        request = request.with("rules", rules);
    }
    request = request.with_some("budget", args.budget.to_json());
    let answer = client.ask(request).await?;
    if answer.get("repeated").and_then(Value::as_bool).unwrap_or_default() && !args.detach {
        // Its events are history, or some of them are.
        client.attach(session, seen, Access::Full).await?;
    }
    Ok(field(&answer, "runId"))
}

fn detached(args: &RunArgs, session: &str, run: &str, context: &mut Context) -> Result<Exit, CliError> {
    if args.json {
        context.console.json(&json!({"sessionId": session, "runId": run}))?;
    } else {
        context.console.line(&format!("{} {}", plain_line(session), plain_line(run)))?;
    }
    Ok(Exit::SUCCESS)
}

/// Returns the absolute path of the directory in which steps run.
fn place(said: Option<&Path>) -> Result<String, CliError> {
    let (path, what) = match said {
        Some(path) => (path.canonicalize(), path.display().to_string()),
        None => (std::env::current_dir(), "the current directory".to_owned()),
    };
    let path = path.map_err(|source| CliError::Usage(format!("cannot use {what}: {source}")))?;
    if !path.is_dir() {
        return Err(CliError::Usage(format!("{what} is not a directory")));
    }
    let path = path.into_os_string().into_string();
    path.map_err(|_| CliError::Usage(format!("the path of {what} is not UTF-8")))
}

fn criteria(commands: &[String]) -> Value {
    let numbered = commands.iter().enumerate();
    numbered
        .map(|(index, check)| json!({"id": format!("check-{}", index + 1), "check": check, "exitCode": 0}))
        .collect()
}

/// Derives a message's id from a key, so that the same key is the same message.
fn message_id(key: &str) -> String {
    let digest = Sha256::digest(key.as_bytes());
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("msg_{hex}")
}

/// Reads a time in seconds, which may have a fraction.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let time =
        Duration::try_from_secs_f64(number).map_err(|_| "not a time that can be waited for".to_owned())?;
    if time.is_zero() { Err("too short for anything".to_owned()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[tokio::test]
    async fn a_retry_with_the_same_key_follows_the_first_run_from_its_beginning() {
        use crate::client::testing::{Daemon, replay, within};
        let daemon = Daemon::new();
        let settings = daemon.settings();
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
            let mut peer = daemon.greet("0.0.1").await;
            let start = peer.request("start_session").await;
            assert_eq!(start["payload"]["idempotencyKey"], "job-7");
            assert_eq!(start["payload"]["mode"], "headless");
            assert_eq!(start["payload"]["cwd"], "/");
            assert_eq!(start["payload"]["model"], "m");
            peer.answer(&start, json!({"sessionId": "s", "state": "completed", "repeated": true})).await;
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
            let (session, seen) = session(&args, Some("/"), &mut client).await.unwrap();
            client.expect(&session, seen);
            let run = begin(&args, &session, seen, "hi", &mut client).await.unwrap();
            (run, client.next().await.unwrap().seq)
        };
        let (outcome, _peer) = within(async { tokio::join!(work, script) }).await;
        assert_eq!(outcome, ("r".to_owned(), 1));
    }

    #[test]
    fn approvals_are_denied_headless_and_asked_about_otherwise() {
        for (flags, work, budget) in [
            (&["x"][..], Policy::Ask, Policy::Ask),
            (&["x", "--headless"], Policy::Deny, Policy::Deny),
            (&["x", "--yes"], Policy::All, Policy::Ask),
            (&["x", "--headless", "--yes"], Policy::All, Policy::Deny),
            (&["x", "--headless", "--approve", "ask"], Policy::Ask, Policy::Ask),
            (&["x", "--approve", "deny"], Policy::Deny, Policy::Deny),
        ] {
            assert_eq!(args(flags).policies(), Policies { work, budget }, "{flags:?}");
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
    fn seconds_may_have_a_fraction_and_must_be_a_time() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        for text in ["", "x", "-1", "0", "NaN", "inf", "1e300"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn criteria_are_numbered_in_order() {
        assert_eq!(
            criteria(&["make".into(), "make test".into()]),
            json!([{"id": "check-1", "check": "make", "exitCode": 0}, {"id": "check-2", "check": "make test", "exitCode": 0}])
        );
    }

    #[test]
    fn a_place_must_be_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "").unwrap();
        assert!(place(Some(dir.path())).unwrap().starts_with('/') || cfg!(windows));
        assert_eq!(place(Some(&file)).unwrap_err().exit(), Exit::USAGE);
        assert_eq!(place(Some(&dir.path().join("no"))).unwrap_err().exit(), Exit::USAGE);
    }
}
