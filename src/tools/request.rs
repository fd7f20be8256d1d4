//! A parsed call of any tool.

use std::fmt;
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use super::approval_digest::ApprovalDigest;
use super::approval_question::{self, ApprovalQuestion, CallDescription};
use super::context::{ExecutionResult, ToolContext};
use super::error::{ToolError, ToolErrorKind};
use super::tool::Call;
use super::{Category, resolve};
use crate::sandbox::Chunk;
use crate::sandbox::risk::{Escalation, PathContext, RiskAssessment};

/// A parsed call: a tool and its validated arguments.
pub struct Request(Box<dyn Call>);

impl Clone for Request {
    fn clone(&self) -> Self {
        Self(self.0.copy())
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Parses the arguments of a call. Arguments that the type does not have are refused if it denies unknown fields.
pub fn parse_arguments<A: DeserializeOwned>(tool: &str, args: &str) -> Result<A, ToolError> {
    // Some models send an empty text for a call without arguments.
    let args = if args.trim().is_empty() { "{}" } else { args };
    serde_json::from_str(args).map_err(|error| {
        let why = describe_unreadable(args).unwrap_or_else(|| error.to_string());
        ToolError::new(ToolErrorKind::BadArguments, format!("invalid arguments for {tool}: {why}"))
    })
}

/// Describes what is wrong with arguments that were wrapped by [`wrap_unreadable`].
fn describe_unreadable(args: &str) -> Option<String> {
    let UnparsedArguments { unreadable: text } = serde_json::from_str(args).ok()?;
    Some(match serde_json::from_str(&text) {
        Err(error) => format!("they are not JSON: {error}"),
        Ok(Value::Object(_)) => "they contain a duplicate key, or are nested too deep".to_owned(),
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            "they are not a JSON object".to_owned()
        }
    })
}

/// Wraps arguments that are not a JSON object.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct UnparsedArguments {
    unreadable: String,
}

/// Wraps the arguments of a model that are not a JSON object into one, so that they can be stored and shown; they
/// fit no tool.
pub fn wrap_unreadable(text: String) -> String {
    serde_json::json!(UnparsedArguments { unreadable: text }).to_string()
}

impl Request {
    pub(super) fn new(call: Box<dyn Call>) -> Self {
        Self(call)
    }

    /// Returns the tool's name.
    pub fn tool(&self) -> &str {
        self.0.tool().name()
    }

    /// Returns the category of the call.
    pub fn category(&self) -> Category {
        self.0.tool().category()
    }

    /// Returns whether the call may change something; read-only calls can run concurrently.
    pub fn writes(&self) -> bool {
        match self.category() {
            Category::Read | Category::Network => false,
            Category::Write | Category::Exec | Category::Git => true,
        }
    }

    /// Returns whether the call starts programs, which need the user's environment.
    pub fn starts_programs(&self) -> bool {
        self.0.tool().starts_programs()
    }

    /// Returns whether the call accesses everything below the directories that it names.
    pub fn covers_directories(&self) -> bool {
        self.0.tool().covers_directories()
    }

    /// Runs a command with bash if it is installed, as users expect for their own commands.
    #[must_use]
    pub fn with_bash(self) -> Self {
        Self(self.0.with_bash())
    }

    /// Returns the command that the call runs in the sandbox.
    pub fn confined_command(&self) -> Option<&str> {
        self.0.confined_command()
    }

    /// Returns the permissions that the call requests beyond the sandbox.
    pub fn escalation(&self) -> Escalation {
        self.0.escalation()
    }

    /// Returns the file paths of the call.
    pub(super) fn paths(&mut self) -> Vec<&mut String> {
        self.0.paths()
    }

    /// Resolves the host of a call that uses the network, for its assessment, and pins the addresses.
    ///
    /// Other calls resolve nothing, and neither do calls without permission to use the network.
    pub async fn resolve_addresses(&self, context: &ToolContext) -> Result<Vec<IpAddr>, ToolError> {
        self.0.resolve_addresses(context).await
    }

    /// Returns the operations of the call and their risk.
    pub fn assess_risk(&self, escalation: Escalation, path_context: &PathContext) -> RiskAssessment {
        self.0.assess(escalation, path_context)
    }

