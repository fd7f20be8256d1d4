//! `sandbox_list_dir`: lists the entries of a directory with their kinds and sizes.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::bench::{Items, Site};
use super::fault::{Fault, FaultKind};
use crate::sandbox::ground::{Entry, Folder, Kind};

pub(super) const NAME: &str = "sandbox_list_dir";
pub(super) const DESCRIPTION: &str = "List a directory of the workspace: names, kinds (file, directory, link, other) \
    and sizes, sorted by name. With `depth` above 1 also the directories in it, except `.git`.";

/// How many entries of one directory are sorted; the rest is dropped.
const NAMES_MAX: usize = 20_000;

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Args {
    /// The directory, relative to the workspace; the workspace itself when left out.
    pub path: Option<String>,
    /// How many levels to list, from 1 to 5; 1 when left out.
    pub depth: Option<u32>,
}

pub(super) fn list(args: &Args, site: &Site) -> Result<String, Fault> {
    let path = args.path.as_deref().unwrap_or(".");
    let depth = args.depth.unwrap_or(1);
    if !(1..=site.limits.depth).contains(&depth) {
        let message = format!("depth is {depth}, but must be from 1 to {}", site.limits.depth);
        return Err(Fault::new(FaultKind::BadArguments, message));
    }
    let folder = site.ground.folder(Path::new(path))?;
    let mut items = Items::new(site.limits.entries, site.limits.result_bytes);
    add(&folder, "", depth, &mut items, site)?;
    let (entries, truncated) = items.finish();
    Ok(json!({ "path": path, "entries": entries, "truncated": truncated }).to_string())
}

fn add(folder: &Folder, prefix: &str, depth: u32, items: &mut Items, site: &Site) -> Result<(), Fault> {
    let (mut entries, more) = folder.entries(NAMES_MAX)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in &entries {
        if site.is_stopped() {
            return Err(Fault::new(FaultKind::Cut, "ended with its run"));
        }
        let path = format!("{prefix}{}", entry.name.to_string_lossy());
        if !items.push(described(folder, entry, &path)) {
            return Ok(());
        }
        let inner = match entry.kind {
            Kind::Directory if depth > 1 && entry.name != ".git" => folder.folder(&entry.name),
            Kind::Directory | Kind::File | Kind::Link | Kind::Other => continue,
        };
        // A directory that cannot be read, or was removed, is still an entry of its parent.
        if let Ok(inner) = inner {
            add(&inner, &format!("{path}/"), depth - 1, items, site)?;
        }
    }
    if more {
        items.cut();
    }
    Ok(())
}

fn described(folder: &Folder, entry: &Entry, path: &str) -> Value {
    let mut item = Map::new();
    item.insert("path".to_owned(), path.into());
    let kind = match entry.kind {
        Kind::Directory => "directory",
        Kind::File => {
            item.insert("bytes".to_owned(), entry.bytes.into());
            "file"
        }
        Kind::Link => {
            if let Ok(target) = folder.target(&entry.name) {
                item.insert("target".to_owned(), target.to_string_lossy().into());
            }
            "link"
        }
        Kind::Other => "other",
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
        let dir = tree();
        let listed = listing(dir.path(), None, None, Limits::default());
        let paths: Vec<_> =
            listed["entries"].as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
        assert_eq!(paths, [".git", "a.txt", "b", "z"]);
        assert_eq!(listed["entries"][1], json!({ "path": "a.txt", "kind": "file", "bytes": 3 }));
        assert_eq!(listed["entries"][2], json!({ "path": "b", "kind": "directory" }));
        assert_eq!(listed["truncated"], false);
    }

    #[test]
    fn depth_goes_into_directories_but_not_into_git() {
        let dir = tree();
        let listed = listing(dir.path(), Some("."), Some(3), Limits::default());
        let paths: Vec<_> =
            listed["entries"].as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
        assert_eq!(paths, [".git", "a.txt", "b", "b/c", "b/c/d", "z"]);
        let inner = listing(dir.path(), Some("b/c"), None, Limits::default());
        assert_eq!(inner["entries"][0]["path"], "d");
    }

    #[test]
    fn a_listing_that_is_cut_says_so() {
        let dir = tree();
        let few = listing(dir.path(), None, None, Limits { entries: 3, ..Limits::default() });
        assert_eq!((few["entries"].as_array().unwrap().len(), &few["truncated"]), (3, &json!(true)));
        let all = listing(dir.path(), None, None, Limits { entries: 4, ..Limits::default() });
        assert_eq!(all["truncated"], false);
        let small = listing(dir.path(), None, None, Limits { result_bytes: 60, ..Limits::default() });
        assert_eq!((small["entries"].as_array().unwrap().len(), &small["truncated"]), (1, &json!(true)));
    }

    #[test]
    fn what_cannot_be_listed_is_refused() {
        let dir = tree();
        let site = Site::test(dir.path(), Limits::default());
        let kind =
            |path: &str, depth| list(&Args { path: Some(path.into()), depth }, &site).unwrap_err().kind;
        assert_eq!(kind("none", None), FaultKind::NotFound);
        assert_eq!(kind("a.txt", None), FaultKind::NotADirectory);
        assert_eq!(kind("..", None), FaultKind::OutsideWorkspace);
        assert_eq!(kind(".", Some(0)), FaultKind::BadArguments);
        assert_eq!(kind(".", Some(6)), FaultKind::BadArguments);
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/c")).unwrap();
        fs::create_dir_all(dir.path().join(".git/objects")).unwrap();
        for (name, text) in [("a.txt", "abc"), ("z", ""), ("b/c/d", "x")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn listing(root: &Path, path: Option<&str>, depth: Option<u32>, limits: Limits) -> Value {
        let args = Args { path: path.map(str::to_owned), depth };
        serde_json::from_str(&list(&args, &Site::test(root, limits)).unwrap()).unwrap()
    }
}
