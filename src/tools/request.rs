//! A call as it was understood: a closed list, with arguments that are whole and of the right types.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;

use super::bench::{Bench, Outcome};
use super::binding::{self, Binding};
use super::fault::{Fault, FaultKind};
use super::question::Question;
use super::risk;
use super::{
    Category, commit, diff, edit, exec, fetch, list, question, read, resolve, search, status, write,
};
use crate::sandbox::Chunk;
use crate::sandbox::judge::{Judgement, Place, Wish};
use crate::sandbox::shell::Limits;

/// A call that was understood.
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
    /// Changes files in places.
    Edit(edit::Edit),
    /// Runs a command.
    Exec(exec::Args),
    /// Shows the state of the repository.
    Status(status::Args),
    /// Shows what was changed.
    Diff(diff::Args),
    /// Commits.
    Commit(commit::Args),
    /// Fetches a page.
    Fetch(fetch::Args),
}

/// Reads the arguments of a call, a JSON object, strictly: what the tool does not know is refused.
pub fn parse(tool: &str, args: &str) -> Result<Request, Fault> {
    Ok(match tool {
        read::NAME => Request::Read(arguments(tool, args)?),
        list::NAME => Request::List(arguments(tool, args)?),
        search::NAME => Request::Search(arguments::<search::Args>(tool, args)?.checked()?),
        write::NAME => Request::Write(arguments(tool, args)?),
        edit::NAME => Request::Edit(arguments::<edit::Args>(tool, args)?.understood()?),
        exec::NAME => Request::Exec(arguments(tool, args)?),
        status::NAME => Request::Status(arguments(tool, args)?),
        diff::NAME => Request::Diff(arguments(tool, args)?),
        commit::NAME => Request::Commit(arguments::<commit::Args>(tool, args)?.checked()?),
        fetch::NAME => Request::Fetch(arguments::<fetch::Args>(tool, args)?.checked()?),
        _ => return Err(Fault::new(FaultKind::UnknownTool, format!("there is no tool {tool}"))),
    })
}

fn arguments<A: DeserializeOwned>(tool: &str, args: &str) -> Result<A, Fault> {
    // A call without arguments comes from some models as nothing at all.
    let args = if args.trim().is_empty() { "{}" } else { args };
    serde_json::from_str(args).map_err(|error| {
        let why = unreadable(args).unwrap_or_else(|| error.to_string());
        Fault::new(FaultKind::BadArguments, format!("the arguments do not fit {tool}: {why}"))
    })
}

/// Says what is wrong with arguments that are no object and were put into one.
fn unreadable(args: &str) -> Option<String> {
    let Unreadable { unreadable: written } = serde_json::from_str(args).ok()?;
    Some(match serde_json::from_str(&written) {
        Err(error) => format!("they are no JSON: {error}"),
        Ok(Value::Object(_)) => "a name stands twice in them, or they are nested too deep".to_owned(),
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            "they are no JSON object".to_owned()
        }
    })
}

/// What stands in the place of arguments that are no object.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Unreadable {
    unreadable: String,
}

