//! A parsed call: a closed enum with validated arguments.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use super::approval_digest::{self, ApprovalDigest};
use super::approval_question::ApprovalQuestion;
use super::context::{ExecutionResult, ToolContext};
use super::error::{ToolError, ToolErrorKind};
use super::risk;
use super::{Category, approval_question, commit, diff, edit, exec, fetch, list, read, resolve, search, status, write};
use crate::sandbox::Chunk;
use crate::sandbox::risk::{Escalation, PathContext, RiskAssessment};
use crate::sandbox::shell::Limits;

/// A parsed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Reads a file.
    Read(read::Args),
    /// Lists a directory.
    List(list::Args),
    /// Searches names or contents.
    Search(search::Args),
    /// Writes a file.
    Write(write::Args),
    /// Edits parts of files.
    Edit(edit::Edit),
    /// Runs a command.
    Exec(exec::Args),
    /// Shows the state of the repository.
    Status(status::Args),
    /// Shows uncommitted changes.
    Diff(diff::Args),
    /// Commits.
    Commit(commit::Args),
    /// Fetches a page.
    Fetch(fetch::Args),
}

/// Parses the arguments of a call, a JSON object. Unknown arguments are refused.
pub fn parse(tool: &str, args: &str) -> Result<Request, ToolError> {
    Ok(match tool {
        read::NAME => Request::Read(parse_arguments(tool, args)?),
        list::NAME => Request::List(parse_arguments(tool, args)?),
        search::NAME => Request::Search(parse_arguments::<search::Args>(tool, args)?.validate()?),
        write::NAME => Request::Write(parse_arguments(tool, args)?),
        edit::NAME => Request::Edit(parse_arguments::<edit::Args>(tool, args)?.into_edit()?),
        exec::NAME => Request::Exec(parse_arguments(tool, args)?),
        status::NAME => Request::Status(parse_arguments(tool, args)?),
        diff::NAME => Request::Diff(parse_arguments(tool, args)?),
        commit::NAME => Request::Commit(parse_arguments::<commit::Args>(tool, args)?.validate()?),
        fetch::NAME => Request::Fetch(parse_arguments::<fetch::Args>(tool, args)?.validate()?),
        _ => return Err(ToolError::new(ToolErrorKind::UnknownTool, format!("unknown tool {tool}"))),
    })
}

fn parse_arguments<A: DeserializeOwned>(tool: &str, args: &str) -> Result<A, ToolError> {
    // Some models send an empty text for a call without arguments.
    let args = if args.trim().is_empty() { "{}" } else { args };
    serde_json::from_str(args).map_err(|error| {
        let why = describe_unreadable(args).unwrap_or_else(|| error.to_string());
        ToolError::new(ToolErrorKind::BadArguments, format!("invalid arguments for {tool}: {why}"))
    })
}

