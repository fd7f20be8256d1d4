//! The rules: each reads the tree and returns its violations.

use std::collections::BTreeSet;
use std::fmt;

use super::scan::{Kind, Path, Source, Token, begins_with, test_files};
use super::{
    CODE_LINES, EVENT_DECODERS, EXCEPTIONS, FREE_FORM_JSON, FUNCTION_LINES, IMPURE, MAIN_LINES, ORDINARY_WORDS,
    PROTOCOL_REGISTRY, RUNTIME_LAYERS, TABLE, UNIX_ONLY, WINDOWS_ONLY, WIRE_TEXTS, WIRE_WORDS,
};

/// A violation of a rule.
#[derive(PartialEq, Eq)]
pub(crate) struct Violation {
    file: String,
    /// Its line.
    pub(crate) line: usize,
    what: String,
}

impl Violation {
    pub(crate) fn new(file: &str, line: usize, what: String) -> Self {
        Self { file: file.to_owned(), line, what }
    }
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "src/{}:{}: {}", self.file, self.line, self.what)
    }
}

/// The crate's source.
pub(crate) struct Tree {
    sources: Vec<Source>,
}

impl Tree {
    /// Reads files given as path below `src` and text; test-only files are left out.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let tests: Vec<String> = files.iter().flat_map(|(path, text)| test_files(path, text)).collect();
        let kept = files.iter().filter(|(path, _)| {
            !tests.iter().any(|test| path.strip_prefix(test.as_str()).is_some_and(|rest| rest.starts_with(['.', '/'])))
        });
        let mut tree = Self { sources: kept.map(|(path, text)| Source::new(path, text)).collect() };
        tree.resolve_module_paths();
        tree
    }

    /// Gives files behind `#[path]`, and the files they declare, the module path of their compilation.
    fn resolve_module_paths(&mut self) {
        let mut todo: Vec<usize> = (0..self.sources.len()).collect();
        while let Some(at) = todo.pop() {
            let source = &self.sources[at];
            let (parent, module, moved) = (source.path.clone(), source.module.clone(), source.parent.is_some());
            let beside = parent.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
            for (name, file) in source.declared_modules() {
                let files = match file {
                    Some(file) => vec![format!("{beside}{file}")],
                    None if moved => vec![format!("{beside}{name}.rs"), format!("{beside}{name}/mod.rs")],
                    None => continue,
                };
                let found = self.sources.iter().position(|source| files.contains(&source.path));
                if let Some(child) = found.filter(|&child| self.sources[child].parent.is_none()) {
                    self.sources[child].parent = Some(parent.clone());
                    self.sources[child].module = module.iter().cloned().chain([name]).collect();
                    todo.push(child);
                }
            }
        }
    }

    /// Tells whether a file is compiled only for one of `systems`, by its name or by that of a file above it.
    fn belongs_to(&self, source: &Source, systems: &[&str]) -> bool {
        let named = source.path.split('/').any(|part| {
            let name = part.split(['.', '_']).next().unwrap_or_default();
            name == "os" || systems.contains(&name)
        });
        let parent = self.sources.iter().find(|other| Some(&other.path) == source.parent.as_ref());
        named || parent.is_some_and(|parent| self.belongs_to(parent, systems))
    }
}

fn violation(source: &Source, line: usize, what: String) -> Violation {
    Violation::new(&source.path, line, what)
}

/// Finds names of modules that the table does not allow.
pub(crate) fn edges(tree: &Tree) -> Vec<Violation> {
    let protocols = protocols(tree);
    let mut found = Vec::new();
    for source in &tree.sources {
        let Some(own) = source.module.first() else { continue };
        for path in source.paths() {
            let Some(named) = absolute(source, &path) else { continue };
            let Some(top) = named.first() else { continue };
            let foreign_protocol = own == "protocol"
                && source.module.len() > 1
                && named.get(1).is_some_and(|name| protocols.contains(name.as_str()) && *name != source.module[1]);
            if top == own && !foreign_protocol {
                continue;
            }
            let row = TABLE.iter().find(|(module, _)| module == own);
            let listed = row.is_some_and(|(_, may)| may.iter().any(|name| begins_with(&named, name)));
            let excepted = EXCEPTIONS.iter().any(|(file, name, _)| *file == source.path && begins_with(&named, name));
            if row.is_none() {
                let what = format!("`{own}` has no row in the table, and names `{}`", named.join("::"));
                found.push(violation(source, path.line, what));
            } else if !(listed || excepted) || foreign_protocol {
                let what = format!("`{own}` may not name `{}`", named.join("::"));
                found.push(violation(source, path.line, what));
            }
        }
    }
    found
}

