//! What the documentation names exists: verbs, flags, settings, variables, codes, files, links and anchors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::page::{Page, repository};
use crate::support::home::Home;

/// Languages of fenced blocks that contain no commands.
const DATA: [&str; 7] = ["json", "jsonl", "markdown", "mermaid", "rust", "text", "toml"];

/// Verbs that the help does not list.
const HIDDEN_VERBS: [&str; 1] = ["__hold"];

/// Flags of other programs, which the pages name without the program.
const FOREIGN_FLAGS: [&str; 1] = ["--home-ann-app--"];

/// A placeholder for a name, a variable that the program does not read, and a code of earlier versions.
const FOREIGN_NAMES: [&str; 3] = ["NAME_BASE_URL", "HTTPS_PROXY", "APPROVAL_NOT_KEPT"];

#[test]
fn every_block_of_the_documentation_says_what_it_is() {
    for block in Page::all().iter().flat_map(Page::blocks) {
        let is_known = block.has_commands() || DATA.contains(&block.language.as_str());
        assert!(is_known, "{}: the language {:?} is unknown", block.location, block.language);
    }
}

#[test]
fn every_page_with_commands_has_a_test_that_runs_them() {
    let tests = [include_str!("guides.rs"), include_str!("tutorial.rs")].concat();
    for page in Page::all().iter().filter(|page| page.blocks().iter().any(super::page::Block::has_commands)) {
        assert!(tests.contains(&format!("open({:?})", page.name)), "{}: no test runs its commands", page.name);
    }
}

