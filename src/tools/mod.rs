//! The tools that a model may call: names, arguments, limits and implementations.
//!
//! A call is processed in four steps. [`parse`] parses its arguments strictly into a [`Request`].
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
mod read;
mod request;
mod resolve;
mod risk;
mod search;
mod status;
mod write;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

pub use crate::sandbox::risk::{Category, Risk};
pub use addresses::{Lookup, LookupFuture, PinnedAddresses};
pub use approval_question::ApprovalQuestion;
pub use context::{ExecutionResult, RedactFn, SafeCutFn, ToolContext};
pub use error::{ToolError, ToolErrorKind};
pub use ignores::IgnoreLimits;
pub use limits::Limits;
pub use request::{Request, parse, run, wrap_unreadable};

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

/// The definition of a tool for a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Its description for the model.
    pub description: &'static str,
    /// The JSON Schema of its arguments, which are an object.
    pub schema: Value,
    /// The category of its calls.
    pub category: Category,
}

/// Returns all available tools, in a fixed order.
pub fn catalogue(network: Network) -> Vec<Tool> {
    let mut tools = vec![
        tool::<read::Args>(read::NAME, read::DESCRIPTION, Category::Read),
        tool::<list::Args>(list::NAME, list::DESCRIPTION, Category::Read),
        tool::<search::Args>(search::NAME, search::DESCRIPTION, Category::Read),
        tool::<write::Args>(write::NAME, write::DESCRIPTION, Category::Write),
        tool::<edit::Args>(edit::NAME, edit::DESCRIPTION, Category::Write),
        tool::<exec::Args>(exec::NAME, exec::DESCRIPTION, Category::Exec),
        tool::<status::Args>(status::NAME, status::DESCRIPTION, Category::Read),
        tool::<diff::Args>(diff::NAME, diff::DESCRIPTION, Category::Read),
        tool::<commit::Args>(commit::NAME, commit::DESCRIPTION, Category::Git),
    ];
    match network {
        Network::Off => {}
        Network::Allowed => {
            tools.push(tool::<fetch::Args>(fetch::NAME, fetch::DESCRIPTION, Category::Network));
        }
    }
    tools
}

fn tool<A: JsonSchema>(name: &'static str, description: &'static str, category: Category) -> Tool {
    Tool { name, description, schema: schema::<A>(), category }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_fetch_tool_is_offered_only_where_the_network_is_allowed() {
        let names = |network| catalogue(network).iter().map(|tool| tool.name).collect::<Vec<_>>();
        let without = names(Network::Off);
        assert_eq!(without.len(), 9);
        assert!(!without.contains(&"sandbox_fetch"));
        assert_eq!(names(Network::Allowed)[9..], ["sandbox_fetch"]);
    }

    #[test]
    fn every_schema_is_a_strict_object_whose_properties_are_explained() {
        for tool in catalogue(Network::Allowed) {
            let schema = &tool.schema;
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert_eq!(schema["additionalProperties"], false, "{}", tool.name);
            assert!(schema.get("$schema").is_none() && schema.get("title").is_none(), "{}", tool.name);
            for (name, property) in schema["properties"].as_object().unwrap() {
                assert!(property["description"].is_string(), "{}: {name}", tool.name);
                assert!(property["type"].is_string(), "{}: {name}: {property}", tool.name);
            }
            assert!(tool.description.len() < 700, "{}", tool.name);
        }
    }

    #[test]
    fn a_schema_matches_its_type() {
        let tools = catalogue(Network::Off);
        let exec = tools.iter().find(|tool| tool.name == EXEC).unwrap();
        assert_eq!(exec.schema["required"], json!(["command"]));
        assert_eq!(exec.schema["properties"]["timeoutSeconds"]["type"], "integer");
        assert_eq!(exec.schema["properties"]["command"]["type"], "string");
    }

    #[test]
    fn the_category_of_a_request_is_that_of_its_tool() {
        for (name, args) in request::SAMPLES {
            let tools = catalogue(Network::Allowed);
            let tool = tools.iter().find(|tool| tool.name == *name).unwrap();
            assert_eq!(parse(name, args).unwrap().category(), tool.category, "{name}");
        }
        assert_eq!(request::SAMPLES.len(), catalogue(Network::Allowed).len());
    }

    #[test]
    fn arguments_that_a_schema_rejects_are_rejected_by_the_parser() {
        for (name, args) in request::SAMPLES {
            let tools = catalogue(Network::Allowed);
            let tool = tools.iter().find(|tool| tool.name == *name).unwrap();
            let validator = jsonschema::validator_for(&tool.schema).unwrap();
            let mut args: Value = serde_json::from_str(args).unwrap();
            assert!(validator.is_valid(&args), "{name}: {args}");
            args["surprise"] = json!(1);
            assert!(!validator.is_valid(&args), "{name}: {args}");
            let error = parse(name, &args.to_string()).unwrap_err();
            assert_eq!(error.kind, ToolErrorKind::BadArguments);
            assert!(error.message.contains("surprise"), "{}", error.message);
        }
    }
}