/// Finds modules of `runtime` that name a higher layer, modules without a layer, and layers that name no module.
///
/// The root of `runtime` declares the modules and belongs to no layer.
pub(crate) fn layer_edges(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let inside = |source: &&Source| source.module.len() > 1 && source.module[0] == "runtime";
    for source in tree.sources.iter().filter(inside) {
        let Some(own) = layer_of(&source.module[1]) else {
            found.push(violation(source, 1, format!("`runtime::{}` belongs to no layer", source.module[1])));
            continue;
        };
        for path in source.paths() {
            let Some(named) = absolute(source, &path).filter(|named| begins_with(named, "runtime")) else { continue };
            let text = source.text.lines().nth(path.line - 1).unwrap_or_default();
            if named.len() == 1 && text.contains("pub(in crate::runtime)") {
                continue;
            }
            let layer = named.get(1).and_then(|module| layer_of(module));
            if layer.is_none_or(|layer| layer > own) {
                let (own, name) = (RUNTIME_LAYERS[own].0, named.join("::"));
                let what = match layer {
                    Some(layer) => {
                        format!("layer `{own}` may not name `{name}` of layer `{}`", RUNTIME_LAYERS[layer].0)
                    }
                    None => format!("layer `{own}` names `{name}`, which is no module of a layer"),
                };
                found.push(violation(source, path.line, what));
            }
        }
    }
    for (layer, modules) in RUNTIME_LAYERS {
        let exists = |module: &str| tree.sources.iter().filter(inside).any(|source| source.module[1] == module);
        let missing = modules.iter().filter(|module| !exists(module));
        found.extend(missing.map(|module| {
            Violation::new("runtime/mod.rs", 1, format!("layer `{layer}` lists `{module}`, which does not exist"))
        }));
    }
    found
}

/// Finds names of protocols in `runtime`: paths into the folder of a protocol, and types and constants that are called
/// after one. Only the registry knows which protocols there are.
pub(crate) fn protocol_names(tree: &Tree) -> Vec<Violation> {
    let protocols = protocols(tree);
    let is_called_after = |word: &str| {
        let mut parts = word.split('_').flat_map(|part| std::iter::once(part).chain(camel_case_parts(part)));
        parts.any(|part| protocols.contains(part.to_lowercase().as_str())) && word.starts_with(char::is_uppercase)
    };
    let mut found = Vec::new();
    let inside = |source: &&Source| source.module.first().is_some_and(|top| top == "runtime");
    for source in tree.sources.iter().filter(inside).filter(|source| source.path != PROTOCOL_REGISTRY) {
        for path in source.paths() {
            let named = absolute(source, &path).unwrap_or_default();
            if begins_with(&named, "protocol") && named.get(1).is_some_and(|name| protocols.contains(name.as_str())) {
                let what = format!("only {PROTOCOL_REGISTRY} may name the protocol `{}`", named[1]);
                found.push(violation(source, path.line, what));
            }
        }
        for token in source.tokens.iter().filter(|token| token.kind == Kind::Word && is_called_after(&token.text)) {
            found.push(violation(source, token.line, format!("`{}` is called after a protocol", token.text)));
        }
    }
    found
}

/// Splits a name at its upper-case letters.
fn camel_case_parts(name: &str) -> impl Iterator<Item = &str> {
    let is_upper = |at: usize| name.as_bytes().get(at).is_none_or(u8::is_ascii_uppercase);
    let starts: Vec<usize> = (0..=name.len()).filter(|at| *at == 0 || is_upper(*at)).collect();
    let parts: Vec<&str> = starts.windows(2).map(|pair| &name[pair[0]..pair[1]]).collect();
    parts.into_iter()
}

/// Returns the protocols: the folders of `protocol`.
fn protocols(tree: &Tree) -> BTreeSet<&str> {
    let folders = tree.sources.iter().filter_map(|source| source.path.strip_prefix("protocol/")?.split_once('/'));
    folders.map(|(name, _)| name).collect()
}

