//! `sandbox_git_status`: shows the state of the repository.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::context::{BoundedItems, ToolContext};
use super::error::ToolError;
use super::git::GitScript;
use super::{ApprovalDigest, CallDescription, Category, ExecutionResult, Tool, assess_reads, parse_arguments, schema};
use crate::sandbox::Chunk;
use crate::sandbox::risk::{Escalation, PathContext, RiskAssessment};

pub(super) const NAME: &str = "sandbox_git_status";
const DESCRIPTION: &str = "Show the state of the git repository: branch, commit, commits ahead and behind, \
    and the staged, changed, untracked and conflicting files.";

/// The arguments: none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {}

/// The tool.
#[derive(Debug)]
pub(super) struct Status;

impl Tool for Status {
    type Args = Args;

    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        DESCRIPTION
    }

    fn schema(&self) -> Value {
        schema::<Args>()
    }

    fn category(&self) -> Category {
        Category::Read
    }

    fn parse(&self, args: &str) -> Result<Self::Args, ToolError> {
        parse_arguments(NAME, args)
    }

    fn assess(&self, _args: &Self::Args, _escalation: Escalation, paths: &PathContext) -> RiskAssessment {
        assess_reads(["."], paths)
    }

    async fn describe(
        &self,
        _args: &Self::Args,
        digest: ApprovalDigest,
        _context: &ToolContext,
    ) -> Result<CallDescription, ToolError> {
        Ok(CallDescription::new("Approve git status", "git status", json!({}), digest))
    }

    async fn run(&self, _args: Self::Args, context: &ToolContext, _out: mpsc::Sender<Chunk>) -> ExecutionResult {
        status(context).await.into()
    }

    fn starts_programs(&self) -> bool {
        true
    }

    fn takes_rule_pattern(&self) -> bool {
        false
    }
}

async fn status(context: &ToolContext) -> Result<String, ToolError> {
    let output = GitScript::git(&["rev-parse", "--show-prefix"])
        .then(&[
            "status",
            "--porcelain=v2",
            "-z",
            "--branch",
            "--untracked-files=all",
            "--ignore-submodules=dirty",
            "--",
            ".",
        ])
        .run(context)
        .await?;
    let text = String::from_utf8_lossy(&output.bytes);
    let (prefix, records) = text.split_once('\n').unwrap_or_default();
    let mut state = StatusParser::new(prefix, context.limits.entries, context.limits.result_bytes);
    state.parse(records);
    if output.truncated {
        state.output_truncated = true;
    }
    Ok(state.finish().to_string())
}

