//! The tools of a daemon: a list, by default that of the built-in tools.

use std::sync::{Arc, LazyLock};

use super::error::{ToolError, ToolErrorKind};
use super::request::Request;
use super::tool::AnyTool;
use super::{Category, Network};

/// Tools by name, in the order in which models get them.
#[derive(Debug, Clone)]
pub struct ToolSet(Arc<[Arc<dyn AnyTool>]>);

static BUILTIN: LazyLock<ToolSet> = LazyLock::new(|| {
    ToolSet::new([
        Arc::new(super::read::Read) as Arc<dyn AnyTool>,
        Arc::new(super::list::List),
        Arc::new(super::search::Search),
        Arc::new(super::write::Write),
        Arc::new(super::edit::Edit),
        Arc::new(super::exec::Exec),
        Arc::new(super::status::Status),
        Arc::new(super::diff::Diff),
        Arc::new(super::commit::Commit),
        Arc::new(super::fetch::Fetch),
        Arc::new(super::plan::Plan),
    ])
});

impl ToolSet {
    /// Creates a set of these tools. Of two tools with the same name the first one is used.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn AnyTool>>) -> Self {
        Self(tools.into_iter().collect())
    }

    /// Returns the built-in tools.
    pub fn builtin() -> Self {
        BUILTIN.clone()
    }

    /// Returns the set with another tool at its end.
    #[must_use]
    pub fn with(self, tool: Arc<dyn AnyTool>) -> Self {
        Self::new(self.0.iter().cloned().chain([tool]))
    }

    /// Returns the tools that a model is offered.
    pub fn available(&self, network: Network) -> impl Iterator<Item = &dyn AnyTool> {
        let is_offered = move |tool: &&Arc<dyn AnyTool>| match network {
            Network::Allowed => true,
            Network::Off => tool.category() != Category::Network,
        };
        self.0.iter().filter(is_offered).map(|tool| &**tool)
    }

    /// Parses the arguments of a call, a JSON object. Unknown arguments are refused.
    pub fn parse(&self, tool: &str, args: &str) -> Result<Request, ToolError> {
        match self.0.iter().find(|known| known.name() == tool) {
            Some(known) => Arc::clone(known).parse(args).map(Request::new),
            None => Err(ToolError::new(ToolErrorKind::UnknownTool, format!("unknown tool {tool}"))),
        }
    }
}

/// Returns the name of a tool in approval rules.
pub fn rule_name(tool: &str) -> &str {
    tool.strip_prefix("sandbox_").unwrap_or(tool)
}