/// Returns the position of the layer that a module of `runtime` belongs to.
fn layer_of(module: &str) -> Option<usize> {
    RUNTIME_LAYERS.iter().position(|(_, modules)| modules.contains(&module))
}

/// Returns a path from the crate root; `None` for a path outside of the crate.
fn absolute(source: &Source, path: &Path) -> Option<Vec<String>> {
    let is_main = source.path.starts_with("bin/");
    let mut from: Vec<String> = match path.segments.first()?.as_str() {
        "crate" if is_main => source.module.clone(),
        "pushd" if is_main => Vec::new(),
        "crate" => Vec::new(),
        "self" | "super" => source.module.iter().chain(&path.inside).cloned().collect(),
        _ => return None,
    };
    for segment in path.segments.iter().skip(usize::from(path.segments[0] != "super")) {
        if segment == "super" {
            from.pop();
        } else {
            from.push(segment.clone());
        }
    }
    Some(from)
}

/// Finds I/O, time and randomness in pure modules.
pub(crate) fn impurities(tree: &Tree) -> Vec<Violation> {
    let pure =
        |source: &&Source| matches!(source.module.first().map(String::as_str), Some("kernel" | "protocol" | "record"));
    named_from(tree.sources.iter().filter(pure), IMPURE, "is not pure")
}

/// Finds system-specific names outside of their files: `unix.rs`, `unix_….rs`, the files those declare, and folders
/// `os`.
pub(crate) fn misplaced_system_names(tree: &Tree) -> Vec<Violation> {
    let elsewhere =
        |systems: &'static [&'static str]| tree.sources.iter().filter(move |source| !tree.belongs_to(source, systems));
    let unix = elsewhere(&["unix", "linux", "macos", "posix"]);
    let mut found = named_from(unix, UNIX_ONLY, "belongs in unix.rs, linux.rs or a folder os");
    found.extend(named_from(elsewhere(&["windows"]), WINDOWS_ONLY, "belongs in windows.rs or a folder os"));
    found
}

fn named_from<'a>(sources: impl Iterator<Item = &'a Source>, names: &[&str], what: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in sources {
        for path in source.paths() {
            if names.iter().any(|name| path.begins_with(name)) {
                found.push(violation(source, path.line, format!("`{path}` {what}")));
            }
        }
    }
    found
}

/// Returns the names of all dependencies of a manifest, as source spells them.
pub(crate) fn crates(manifest: &str) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    let mut listing = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            listing = line.trim().ends_with("dependencies]");
        } else if let Some((name, _)) = line.split_once('=').filter(|_| listing) {
            known.insert(name.trim().replace('-', "_"));
        }
    }
    known
}

/// Finds foreign crates in the kernel.
pub(crate) fn foreign_crates(tree: &Tree, known: &BTreeSet<String>) -> Vec<Violation> {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let kernel = tree.sources.iter().filter(|source| source.module.first().is_some_and(|top| top == "kernel"));
    named_from(kernel, &known, "is a crate, and the kernel needs the standard library alone")
}

/// Finds protocol words in the kernel.
pub(crate) fn wire_words(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in tree.sources.iter().filter(|source| source.path.starts_with("kernel/")) {
        for token in &source.tokens {
            let word = WIRE_WORDS.iter().find(|word| token.text.contains(**word)).map(|word| (*word).to_owned());
            let text = token.kind == Kind::Text;
            let whole = WIRE_TEXTS.iter().find(|word| text && token.text == **word).map(|word| (*word).to_owned());
            let key = token.text.split(|c: char| !c.is_alphanumeric()).find(|part| text && is_camel_case(part));
            if let Some(word) = word.or(whole).or(key.map(str::to_owned)) {
                found.push(violation(source, token.line, format!("`{word}` is a protocol's word")));
            }
        }
    }
    found
}

fn is_camel_case(word: &str) -> bool {
    word.as_bytes().windows(2).any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
}

/// Returns the event types of the wire: the texts in patterns of the decoders.
pub(crate) fn event_names(tree: &Tree) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for source in tree.sources.iter().filter(|source| EVENT_DECODERS.contains(&source.path.as_str())) {
        for tokens in source.tokens.windows(3) {
            if tokens[0].kind == Kind::Text && tokens[1].text == "=" && tokens[2].text == ">" {
                names.insert(tokens[0].text.clone());
            }
        }
    }
    names
}

