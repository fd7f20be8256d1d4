//! A tool that exists only here: one type, and one line that adds it to the list.

use std::path::Path;
use std::sync::Arc;

use pushd::kernel::command::{Command, GateVote};
use pushd::kernel::event::{
    ApprovalScope, CallResult, Decision, EventKind, GateEvent, GateQuestion, RunOutcome, ToolEvent, ToolOutcome,
};
use pushd::sandbox::Chunk;
use pushd::sandbox::risk::{Escalation, PathContext, RiskAssessment};
use pushd::tools::{
    ApprovalDigest, CallDescription, Category, ExecutionResult, Tool, ToolContext, ToolError, ToolSet, assess_writes,
    parse_arguments, schema,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::session_features::fixture::{Fixture, TestClient};
use crate::support::model::{Reply, call};

/// Writes a text in capitals.
#[derive(Debug)]
struct WriteCapitals;

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CapitalsArgs {
    /// The file, relative to the workspace.
    path: String,
    /// The text.
    text: String,
}

impl Tool for WriteCapitals {
    type Args = CapitalsArgs;

    fn name(&self) -> &str {
        "write_capitals"
    }

    fn description(&self) -> &str {
        "Write a text in capitals."
    }

    fn schema(&self) -> Value {
        schema::<CapitalsArgs>()
    }

    fn category(&self) -> Category {
        Category::Write
    }

    fn parse(&self, args: &str) -> Result<Self::Args, ToolError> {
        parse_arguments(self.name(), args)
    }

    fn paths<'a>(&self, args: &'a mut Self::Args) -> Vec<&'a mut String> {
        vec![&mut args.path]
    }

    fn assess(&self, args: &Self::Args, _escalation: Escalation, paths: &PathContext) -> RiskAssessment {
        assess_writes([args.path.as_str()], paths)
    }

    async fn describe(
        &self,
        args: &Self::Args,
        digest: ApprovalDigest,
        _context: &ToolContext,
    ) -> Result<CallDescription, ToolError> {
        Ok(CallDescription::new("Approve capitals", &args.path, json!({ "text": args.text }), digest))
    }

    async fn run(&self, args: Self::Args, context: &ToolContext, _out: mpsc::Sender<Chunk>) -> ExecutionResult {
        let written = context.workspace.replace(Path::new(&args.path), args.text.to_uppercase().as_bytes());
        written.map(|written| format!("{} bytes", written.bytes)).map_err(ToolError::from).into()
    }
}

/// A daemon with the tool, in a project whose rules ask before everything but reads, and deny some files.
fn fixture() -> Fixture {
    let fixture = Fixture::with_tools(ToolSet::builtin().with(Arc::new(WriteCapitals)));
    let project = fixture.cwd().join(".push");
    std::fs::create_dir(&project).unwrap();
    let rules = "[approvals]\npreset = \"strict\"\nrules = [\"deny: write(*.key)\"]\n";
    std::fs::write(project.join("config.toml"), rules).unwrap();
    fixture
}

#[tokio::test]
async fn an_approved_call_of_a_new_tool_runs() {
    let fixture = fixture();
    fixture.server.script([calls_tool(json!({ "path": "out.txt", "text": "hello" })), Reply::says("done")]);
    let mut client = fixture.session().await;
    client.prompt("write it").await;
    let question = wait_for_question(&mut client).await;
    assert_eq!((question.kind.as_str(), question.title.as_str()), ("write", "Approve capitals"));
    let details: Value = serde_json::from_str(question.details.as_str()).unwrap();
    let expected = ("write_capitals", "write", "medium", "hello");
    let found = ["tool", "category", "risk", "text"].map(|name| details[name].as_str().unwrap());
    assert_eq!((found[0], found[1], found[2], found[3]), expected);
    assert_eq!(question.grant_rule.as_deref(), Some("allow: write(/out.txt)"));
    assert!(!fixture.cwd().join("out.txt").exists(), "it waits for the approval");
    vote(&mut client, question, Decision::Approve).await;
    assert_eq!(client.wait_for_run_end().await.outcome, RunOutcome::Success);
    assert_eq!(std::fs::read_to_string(fixture.cwd().join("out.txt")).unwrap(), "HELLO");
    let tools = fixture.request_body(0)["tools"].clone();
    let offered = tools.as_array().unwrap().iter().find(|tool| tool["function"]["name"] == "write_capitals").unwrap();
    assert_eq!(offered["function"]["parameters"]["required"], json!(["path", "text"]));
    let sent = fixture.request_body(1)["messages"].to_string();
    assert!(sent.contains("5 bytes"), "{sent}");
    fixture.close().await;
}

#[tokio::test]
async fn a_denied_call_of_a_new_tool_does_not_run() {
    let fixture = fixture();
    fixture.server.script([calls_tool(json!({ "path": "out.txt", "text": "hello" })), Reply::says("a pity")]);
    let mut client = fixture.session().await;
    client.prompt("write it").await;
    let question = wait_for_question(&mut client).await;
    vote(&mut client, question, Decision::Deny).await;
    client.wait_for_run_end().await;
    assert!(!fixture.cwd().join("out.txt").exists());
    fixture.close().await;
}

#[tokio::test]
async fn rules_and_validation_apply_to_a_new_tool() {
    let fixture = fixture();
    fixture.server.script([
        calls_tool(json!({ "path": "own.key", "text": "hello" })),
        calls_tool(json!({ "path": "out.txt", "words": "hello" })),
        Reply::says("I give up"),
    ]);
    let mut client = fixture.session().await;
    client.prompt("write it").await;
    let denied = wait_for_result(&mut client).await;
    assert_eq!((denied.outcome, error_kind(&denied)), (ToolOutcome::Failed, "DENIED_BY_RULE".to_owned()));
    let invalid = wait_for_result(&mut client).await;
    assert_eq!(error_kind(&invalid), "BAD_ARGUMENTS");
    assert!(invalid.error.unwrap().message.contains("unknown field `words`"));
    client.wait_for_run_end().await;
    assert!(!fixture.cwd().join("own.key").exists());
    fixture.close().await;
}

fn calls_tool(args: Value) -> Reply {
    Reply::turn([call("id", "write_capitals", &args.to_string())])
}

async fn wait_for_question(client: &mut TestClient) -> GateQuestion {
    client
        .until(|event| match &event.kind {
            EventKind::Gate(GateEvent::Opened(question)) => Some((**question).clone()),
            _ => None,
        })
        .await
}

async fn wait_for_result(client: &mut TestClient) -> CallResult {
    client
        .until(|event| match &event.kind {
            EventKind::Tool(ToolEvent::Settled(result)) => Some((**result).clone()),
            _ => None,
        })
        .await
}

async fn vote(client: &mut TestClient, question: GateQuestion, decision: Decision) {
    let (gate, scope) = (question.gate, ApprovalScope::Once);
    let vote = GateVote { gate, run: None, decision, choice: None, comment: None, scope, rule: None, answer: None };
    client.send_accepted(Command::Decide(Box::new(vote))).await;
}

fn error_kind(result: &CallResult) -> String {
    result.error.as_ref().map(|error| error.kind.clone()).unwrap_or_default()
}
