//! `sandbox_list_dir`: lists the entries of a directory with their kinds and sizes.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::context::{BoundedItems, FsContext};
use super::error::{ToolError, ToolErrorKind};
use super::{
    ApprovalDigest, CallDescription, Category, ExecutionResult, Tool, ToolContext, assess_reads, parse_arguments,
    schema,
};
use crate::sandbox::Chunk;
use crate::sandbox::risk::{Escalation, PathContext, RiskAssessment};
use crate::sandbox::workspace::{DirHandle, Entry, FileKind};

pub(super) const NAME: &str = "sandbox_list_dir";
const DESCRIPTION: &str = "List a directory of the workspace: names, kinds (file, directory, link, other) \
    and sizes, sorted by name. With `depth` above 1 also the directories in it, except `.git`.";

/// How many entries of one directory are sorted; the rest is dropped.
const NAMES_MAX: usize = 20_000;

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The directory, relative to the workspace; the workspace itself when left out.
    path: Option<String>,
    /// How many levels to list, from 1 to 5; 1 when left out.
    depth: Option<u32>,
}

/// The tool.
#[derive(Debug)]
pub(super) struct List;

impl Tool for List {
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

    fn paths<'a>(&self, args: &'a mut Self::Args) -> Vec<&'a mut String> {
        args.path.iter_mut().collect()
    }

    fn assess(&self, args: &Self::Args, _escalation: Escalation, paths: &PathContext) -> RiskAssessment {
        assess_reads([args.path.as_deref().unwrap_or(".")], paths)
    }

    async fn describe(
        &self,
        args: &Self::Args,
        digest: ApprovalDigest,
        _context: &ToolContext,
    ) -> Result<CallDescription, ToolError> {
        let path = args.path.as_deref().unwrap_or(".");
        Ok(CallDescription::new("Approve listing", path, json!({ "path": path }), digest))
    }

    async fn run(&self, args: Self::Args, context: &ToolContext, _out: mpsc::Sender<Chunk>) -> ExecutionResult {
        context.run_blocking(move |fs_context| list(&args, fs_context)).await.into()
    }
}

fn list(args: &Args, fs_context: &FsContext) -> Result<String, ToolError> {
    let path = args.path.as_deref().unwrap_or(".");
    let depth = args.depth.unwrap_or(1);
    if !(1..=fs_context.limits.depth).contains(&depth) {
        let message = format!("depth is {depth}, but must be from 1 to {}", fs_context.limits.depth);
        return Err(ToolError::new(ToolErrorKind::BadArguments, message));
    }
    let directory = fs_context.workspace.open_directory(Path::new(path))?;
    let mut items = BoundedItems::new(fs_context.limits.entries, fs_context.limits.result_bytes);
    add_entries(&directory, "", depth, &mut items, fs_context)?;
    let (entries, truncated) = items.finish();
    Ok(json!({ "path": path, "entries": entries, "truncated": truncated }).to_string())
}

fn add_entries(
    directory: &DirHandle,
    prefix: &str,
    depth: u32,
    items: &mut BoundedItems,
    fs_context: &FsContext,
) -> Result<(), ToolError> {
    let (mut entries, more) = directory.entries(NAMES_MAX)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in &entries {
        if fs_context.is_stopped() {
            return Err(ToolError::new(ToolErrorKind::Aborted, "the call was aborted because its run ended"));
        }
        let path = format!("{prefix}{}", entry.name.to_string_lossy());
        if !items.push(describe_entry(directory, entry, &path)) {
            return Ok(());
        }
        let inner = match entry.kind {
            FileKind::Directory if depth > 1 && entry.name != ".git" => directory.open_directory(&entry.name),
            FileKind::Directory | FileKind::File | FileKind::Link | FileKind::Other => continue,
        };
        // A directory that cannot be read, or was removed, is still an entry of its parent.
        if let Ok(inner) = inner {
            add_entries(&inner, &format!("{path}/"), depth - 1, items, fs_context)?;
        }
    }
    if more {
        items.mark_truncated();
    }
    Ok(())
}

fn describe_entry(directory: &DirHandle, entry: &Entry, path: &str) -> Value {
    let mut item = Map::new();
    item.insert("path".to_owned(), path.into());
    let kind = match entry.kind {
        FileKind::Directory => "directory",
        FileKind::File => {
            item.insert("bytes".to_owned(), entry.bytes.into());
            "file"
        }
        FileKind::Link => {
            if let Ok(target) = directory.target(&entry.name) {
                item.insert("target".to_owned(), target.to_string_lossy().into());
            }
            "link"
        }
        FileKind::Other => "other",
    };
    item.insert("kind".to_owned(), kind.into());
    item.into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::limits::Limits;
    use super::*;

    #[test]
    fn names_are_listed_in_order_with_their_kinds_and_sizes() {
        let dir = test_dir();
        let listed = run_list(dir.path(), None, None, Limits::default());
        let paths: Vec<_> = listed["entries"].as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
        assert_eq!(paths, [".git", "a.txt", "b", "z"]);
        assert_eq!(listed["entries"][1], json!({ "path": "a.txt", "kind": "file", "bytes": 3 }));
        assert_eq!(listed["entries"][2], json!({ "path": "b", "kind": "directory" }));
        assert_eq!(listed["truncated"], false);
    }

    #[test]
    fn depth_goes_into_directories_but_not_into_git() {
        let dir = test_dir();
        let listed = run_list(dir.path(), Some("."), Some(3), Limits::default());
        let paths: Vec<_> = listed["entries"].as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
        assert_eq!(paths, [".git", "a.txt", "b", "b/c", "b/c/d", "z"]);
        let inner = run_list(dir.path(), Some("b/c"), None, Limits::default());
        assert_eq!(inner["entries"][0]["path"], "d");
    }

    #[test]
    fn a_truncated_listing_is_marked() {
        let dir = test_dir();
        let few = run_list(dir.path(), None, None, Limits { entries: 3, ..Limits::default() });
        assert_eq!((few["entries"].as_array().unwrap().len(), &few["truncated"]), (3, &json!(true)));
        let all = run_list(dir.path(), None, None, Limits { entries: 4, ..Limits::default() });
        assert_eq!(all["truncated"], false);
        let small = run_list(dir.path(), None, None, Limits { result_bytes: 60, ..Limits::default() });
        assert_eq!((small["entries"].as_array().unwrap().len(), &small["truncated"]), (1, &json!(true)));
    }

    #[test]
    fn paths_that_cannot_be_listed_are_refused() {
        let dir = test_dir();
        let fs_context = FsContext::test(dir.path(), Limits::default());
        let kind = |path: &str, depth| list(&Args { path: Some(path.into()), depth }, &fs_context).unwrap_err().kind;
        assert_eq!(kind("none", None), ToolErrorKind::NotFound);
        assert_eq!(kind("a.txt", None), ToolErrorKind::NotADirectory);
        assert_eq!(kind("..", None), ToolErrorKind::OutsideWorkspace);
        assert_eq!(kind(".", Some(0)), ToolErrorKind::BadArguments);
        assert_eq!(kind(".", Some(6)), ToolErrorKind::BadArguments);
    }

    fn test_dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/c")).unwrap();
        fs::create_dir_all(dir.path().join(".git/objects")).unwrap();
        for (name, text) in [("a.txt", "abc"), ("z", ""), ("b/c/d", "x")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn run_list(root: &Path, path: Option<&str>, depth: Option<u32>, limits: Limits) -> Value {
        let args = Args { path: path.map(str::to_owned), depth };
        serde_json::from_str(&list(&args, &FsContext::test(root, limits)).unwrap()).unwrap()
    }
}