#[test]
fn every_link_of_the_documentation_leads_somewhere() {
    let mut missing = Vec::new();
    for page in Page::all() {
        for link in page.links().iter().filter(|link| !link.starts_with("http")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(&page.name).parent().expect("a folder");
            let target = if file.is_empty() { Path::new(&page.name).to_owned() } else { folder.join(file) };
            let is_there = repository().join(&target).exists();
            let has_anchor = || anchor.is_empty() || Page::open(&target.to_string_lossy()).anchors().contains(anchor);
            if !is_there || !has_anchor() {
                missing.push(format!("{}: {link}", page.name));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_verb_and_flag_of_the_documentation_exists() {
    let verbs = CommandLine::load();
    let mut wrong = Vec::new();
    let mut checked = 0;
    for page in Page::all() {
        let spans = page.inline_code();
        let blocks = page.blocks();
        let lines = blocks.iter().filter(|block| block.has_commands()).flat_map(|block| block.text.lines());
        for mention in spans.iter().map(String::as_str).chain(lines.map(|line| line.trim_start_matches("$ "))) {
            checked += usize::from(mention.starts_with("push "));
            wrong.extend(verbs.check(mention).err().map(|why| format!("{}: `{mention}`: {why}", page.name)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 100, "{checked} mentions were found");
}

#[test]
fn every_verb_has_a_row_in_the_reference_and_every_flag_is_mentioned_there() {
    let page = Page::open("docs/commands.md");
    let text = page.inline_code().join("\n") + "\n";
    let mut missing = BTreeSet::new();
    for (verb, flags) in CommandLine::load().flags {
        let words = if verb.is_empty() { "push".to_owned() } else { format!("push {verb}") };
        let is_listed = text.lines().any(|span| span == words || span.starts_with(&format!("{words} ")));
        missing.extend((!is_listed && !verb.ends_with("help")).then_some(words));
        missing.extend(flags.into_iter().filter(|flag| {
            flag.starts_with("--") && !text.split(|c: char| !(c.is_alphanumeric() || c == '-')).any(|word| word == flag)
        }));
    }
    assert!(missing.is_empty(), "docs/commands.md lacks {missing:#?}");
}

#[test]
fn every_setting_of_the_documentation_exists() {
    let home = Home::new();
    let mut checked = 0;
    for page in Page::all() {
        for span in page.inline_code() {
            let Some((section, key)) = setting(&span) else { continue };
            // The value has the wrong type for most keys, which is another error than an unknown key.
            let line = if key.is_empty() { String::new() } else { format!("{key} = {{}}\n") };
            home.write("one.toml", &format!("[{section}]\n{line}"));
            let output = home.push(&["config", "check", "one.toml"]);
            assert!(!output.err.contains("unknown field"), "{}: `{span}`: {}", page.name, output.err);
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked} settings were found");
}

#[test]
fn every_configuration_of_the_documentation_is_valid() {
    let home = Home::new();
    for block in Page::all().iter().flat_map(Page::blocks).filter(|block| block.language == "toml") {
        if block.first_line().contains("= \"…\"") {
            continue; // `keys.toml`
        }
        home.write("example.toml", &block.text);
        let output = home.push(&["config", "check", "example.toml"]);
        assert_eq!((output.code, &*output.out), (Some(0), "example.toml: ok\n"), "{}: {}", block.location, output.err);
    }
}

#[test]
fn every_key_of_the_configuration_is_documented() {
    let home = Home::new();
    let page = Page::open("docs/configuration.md");
    let spans = page.inline_code();
    for section in ["", "providers.x", "approvals", "limits", "tools", "sandbox", "pi", "environment"] {
        let heading = if section.is_empty() { String::new() } else { format!("[{section}]\n") };
        home.write("one.toml", &format!("{heading}no_such_key = 1\n"));
        let error = home.push(&["config", "check", "one.toml"]).err;
        let (_, keys) = error.split_once("expected").unwrap_or_else(|| panic!("{section}: {error}"));
        let keys: Vec<&str> = keys.split('`').skip(1).step_by(2).collect();
        assert!(!keys.is_empty(), "{section}: {error}");
        for key in keys {
            let is_documented = spans.iter().any(|span| span.split(['[', ']', ' ', '.', '=']).any(|word| word == key));
            assert!(is_documented, "docs/configuration.md lacks {key} of [{section}]");
        }
    }
}

#[test]
fn every_variable_code_and_file_of_the_documentation_occurs_in_the_sources() {
    let sources = sources();
    let mut missing = BTreeSet::new();
    for page in Page::all() {
        for span in page.inline_code() {
            let is_file = ["src/", "tests/", "docs/", "schemas/", "systemd/", "fuzz/", "benches/", ".ci/"];
            if is_file.iter().any(|folder| span.starts_with(folder))
                && !span.contains(['*', '<', ' ', '…', '{'])
                && !span.contains("NAME")
            {
                let path = span.split(':').next().unwrap_or_default();
                missing.extend((!repository().join(path).exists()).then(|| format!("{}: {span}", page.name)));
            }
            let is_code = span.contains('_') && span.chars().all(|c| c.is_ascii_uppercase() || c == '_');
            let is_ours = span.starts_with("PUSH") || (is_code && !page.name.ends_with("CHANGELOG.md"));
            if is_code && is_ours && !FOREIGN_NAMES.contains(&&*span) && !sources.contains(&span) {
                missing.insert(format!("{}: {span}", page.name));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_required_version_of_rust_is_the_one_of_the_package() {
    let manifest = fs::read_to_string(repository().join("Cargo.toml")).expect("the manifest");
    let version =
        manifest.split("rust-version = \"").nth(1).and_then(|rest| rest.split('"').next()).expect("a version");
    for page in ["README.md", "docs/tutorial.md"] {
        let prose = Page::open(page).prose();
        assert!(prose.contains(&format!("{version} or later")), "{page} does not name Rust {version}");
    }
}

/// The section and the key of a span that names a setting: `[pi] listen`, `limits.max_turns`, `[sandbox]`.
fn setting(span: &str) -> Option<(&str, &str)> {
    let sections = ["approvals", "limits", "tools", "sandbox", "pi", "environment"];
    let is_word = |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let (section, key) = match span.strip_prefix('[') {
        Some(rest) => {
            let (section, rest) = rest.split_once(']')?;
            (section, rest.split('=').next().unwrap_or_default().trim())
        }
        None => span.split_once('.').filter(|(_, key)| !key.is_empty())?,
    };
    (sections.contains(&section) && is_word(key) && key.len() != 1).then_some((section, key))
}

/// The verbs of the program and the flags of each, from its help.
struct CommandLine {
    flags: BTreeMap<String, BTreeSet<String>>,
}

impl CommandLine {
    fn load() -> Self {
        let home = Home::new();
        let mut loaded = Self { flags: BTreeMap::new() };
        loaded.add(&home, "");
        loaded
    }

    fn add(&mut self, home: &Home, verb: &str) {
        let words: Vec<&str> = verb.split_whitespace().chain(["--help"]).collect();
        let help = home.ok(&words);
        let columns = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        // The description follows after two spaces, and may mention other flags.
        let words = |line: &str| line.split("  ").next().unwrap_or_default().replace([',', '=', '['], " ");
        let flags = columns.flat_map(|line| words(line).split(' ').map(str::to_owned).collect::<Vec<_>>());
        self.flags.insert(verb.to_owned(), flags.filter(|word| word.starts_with('-')).collect());
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        for line in listed {
            let aliases = line.split("[aliases: ").nth(1).map(|rest| rest.trim_end_matches(']')).unwrap_or_default();
            let names = line.split_whitespace().take(1).chain(aliases.split(", "));
            for name in names.filter(|name| !name.is_empty() && *name != "help") {
                self.add(home, format!("{verb} {name}").trim());
            }
        }
    }

    /// Checks a command line of `push`, or a flag by itself; anything else is correct.
    fn check(&self, mention: &str) -> Result<(), String> {
        if mention.starts_with("--") && !mention.starts_with("---") {
            let flag = mention.split([' ', '=', '[']).next().unwrap_or_default();
            let is_known = self.flags.values().any(|flags| flags.contains(flag)) || FOREIGN_FLAGS.contains(&flag);
            return if is_known { Ok(()) } else { Err(format!("no verb has {flag}")) };
        }
        let Some(start) =
            mention.find("push ").filter(|start| !mention[..*start].ends_with(|c: char| !" (".contains(c)))
        else {
            return Ok(());
        };
        if mention[..start].ends_with("git ") {
            return Ok(());
        }
        let mut words = shell_words(&mention[start + 5..]);
        // The only option before a verb that has a value.
        if let Some(host) = words.iter().position(|word| word == "--host") {
            words.drain((host + 1).min(words.len())..(host + 2).min(words.len()));
        }
        let mut verb = String::new();
        for word in &words {
            let names: Vec<&str> = word.trim_matches(['[', ']']).split('|').collect();
            if self.has_subcommands(&verb) && word.starts_with(|c: char| c.is_ascii_lowercase() || "[_".contains(c)) {
                let full = |name: &&str| format!("{verb} {name}").trim().to_owned();
                let unknown = names.iter().find(|name| {
                    !self.flags.contains_key(&full(name)) && !HIDDEN_VERBS.contains(name) && **name != "help"
                });
                if let Some(unknown) = unknown {
                    return Err(format!("there is no verb {unknown}"));
                }
                verb = full(&names[0]);
            } else if word.starts_with('-') && word.len() > 1 {
                let flag = word.split('=').next().unwrap_or_default().trim_matches(['[', ']']);
                let of_verb = self.flags.get(&verb).is_some_and(|flags| flags.contains(flag));
                if !of_verb && !self.flags[""].contains(flag) && verb != "__hold" {
                    return Err(format!("`push {verb}` has no {flag}"));
                }
            }
        }
        Ok(())
    }

    fn has_subcommands(&self, verb: &str) -> bool {
        verb.is_empty() || self.flags.keys().any(|name| name.starts_with(&format!("{verb} ")))
    }
}

/// The words of a command up to its end. A quoted word is kept as one, with its quotes; brackets around an optional flag
/// are removed.
fn shell_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => {
                word.push('"');
                quote = Some(c);
            }
            (None, ' ') => words.push(std::mem::take(&mut word)),
            (None, _) => word.push(c),
        }
    }
    words.push(word);
    let is_end = |word: &String| ["|", ";", "&&", "||", ">", "<", "#", "&", "2>&1"].contains(&word.as_str());
    let words = words.into_iter().take_while(|word| !is_end(word)).filter(|word| !word.is_empty());
    words.map(|word| word.trim_start_matches('[').trim_end_matches([']', ',', ')']).to_owned()).collect()
}

/// The text of all sources and schemas, and of the script that checks them.
fn sources() -> String {
    fn add(folder: &Path, text: &mut String) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                add(&path, text);
            } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "json") {
                *text += &fs::read_to_string(&path).expect("a file");
            }
        }
    }
    let mut text = fs::read_to_string(repository().join(".ci/run")).expect("the script");
    for folder in ["src", "tests", "benches", "schemas"] {
        add(&repository().join(folder), &mut text);
    }
    text
}