    /// Builds the question for an approval; it reads the workspace and changes nothing.
    ///
    /// A call that cannot succeed (the text to replace does not occur, there is nothing to commit) has no question,
    /// but the error that it would end with. The result depends on the current state of the workspace.
    pub async fn approval_question(&self, context: &ToolContext) -> Result<ApprovalQuestion, ToolError> {
        approval_question::build(self, context).await
    }

    /// Describes the call for an approval, with the digest of everything that the approval depends on.
    pub(super) async fn describe(&self, context: &ToolContext) -> Result<CallDescription, ToolError> {
        self.0.describe(self.digest(context), context).await
    }

    /// Returns the digest of the call and the workspace.
    fn digest(&self, context: &ToolContext) -> ApprovalDigest {
        ApprovalDigest::new(&format!("{self:?}"), &context.workspace)
    }
}

/// Makes the call.
///
/// The output of a command is sent to `out` as it arrives, with backpressure. Dropping the future stops what it
/// started.
pub async fn run(request: Request, context: &ToolContext, out: mpsc::Sender<Chunk>) -> ExecutionResult {
    match approved_context(&request, context).await {
        Ok(context) => request.0.run(&context, out).await,
        Err(error) => ExecutionResult::failed(error),
    }
}

/// Returns the context of the call, with access to the approved paths if there was an approval.
async fn approved_context(request: &Request, context: &ToolContext) -> Result<ToolContext, ToolError> {
    let context = match context.approved_digest {
        Some(_) => context.with_approved_paths(request).await?,
        None => context.clone(),
    };
    check_approval(request, &context).await?;
    Ok(context)
}

/// Refuses a call that differs from the approved one; changes of files are checked when they are made.
async fn check_approval(request: &Request, context: &ToolContext) -> Result<(), ToolError> {
    let Some(approved) = context.approved_digest.as_deref() else {
        return match request.category() {
            Category::Write => resolve::check_unapproved(request, context).await,
            Category::Read | Category::Exec | Category::Git | Category::Network => Ok(()),
        };
    };
    match request.0.recompute_digest(request.digest(context), context).await? {
        Some(digest) => digest.verify(Some(approved)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ToolSet, exec, read, status};
    use super::*;

    #[test]
    fn invalid_arguments_are_refused_with_the_reason() {
        for (tool, args, word) in [
            (read::NAME, "{}", "missing field `path`"),
            (read::NAME, r#"{"path":1}"#, "expected a string"),
            (read::NAME, r#"{"path":"a","path":"b"}"#, "duplicate field"),
            (read::NAME, "[", "EOF"),
            (exec::NAME, "", "missing field `command`"),
            (exec::NAME, r#"{"command":"x","timeoutSeconds":-1}"#, "invalid value"),
        ] {
            let error = parse(tool, args).unwrap_err();
            assert_eq!(error.kind, ToolErrorKind::BadArguments);
            assert!(error.message.contains(word), "{}", error.message);
        }
        for (text, word) in [
            ("{\"path\": ", "not JSON: EOF"),
            ("[1,2]", "not a JSON object"),
            (r#"{"path":"a","path":"b"}"#, "duplicate key"),
        ] {
            let error = parse(read::NAME, &wrap_unreadable(text.to_owned())).unwrap_err();
            assert!(error.message.contains(word), "{}", error.message);
        }
        assert!(parse(status::NAME, " ").is_ok());
    }

    #[test]
    fn the_escalation_of_a_command_depends_only_on_its_arguments() {
        let wants = |args: &str| {
            let request = parse(exec::NAME, args).unwrap();
            (request.escalation().network, request.escalation().unconfined)
        };
        assert_eq!(wants(r#"{"command":"curl x"}"#), (false, false));
        assert_eq!(wants(r#"{"command":"x","network":true}"#), (true, false));
        assert_eq!(wants(r#"{"command":"x","outside":true,"network":false}"#), (false, true));
        assert!(parse(exec::NAME, r#"{"command":"x","outside":"yes"}"#).is_err());
    }

    fn parse(tool: &str, args: &str) -> Result<Request, ToolError> {
        ToolSet::builtin().parse(tool, args)
    }
}