/// Describes what is wrong with arguments that were wrapped by [`wrap_unreadable`].
fn describe_unreadable(args: &str) -> Option<String> {
    let Unreadable { unreadable: text } = serde_json::from_str(args).ok()?;
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
struct Unreadable {
    unreadable: String,
}

/// Wraps the arguments of a model that are not a JSON object into one, so that they can be stored and shown; they
/// fit no tool.
pub fn wrap_unreadable(text: String) -> String {
    serde_json::json!(Unreadable { unreadable: text }).to_string()
}

impl Request {
    /// Returns the tool's name.
    pub const fn tool(&self) -> &'static str {
        match self {
            Self::Read(_) => read::NAME,
            Self::List(_) => list::NAME,
            Self::Search(_) => search::NAME,
            Self::Write(_) => write::NAME,
            Self::Edit(_) => edit::NAME,
            Self::Exec(_) => exec::NAME,
            Self::Status(_) => status::NAME,
            Self::Diff(_) => diff::NAME,
            Self::Commit(_) => commit::NAME,
            Self::Fetch(_) => fetch::NAME,
        }
    }

    /// Returns the category of the call.
    pub const fn category(&self) -> Category {
        match self {
            Self::Read(_) | Self::List(_) | Self::Search(_) | Self::Status(_) | Self::Diff(_) => Category::Read,
            Self::Write(_) | Self::Edit(_) => Category::Write,
            Self::Exec(_) => Category::Exec,
            Self::Commit(_) => Category::Git,
            Self::Fetch(_) => Category::Network,
        }
    }

    /// Returns whether the call may change something; read-only calls can run concurrently.
    pub const fn writes(&self) -> bool {
        match self.category() {
            Category::Read | Category::Network => false,
            Category::Write | Category::Exec | Category::Git => true,
        }
    }

    /// Returns whether the call starts programs, which need the user's environment.
    pub const fn starts_programs(&self) -> bool {
        match self {
            Self::Exec(_) | Self::Status(_) | Self::Diff(_) | Self::Commit(_) => true,
            Self::Read(_) | Self::List(_) | Self::Search(_) | Self::Write(_) | Self::Edit(_) | Self::Fetch(_) => false,
        }
    }

    /// Runs a command with bash if it is installed, as users expect for their own commands.
    #[must_use]
    pub fn with_bash(self) -> Self {
        if let Self::Exec(args) = self { Self::Exec(exec::Args { shell: exec::Shell::Bash, ..args }) } else { self }
    }

    /// Returns the command that the call runs in the sandbox.
    pub fn confined_command(&self) -> Option<&str> {
        match self {
            Self::Exec(args) if args.outside != Some(true) => Some(&args.command),
            Self::Exec(_)
            | Self::Read(_)
            | Self::List(_)
            | Self::Search(_)
            | Self::Write(_)
            | Self::Edit(_)
            | Self::Status(_)
            | Self::Diff(_)
            | Self::Commit(_)
            | Self::Fetch(_) => None,
        }
    }

    /// Returns the permissions that the call requests beyond the sandbox.
    pub fn escalation(&self) -> Escalation {
        match self {
            Self::Exec(args) => {
                Escalation { network: args.network.unwrap_or(false), unconfined: args.outside.unwrap_or(false) }
            }
            Self::Fetch(_) => Escalation { network: true, unconfined: false },
            Self::Read(_)
            | Self::List(_)
            | Self::Search(_)
            | Self::Write(_)
            | Self::Edit(_)
            | Self::Status(_)
            | Self::Diff(_)
            | Self::Commit(_) => Escalation::default(),
        }
    }

    /// Resolves the host of a call that uses the network, for its assessment, and pins the addresses.
    ///
    /// Other calls resolve nothing, and neither do calls without permission to use the network.
    pub async fn resolve_addresses(&self, context: &ToolContext) -> Result<Vec<IpAddr>, ToolError> {
        match self {
            Self::Fetch(args) => fetch::resolve_addresses(args, context).await,
            Self::Read(_)
            | Self::List(_)
            | Self::Search(_)
            | Self::Write(_)
            | Self::Edit(_)
            | Self::Exec(_)
            | Self::Status(_)
            | Self::Diff(_)
            | Self::Commit(_) => Ok(Vec::new()),
        }
    }

    /// Returns the operations of the call and their risk.
    pub fn assess_risk(&self, escalation: Escalation, path_context: &PathContext) -> RiskAssessment {
        risk::assess(self, escalation, path_context, Limits::default())
    }

    /// Builds the question for an approval; it reads the workspace and changes nothing.
    ///
    /// A call that cannot succeed (the text to replace does not occur, there is nothing to commit) has no question,
    /// but the error that it would end with. The result depends on the current state of the workspace.
    pub async fn approval_question(&self, context: &ToolContext) -> Result<ApprovalQuestion, ToolError> {
        approval_question::build(self, context).await
    }
}