/// Puts what a model wrote as arguments, and is no object, into one: it can be kept and shown, and fits no tool.
pub fn as_unreadable(written: String) -> String {
    serde_json::json!(Unreadable { unreadable: written }).to_string()
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

    /// Returns what kind of thing the call does.
    pub const fn category(&self) -> Category {
        match self {
            Self::Read(_) | Self::List(_) | Self::Search(_) | Self::Status(_) | Self::Diff(_) => {
                Category::Read
            }
            Self::Write(_) | Self::Edit(_) => Category::Write,
            Self::Exec(_) => Category::Exec,
            Self::Commit(_) => Category::Git,
            Self::Fetch(_) => Category::Network,
        }
    }

    /// Tells whether the call may change something; those that may not can run beside each other.
    pub const fn writes(&self) -> bool {
        match self.category() {
            Category::Read | Category::Network => false,
            Category::Write | Category::Exec | Category::Git => true,
        }
    }

    /// Tells whether the call starts programs, which need the user's environment.
    pub const fn starts_programs(&self) -> bool {
        match self {
            Self::Exec(_) | Self::Status(_) | Self::Diff(_) | Self::Commit(_) => true,
            Self::Read(_)
            | Self::List(_)
            | Self::Search(_)
            | Self::Write(_)
            | Self::Edit(_)
            | Self::Fetch(_) => false,
        }
    }

    /// Has a command run by bash where that is installed, as users expect of theirs.
    #[must_use]
    pub fn by_bash(self) -> Self {
        if let Self::Exec(args) = self {
            Self::Exec(exec::Args { shell: exec::Shell::Bash, ..args })
        } else {
            self
        }
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

    /// Returns what the call wants beyond the sandbox.
    pub fn wish(&self) -> Wish {
        match self {
            Self::Exec(args) => {
                Wish { network: args.network.unwrap_or(false), outside: args.outside.unwrap_or(false) }
            }
            Self::Fetch(_) => Wish { network: true, outside: false },
            Self::Read(_)
            | Self::List(_)
            | Self::Search(_)
            | Self::Write(_)
            | Self::Edit(_)
            | Self::Status(_)
            | Self::Diff(_)
            | Self::Commit(_) => Wish::default(),
        }
    }

    /// Looks up where a call leads that talks to another machine, so that it can be decided about; what is found is pinned.
    ///
    /// Nothing is looked up for any other call, nor where the network may not be used.
    pub async fn addresses(&self, bench: &Bench) -> Result<Vec<IpAddr>, Fault> {
        match self {
            Self::Fetch(args) => fetch::addresses(args, bench).await,
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

    /// Says what the call would do, part by part, and how much harm that may do.
    pub fn judge(&self, wish: Wish, place: &Place) -> Judgement {
        risk::judge(self, wish, place, Limits::default())
    }

    /// Says what to ask before the call is made; it looks at the workspace and changes nothing.
    ///
    /// A call that cannot succeed (the text to be replaced is not there, nothing is to be committed) has no question:
    /// its fault is what it would end with. The answer may change when the workspace does.
    pub async fn question(&self, bench: &Bench) -> Result<Question, Fault> {
        question::of(self, bench).await
    }
}

/// Makes the call.
///
/// What a command prints goes to `out` as it comes, and while `out` is full the command waits; no other tool uses it.
/// A future that is dropped ends what it started.
pub async fn run(request: Request, bench: &Bench, out: mpsc::Sender<Chunk>) -> Outcome {
    let bench = &match checked(&request, bench).await {
        Ok(bench) => bench,
        Err(fault) => return Outcome::failed(fault),
    };
    match request {
        Request::Read(args) => bench.away(move |site| read::read(&args, site)).await.into(),
        Request::List(args) => bench.away(move |site| list::list(&args, site)).await.into(),
        Request::Search(args) => bench.away(move |site| search::search(&args, site)).await.into(),
        Request::Write(args) => bench.away(move |site| write::write(&args, site)).await.into(),
        Request::Edit(edit) => bench.away(move |site| edit::edit(&edit, site)).await.into(),
        Request::Exec(args) => exec::exec(args, bench, out).await,
        Request::Status(args) => status::status(&args, bench).await.into(),
        Request::Diff(args) => diff::diff(&args, bench).await.into(),
        Request::Commit(args) => commit::commit(&args, bench).await.into(),
        Request::Fetch(args) => fetch::fetch(&args, bench).await.into(),
    }
}

/// Returns what a call is made with: with leave for what was approved, where somebody was asked.
async fn checked(request: &Request, bench: &Bench) -> Result<Bench, Fault> {
    let bench = match bench.bound {
        Some(_) => bench.approving(request).await?,
        None => bench.clone(),
    };
    check(request, &bench).await?;
    Ok(bench)
}

/// Refuses what is not what was approved; changes of files are looked at when they are made.
async fn check(request: &Request, bench: &Bench) -> Result<(), Fault> {
    let Some(approved) = bench.bound.as_deref() else {
        return match request.category() {
            Category::Write => resolve::check_unasked(request, bench).await,
            Category::Read | Category::Exec | Category::Git | Category::Network => Ok(()),
        };
    };
    match request {
        Request::Write(_) | Request::Edit(_) => Ok(()),
        Request::Commit(_) => match question::of(request, bench).await? {
            asked if asked.digest == approved => Ok(()),
            _ => Err(binding::stale()),
        },
        Request::Fetch(args) => {
            let found = fetch::decided(args, bench).await?;
            fetch::bound(Binding::of(request, &bench.ground), &found).check(Some(approved))
        }
        Request::Read(_)
        | Request::List(_)
        | Request::Search(_)
        | Request::Exec(_)
        | Request::Status(_)
        | Request::Diff(_) => Binding::of(request, &bench.ground).check(Some(approved)),
    }
}

/// Each tool with arguments that fit it.
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
    fn every_tool_is_understood_under_its_own_name() {
        for (name, args) in SAMPLES {
            assert_eq!(parse(name, args).unwrap().tool(), *name);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        for (tool, args, word) in [
            (read::NAME, "{}", "missing field `path`"),
            (read::NAME, r#"{"path":1}"#, "expected a string"),
            (read::NAME, r#"{"path":"a","path":"b"}"#, "duplicate field"),
            (read::NAME, "[", "EOF"),
            (exec::NAME, "", "missing field `command`"),
            (exec::NAME, r#"{"command":"x","timeoutSeconds":-1}"#, "invalid value"),
        ] {
            let fault = parse(tool, args).unwrap_err();
            assert_eq!(fault.kind, FaultKind::BadArguments);
            assert!(fault.message.contains(word), "{}", fault.message);
        }
        for (written, word) in [
            ("{\"path\": ", "no JSON: EOF"),
            ("[1,2]", "no JSON object"),
            (r#"{"path":"a","path":"b"}"#, "stands twice"),
        ] {
            let fault = parse(read::NAME, &as_unreadable(written.to_owned())).unwrap_err();
            assert!(fault.message.contains(word), "{}", fault.message);
        }
        assert_eq!(parse("sandbox_dance", "{}").unwrap_err().kind, FaultKind::UnknownTool);
        assert_eq!(parse(status::NAME, " "), parse(status::NAME, "{}"));
    }

    #[test]
    fn what_a_command_wants_beyond_its_room_is_said_by_its_arguments_alone() {
        let wants = |args: &str| {
            let request = parse(exec::NAME, args).unwrap();
            (request.wish().network, request.wish().outside)
        };
        assert_eq!(wants(r#"{"command":"curl x"}"#), (false, false));
        assert_eq!(wants(r#"{"command":"x","network":true}"#), (true, false));
        assert_eq!(wants(r#"{"command":"x","outside":true,"network":false}"#), (false, true));
        assert!(parse(exec::NAME, r#"{"command":"x","outside":"yes"}"#).is_err());
    }

    #[test]
    fn only_what_changes_nothing_may_run_beside_others() {
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
