//! The tools that a model may call: names, arguments, limits and implementations.
//!
//! A tool is a file with an implementation of [`Tool`], and a line in the list of [`ToolSet::builtin`].
//!
//! A call is processed in four steps. [`ToolSet::parse`] parses its arguments strictly into a [`Request`].
//! [`Request::category`] and [`Request::assess_risk`] classify it by the tool and its arguments, never by what the
//! model claims. [`Request::approval_question`] inspects the workspace and builds the question for an approval.
//! [`run`] makes the call. No approval is requested here.
//!
//! A result is one bounded text: plain for text (a file, a diff, the output of a command), compact JSON for
//! structured data (a listing, search results, a status). An error is a [`ToolError`] with a closed set of kinds.

mod addresses;
mod approval_digest;
mod approval_question;
mod commit;
mod context;
mod diff;
mod edit;
mod error;
mod exec;
mod fetch;
mod file_diff;
mod git;
mod git_access;
mod git_config_notice;
mod git_dir;
mod git_use;
mod ignores;
mod limits;
mod list;
mod partial_pem;
mod patch;
mod plan;
mod read;
mod request;
mod resolve;
mod risk;
mod search;
mod status;
mod tool;
mod tool_set;
mod write;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

pub use crate::sandbox::risk::{Category, Risk};
pub use addresses::{Lookup, LookupFuture, PinnedAddresses};
pub use approval_digest::ApprovalDigest;
pub use approval_question::{ApprovalQuestion, CallDescription};
pub use context::{ExecutionResult, RedactFn, SafeCutFn, ToolContext};
pub use error::{ToolError, ToolErrorKind};
pub use ignores::IgnoreLimits;
pub use limits::Limits;
pub use request::{Request, parse_arguments, run, wrap_unreadable};
pub use risk::{assess_reads, assess_writes};
pub use tool::{AnyTool, Call, Tool, ToolFuture};
pub use tool_set::{ToolSet, find_for_rule, rule_name};

/// The name of the tool that runs a command; acceptance checks use it too.
pub const EXEC: &str = exec::NAME;

/// Whether tools may use the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Network tools are not offered, and fail if they are called.
    Off,
    /// Network tools are offered.
    Allowed,
}

/// Returns the schema of arguments, in a simple form that every model's server supports.
pub fn schema<A: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>().to_value();
    if let Value::Object(schema) = &mut schema {
        // The name and the description of the Rust type are of no use to a model.
        schema.remove("title");
        schema.remove("description");
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.values_mut().for_each(simplify);
        }
        // Some servers require `properties` also for an object without any.
        schema.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    schema
}

/// Optional arguments are omitted and never null, and the integer width of the Rust type is dropped.
fn simplify(property: &mut Value) {
    let Value::Object(property) = property else { return };
    property.remove("format");
    if let Some(Value::Array(kinds)) = property.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            let kind = kind.clone();
            property.insert("type".to_owned(), kind);
        }
    }
}