/// Makes the call.
///
/// The output of a command is sent to `out` as it arrives, with backpressure; no other tool uses it. Dropping the
/// future stops what it started.
pub async fn run(request: Request, context: &ToolContext, out: mpsc::Sender<Chunk>) -> ExecutionResult {
    let context = &match approved_context(&request, context).await {
        Ok(context) => context,
        Err(error) => return ExecutionResult::failed(error),
    };
    match request {
        Request::Read(args) => context.run_blocking(move |fs_context| read::read(&args, fs_context)).await.into(),
        Request::List(args) => context.run_blocking(move |fs_context| list::list(&args, fs_context)).await.into(),
        Request::Search(args) => context.run_blocking(move |fs_context| search::search(&args, fs_context)).await.into(),
        Request::Write(args) => context.run_blocking(move |fs_context| write::write(&args, fs_context)).await.into(),
        Request::Edit(edit) => context.run_blocking(move |fs_context| edit::edit(&edit, fs_context)).await.into(),
        Request::Exec(args) => exec::exec(args, context, out).await,
        Request::Status(args) => status::status(&args, context).await.into(),
        Request::Diff(args) => diff::diff(&args, context).await.into(),
        Request::Commit(args) => commit::commit(&args, context).await.into(),
        Request::Fetch(args) => fetch::fetch(&args, context).await.into(),
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
    match request {
        Request::Write(_) | Request::Edit(_) => Ok(()),
        Request::Commit(_) => match approval_question::build(request, context).await? {
            asked if asked.digest == approved => Ok(()),
            _ => Err(approval_digest::stale_approval()),
        },
        Request::Fetch(args) => {
            let found = fetch::pinned_addresses(args, context).await?;
            fetch::bind_address_class(ApprovalDigest::new(request, &context.workspace), &found).verify(Some(approved))
        }
        Request::Read(_)
        | Request::List(_)
        | Request::Search(_)
        | Request::Exec(_)
        | Request::Status(_)
        | Request::Diff(_) => ApprovalDigest::new(request, &context.workspace).verify(Some(approved)),
    }
}

/// Valid arguments for each tool.
#[cfg(test)]
pub(super) const SAMPLES: &[(&str, &str)] = &[
    (read::NAME, r#"{"path":"a","offset":2,"limit":3}"#),
    (list::NAME, r#"{"path":"a","depth":2}"#),
    (search::NAME, r#"{"pattern":"a","glob":"*.rs"}"#),
    (write::NAME, r#"{"path":"a","content":"b"}"#),
    (edit::NAME, r#"{"path":"a","old":"b","new":"c"}"#),
    (exec::NAME, r#"{"command":"make","cwd":"a","timeoutSeconds":3}"#),
    (status::NAME, "{}"),
    (diff::NAME, r#"{"staged":true,"paths":["a"]}"#),
    (commit::NAME, r#"{"message":"m","all":true}"#),
    (fetch::NAME, r#"{"url":"https://example.org/"}"#),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_parsed_under_its_own_name() {
        for (name, args) in SAMPLES {
            assert_eq!(parse(name, args).unwrap().tool(), *name);
        }
    }

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
        assert_eq!(parse("sandbox_dance", "{}").unwrap_err().kind, ToolErrorKind::UnknownTool);
        assert_eq!(parse(status::NAME, " "), parse(status::NAME, "{}"));
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

    #[test]
    fn only_read_only_calls_may_run_concurrently() {
        let writes = |name: &str| {
            let (_, args) = SAMPLES.iter().find(|(tool, _)| *tool == name).unwrap();
            parse(name, args).unwrap().writes()
        };
        for name in [write::NAME, edit::NAME, exec::NAME, commit::NAME] {
            assert!(writes(name), "{name}");
        }
        for name in [read::NAME, list::NAME, search::NAME, status::NAME, diff::NAME, fetch::NAME] {
            assert!(!writes(name), "{name}");
        }
    }
}