/// Returns the built-in tool that an approval rule names, with or without the prefix `sandbox_`; a rule for a command
/// names the category.
pub fn find_for_rule(word: &str) -> Option<&'static dyn AnyTool> {
    let is_named = |tool: &&dyn AnyTool| tool.name() == word || rule_name(tool.name()) == word;
    BUILTIN.available(Network::Allowed).filter(|tool| tool.category() != Category::Exec).find(is_named)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sha2::{Digest, Sha256};

    use super::super::{commit, diff, edit, exec, fetch, list, read, search, status, write};
    use super::*;

    /// The first bytes of the SHA-256 digest of name, description and schema of each tool. A change of what models
    /// get is intended, and not a side effect.
    const DEFINITIONS: &[(&str, &str)] = &[
        ("sandbox_read_file", "9b992a74a7d3891c"),
        ("sandbox_list_dir", "d495dfe82e948640"),
        ("sandbox_search", "fba5f43915e30303"),
        ("sandbox_write_file", "26a1b4882f6a8437"),
        ("sandbox_edit_file", "07ae1a761df4834c"),
        ("sandbox_exec", "5a20d469105aebff"),
        ("sandbox_git_status", "06ef361189693156"),
        ("sandbox_git_diff", "196986bf7dd8faa7"),
        ("sandbox_git_commit", "57ef14f191d76705"),
        ("sandbox_fetch", "9f02f5c9cef9142d"),
    ];

    #[test]
    fn models_get_the_same_definitions_as_before() {
        let tools = ToolSet::builtin();
        let known = |name: &str| DEFINITIONS.iter().any(|(known, _)| *known == name);
        let found: Vec<_> = tools.available(Network::Allowed).filter(|tool| known(tool.name())).collect();
        let digest = |tool: &&dyn AnyTool| {
            let text = format!("{}\n{}\n{}", tool.name(), tool.description(), tool.schema());
            let hex: String = Sha256::digest(text)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            (tool.name().to_owned(), hex)
        };
        let expected: Vec<_> = DEFINITIONS.iter().map(|(name, hex)| ((*name).to_owned(), (*hex).to_owned())).collect();
        assert_eq!(found.iter().map(digest).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_tool_of_the_network_is_offered_only_where_it_is_allowed() {
        let tools = ToolSet::builtin();
        let names = |network| tools.available(network).map(|tool| tool.name().to_owned()).collect::<Vec<_>>();
        assert!(!names(Network::Off).iter().any(|name| name == "sandbox_fetch"));
        let network: Vec<_> =
            names(Network::Allowed).into_iter().filter(|name| !names(Network::Off).contains(name)).collect();
        assert!(network.iter().any(|name| name == "sandbox_fetch"), "{network:?}");
    }

    #[test]
    fn names_are_unique_also_in_rules() {
        let tools = ToolSet::builtin();
        let mut names: Vec<_> = tools.available(Network::Allowed).map(|tool| rule_name(tool.name())).collect();
        names.extend(["read", "write", "git", "network"]);
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
    }

    #[test]
    fn every_schema_is_a_strict_object_whose_properties_are_explained() {
        for tool in ToolSet::builtin().available(Network::Allowed) {
            let (name, schema) = (tool.name(), tool.schema());
            assert_eq!(schema["type"], "object", "{name}");
            assert_eq!(schema["additionalProperties"], false, "{name}");
            assert!(schema.get("$schema").is_none() && schema.get("title").is_none(), "{name}");
            for (argument, property) in schema["properties"].as_object().unwrap() {
                assert!(property["description"].is_string(), "{name}: {argument}");
                assert!(property["type"].is_string(), "{name}: {argument}: {property}");
            }
            assert!(tool.description().len() < 700, "{name}");
        }
    }

    #[test]
    fn a_schema_matches_its_type() {
        let tools = ToolSet::builtin();
        let schema = tools.available(Network::Off).find(|tool| tool.name() == exec::NAME).unwrap().schema();
        assert_eq!(schema["required"], json!(["command"]));
        assert_eq!(schema["properties"]["timeoutSeconds"]["type"], "integer");
        assert_eq!(schema["properties"]["command"]["type"], "string");
    }

    #[test]
    fn arguments_that_a_schema_rejects_are_rejected_by_the_parser() {
        let tools = ToolSet::builtin();
        for tool in tools.available(Network::Allowed) {
            let (name, mut args) = (tool.name(), example(tool.name()));
            let request = tools.parse(name, &args.to_string()).unwrap();
            assert_eq!((request.tool(), request.category()), (name, tool.category()));
            let validator = jsonschema::validator_for(&tool.schema()).unwrap();
            assert!(validator.is_valid(&args), "{name}: {args}");
            args["surprise"] = json!(1);
            assert!(!validator.is_valid(&args), "{name}: {args}");
            let error = tools.parse(name, &args.to_string()).unwrap_err();
            assert_eq!(error.kind, ToolErrorKind::BadArguments);
            assert!(error.message.contains("surprise"), "{}", error.message);
        }
        assert_eq!(tools.parse("sandbox_dance", "{}").unwrap_err().kind, ToolErrorKind::UnknownTool);
    }

    #[test]
    fn only_read_only_calls_may_run_concurrently() {
        let writing = [write::NAME, edit::NAME, exec::NAME, commit::NAME];
        let reading = [read::NAME, list::NAME, search::NAME, status::NAME, diff::NAME, fetch::NAME];
        for (name, writes) in writing.map(|name| (name, true)).into_iter().chain(reading.map(|name| (name, false))) {
            let request = ToolSet::builtin().parse(name, &example(name).to_string()).unwrap();
            assert_eq!(request.writes(), writes, "{name}");
        }
    }

    /// The arguments in the documentation of a tool.
    fn example(tool: &str) -> Value {
        let page = include_str!("../../docs/tools.md");
        let examples = page.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut found = examples.filter(|example| example["tool"] == tool);
        found.next().unwrap_or_else(|| panic!("docs/tools.md has no example of {tool}"))["args"].take()
    }
}