/// Finds event types and lookups in JSON in the verbs: the client decodes what the daemon sends.
pub(crate) fn untyped_access(tree: &Tree, event_names: &BTreeSet<String>) -> Vec<Violation> {
    let mut found = Vec::new();
    let is_client = |path: &str| ["cli/", "display/", "tui/"].iter().any(|module| path.starts_with(module));
    for source in tree.sources.iter().filter(|source| is_client(&source.path)) {
        let is_free_form = FREE_FORM_JSON.iter().any(|(file, _)| *file == source.path);
        for (at, token) in source.tokens.iter().enumerate() {
            let is_ordinary = |(file, text, _): &(&str, &str, &str)| *file == source.path && *text == token.text;
            if token.kind == Kind::Text && event_names.contains(&token.text) && !ORDINARY_WORDS.iter().any(is_ordinary)
            {
                found.push(violation(source, token.line, format!("`{}` is an event type of the wire", token.text)));
            }
            if !is_free_form && is_lookup(&source.tokens, at) {
                found.push(violation(source, token.line, "a lookup in JSON; the client decodes replies".to_owned()));
            }
        }
    }
    found
}

/// Tells whether a lookup in JSON is at `at`: `.get("name")`, `value["name"]` unless it is assigned, `.pointer(`,
/// `.as_array()` and the like, `Value::as_str`, or the helper `field(`.
fn is_lookup(tokens: &[Token], at: usize) -> bool {
    let is = |at: Option<usize>, text: &str| {
        at.and_then(|at| tokens.get(at)).is_some_and(|token| token.kind != Kind::Text && token.text == text)
    };
    let is_text = |at: usize| tokens.get(at).is_some_and(|token| token.kind == Kind::Text);
    let (before, token) = (at.checked_sub(1), &tokens[at]);
    if token.kind == Kind::Mark && token.text == "[" && is_text(at + 1) && is(Some(at + 2), "]") {
        let previous = before.map(|before| &tokens[before]);
        let indexes = previous.is_some_and(|previous| {
            previous.kind == Kind::Word && previous.text != "in" || matches!(previous.text.as_str(), ")" | "]" | "?")
        });
        let is_assigned = is(Some(at + 3), "=") && !is(Some(at + 4), "=");
        return indexes && !is_assigned;
    }
    if token.kind != Kind::Word {
        return false;
    }
    match token.text.as_str() {
        "get" | "get_mut" => is(before, ".") && is(Some(at + 1), "(") && is_text(at + 2),
        "pointer" | "pointer_mut" => is(before, "."),
        "as_array" | "as_object" | "as_bool" | "as_u64" | "as_i64" | "as_f64" => is(before, ".") || is(before, "::"),
        "as_str" => is(before, "::") && is(at.checked_sub(2), "Value"),
        "field" => !is(before, ".") && is(Some(at + 1), "("),
        _ => false,
    }
}

/// Finds files without a purpose at their top.
pub(crate) fn undocumented(tree: &Tree) -> Vec<Violation> {
    let silent = |source: &&Source| !source.text.starts_with("//!") && source.text.trim() != "fn main() {}";
    let what = "the file does not open with `//!` and its purpose";
    tree.sources.iter().filter(silent).map(|source| violation(source, 1, what.to_owned())).collect()
}

/// Finds files, mains and functions that are too long.
pub(crate) fn too_long(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for source in &tree.sources {
        let lines = source.lines_of_code();
        if lines > CODE_LINES {
            let what = format!("{lines} lines of code, {CODE_LINES} are enough: a concept in it wants a name");
            found.push(violation(source, 1, what));
        }
        let all = source.text.lines().count();
        if source.path.starts_with("bin/") && all > MAIN_LINES {
            found.push(violation(source, 1, format!("{all} lines, a main has at most {MAIN_LINES}")));
        }
        for function in source.functions().iter().filter(|function| function.lines > FUNCTION_LINES) {
            let what = format!("`{}` has {} lines, {FUNCTION_LINES} are enough", function.name, function.lines);
            found.push(violation(source, function.line, what));
        }
    }
    found
}