/// Parses the output of `git status`.
struct StatusParser<'a> {
    prefix: &'a str,
    fields: Map<String, Value>,
    lists: [(&'static str, Vec<Value>); 4],
    budget: BoundedItems,
    output_truncated: bool,
}

const STAGED: usize = 0;
const UNSTAGED: usize = 1;
const UNTRACKED: usize = 2;
const CONFLICTED: usize = 3;

impl<'a> StatusParser<'a> {
    fn new(prefix: &'a str, max_items: usize, max_bytes: usize) -> Self {
        let lists = ["staged", "unstaged", "untracked", "conflicted"].map(|name| (name, Vec::new()));
        Self {
            prefix,
            fields: Map::new(),
            lists,
            budget: BoundedItems::new(max_items, max_bytes),
            output_truncated: false,
        }
    }

    /// Parses records of porcelain format version 2, each ended by a NUL.
    fn parse(&mut self, text: &str) {
        let mut records = text.split('\0');
        while let Some(record) = records.next() {
            let Some((kind, rest)) = record.split_once(' ') else { continue };
            match kind {
                "#" => self.parse_header(rest),
                // XY codes, submodule state, three modes, two object ids, the path.
                "1" => self.add_changed(rest, 7, None),
                // The same with a similarity score; the original path is a separate record.
                "2" => self.add_changed(rest, 8, records.next()),
                "u" => {
                    if let Some(path) = rest.splitn(10, ' ').last() {
                        self.add(CONFLICTED, self.workspace_path(path).into());
                    }
                }
                "?" => self.add(UNTRACKED, self.workspace_path(rest).into()),
                _ => {}
            }
        }
    }

    fn parse_header(&mut self, header: &str) {
        let Some((name, value)) = header.split_once(' ') else { return };
        match name {
            "branch.oid" if value != "(initial)" => self.set_field("commit", value.into()),
            "branch.head" if value != "(detached)" => self.set_field("branch", value.into()),
            "branch.upstream" => self.set_field("upstream", value.into()),
            "branch.ab" => {
                if let Some((ahead, behind)) = value.split_once(' ') {
                    let number = |text: &str| text[1..].parse::<u64>().unwrap_or(0).into();
                    self.set_field("ahead", number(ahead));
                    self.set_field("behind", number(behind));
                }
            }
            _ => {}
        }
    }

    fn set_field(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
    }

    fn add_changed(&mut self, rest: &str, fields: usize, from: Option<&str>) {
        let (Some(codes), Some(path)) = (rest.get(..2), rest.splitn(fields + 1, ' ').nth(fields)) else {
            return;
        };
        let path = self.workspace_path(path);
        let from = from.map(|from| self.workspace_path(from));
        for (list, code) in [STAGED, UNSTAGED].into_iter().zip(codes.chars()) {
            let change = match code {
                'M' => "modified",
                'T' => "type changed",
                'A' => "added",
                'D' => "deleted",
                'R' => "renamed",
                'C' => "copied",
                _ => continue,
            };
            let mut item = json!({ "path": path, "change": change });
            if let (Some(from), 'R' | 'C') = (&from, code) {
                item["from"] = from.as_str().into();
            }
            self.add(list, item);
        }
    }

    fn add(&mut self, list: usize, item: Value) {
        if self.budget.push(item.clone()) {
            self.lists[list].1.push(item);
        }
    }

    /// Converts a path of the repository to a path of the workspace.
    fn workspace_path(&self, path: &str) -> String {
        path.strip_prefix(self.prefix).unwrap_or(path).to_owned()
    }

    fn finish(self) -> Value {
        let (_, truncated) = self.budget.finish();
        let mut result = self.fields;
        for (name, list) in self.lists {
            result.insert(name.to_owned(), list.into());
        }
        result.insert("truncated".to_owned(), (truncated || self.output_truncated).into());
        result.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_record_is_added_to_its_list() {
        let text = "# branch.oid abc\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -1\0\
            1 M. N... 100644 100644 100644 a b sub/staged file\0\
            1 .D N... 100644 100644 000000 a b sub/gone\0\
            1 AM N... 000000 100644 100644 a b sub/both\0\
            2 R. N... 100644 100644 100644 a b R100 sub/new\0sub/old\0\
            u UU N... 100644 100644 100644 100644 a b c sub/fight\0? sub/fresh\0";
        let mut state = StatusParser::new("sub/", 100, 10_000);
        state.parse(text);
        assert_eq!(
            state.finish(),
            json!({
                "commit": "abc", "branch": "main", "upstream": "origin/main", "ahead": 2, "behind": 1,
                "staged": [
                    { "path": "staged file", "change": "modified" },
                    { "path": "both", "change": "added" },
                    { "path": "new", "change": "renamed", "from": "old" },
                ],
                "unstaged": [
                    { "path": "gone", "change": "deleted" }, { "path": "both", "change": "modified" },
                ],
                "untracked": ["fresh"], "conflicted": ["fight"], "truncated": false,
            })
        );
    }

    #[test]
    fn a_truncated_status_is_marked() {
        let mut state = StatusParser::new("", 2, 10_000);
        state.parse("? a\0? b\0? c\0");
        let result = state.finish();
        assert_eq!((&result["untracked"], &result["truncated"]), (&json!(["a", "b"]), &json!(true)));
    }
}
