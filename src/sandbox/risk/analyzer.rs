//! Traverses a command text and assesses every command in its context.

use super::assessment::{AssessedAccess, CommandWords, Coverage, Evidence, Operation, ResourceAccess, Uncertainty};
use super::finding::{CommandContext, CommandTraits, Finding, Input, NestedCommand, resolve_word};
use super::level::Risk;
use super::path_context::{BaseDirectory, PathContext, PathScope};
use super::variables::{effect_on_coverage, split_assignment, takes_variable_names};
use super::words::program_name;
use super::{programs, secrets};
use crate::sandbox::shell::{
    self, Background, Command, CompoundKind, Limits, List, Pipeline, Redirect, RedirectKind, RunCondition, Script,
    SimpleCommand, Word,
};

/// The state of the analysis of a command text.
pub(super) struct CommandAnalyzer<'a> {
    paths: &'a PathContext,
    limits: Limits,
    /// The possible working directories of the next command.
    bases: Vec<BaseDirectory>,
    /// The possible working directories if the last `cd` failed.
    bases_if_cd_failed: Vec<BaseDirectory>,
    /// The functions that have been defined.
    functions: Vec<String>,
    /// The nesting depth of command texts.
    depth: usize,
    pub(super) operations: Vec<Operation>,
    pub(super) uncertainty: Option<Uncertainty>,
    pub(super) fork_bomb: bool,
    pub(super) traits: CommandTraits,
    /// Whether arithmetic reads variables, and whether a variable has an unknown value.
    arithmetic_uses_variables: bool,
    has_unknown_values: bool,
}

/// The position of a command in the text.
#[derive(Clone)]
struct CommandPosition<'c> {
    input: Input,
    /// The functions that contain it.
    enclosing_functions: Vec<&'c str>,
    /// Whether it runs concurrently with other commands.
    concurrent: bool,
    /// The wrappers that run it.
    wrapped_forms: Vec<Vec<String>>,
    bodies: &'c [Word],
}

impl<'a> CommandAnalyzer<'a> {
    pub(super) fn new(paths: &'a PathContext, cwd: Option<&str>, limits: Limits) -> Self {
        Self {
            paths,
            limits,
            bases: vec![paths.base_directory(cwd)],
            bases_if_cd_failed: Vec::new(),
            functions: Vec::new(),
            depth: 0,
            operations: Vec::new(),
            uncertainty: None,
            fork_bomb: false,
            traits: CommandTraits::default(),
            arithmetic_uses_variables: false,
            has_unknown_values: false,
        }
    }

    /// Analyses a whole text.
    pub(super) fn analyze(&mut self, text: &str) {
        self.analyze_text(text, Input::NotPiped, &[]);
        if self.arithmetic_uses_variables && self.has_unknown_values {
            self.add_uncertainty("arithmetic with a variable whose value is unknown");
        }
    }

    /// Records that commands may run that are not visible in the text, and why.
    fn add_uncertainty(&mut self, what: impl Into<String>) {
        self.set_uncertainty(what, Coverage::Partial);
    }

    fn set_uncertainty(&mut self, what: impl Into<String>, coverage: Coverage) {
        if self.uncertainty.as_ref().is_none_or(|known| known.coverage < coverage) {
            self.uncertainty = Some(Uncertainty { reason: what.into(), coverage });
        }
    }

    fn analyze_text(&mut self, text: &str, input: Input, wrapped_forms: &[Vec<String>]) {
        if self.depth == TEXT_DEPTH_MAX {
            return self.add_uncertainty("command texts are nested too deeply");
        }
        match shell::parse(text, &self.limits) {
            Err(error) => self.add_uncertainty(error.to_string()),
            Ok(Script { list, bodies, arithmetic_uses_variables }) => {
                self.depth += 1;
                self.arithmetic_uses_variables |= arithmetic_uses_variables;
                let position = CommandPosition {
                    input,
                    enclosing_functions: Vec::new(),
                    concurrent: false,
                    wrapped_forms: wrapped_forms.to_vec(),
                    bodies: &bodies,
                };
                self.analyze_list(&list, &position);
                self.depth -= 1;
            }
        }
    }

    fn analyze_list(&mut self, list: &List, position: &CommandPosition<'_>) {
        for pipeline in &list.0 {
            if pipeline.condition != RunCondition::Succeeded {
                self.merge_failed_cd();
            }
            self.analyze_pipeline(pipeline, position);
            if pipeline.commands.len() > 1 || pipeline.background == Background::Yes {
                self.merge_failed_cd();
            }
        }
        self.merge_failed_cd();
    }

    /// Adds the working directories of a `cd` that may have failed.
    fn merge_failed_cd(&mut self) {
        for base in std::mem::take(&mut self.bases_if_cd_failed) {
            self.add_base(base);
        }
    }

    fn add_base(&mut self, base: BaseDirectory) {
        let base = if self.bases.len() >= BASES_MAX { BaseDirectory::Unknown } else { base };
        if !self.bases.contains(&base) {
            self.bases.push(base);
        }
    }

    fn analyze_pipeline(&mut self, pipeline: &Pipeline, position: &CommandPosition<'_>) {
        let concurrent = position.concurrent || pipeline.commands.len() > 1 || pipeline.background == Background::Yes;
        for (index, command) in pipeline.commands.iter().enumerate() {
            let input = if index == 0 { position.input.clone() } else { Input::Pipe };
            self.analyze_command(command, &CommandPosition { input, concurrent, ..position.clone() });
        }
    }

    fn analyze_command(&mut self, command: &Command, position: &CommandPosition<'_>) {
        match command {
            Command::Simple(simple) => self.analyze_simple(simple, position),
            Command::Function { name, body } => {
                let context = CommandContext { paths: self.paths, bases: &self.bases, input: Input::NotPiped };
                if programs::is_known_program(name, &context) || !name.is_ascii() {
                    self.add_uncertainty(format!("a function that shadows the command {name}"));
                }
                self.functions.push(name.clone());
                self.add_unknown_base(&changes_directory(body));
                let mut nested = position.clone();
                nested.enclosing_functions.push(name);
                self.analyze_command(body, &nested);
            }
            Command::Compound { kind: block, words, lists, redirects } => {
                let input = self.analyze_redirects(redirects, position).unwrap_or_else(|| position.input.clone());
                words.iter().for_each(|word| self.analyze_word(word, position));
                match block {
                    CompoundKind::For { variable } => {
                        self.check_variable(variable);
                        self.has_unknown_values |= words.iter().any(has_unknown_value);
                        self.add_unknown_base(&changes_directory(command));
                    }
                    CompoundKind::While => self.add_unknown_base(&changes_directory(command)),
                    CompoundKind::Group | CompoundKind::Subshell | CompoundKind::If | CompoundKind::Case => {}
                }
                for list in lists {
                    self.analyze_list(list, &CommandPosition { input: input.clone(), ..position.clone() });
                }
            }
        }
    }

    /// Adds an unknown working directory: a `cd` in a loop or a function may run several times.
    fn add_unknown_base(&mut self, directory_changes: &ChangesDirectory) {
        match directory_changes {
            ChangesDirectory::Yes => self.add_base(BaseDirectory::Unknown),
            ChangesDirectory::No => {}
        }
    }

    fn analyze_simple(&mut self, simple: &SimpleCommand, position: &CommandPosition<'_>) {
        for assignment in &simple.assignments {
            self.check_variable(&assignment.name);
            self.has_unknown_values |= has_unknown_value(&assignment.value);
            self.analyze_word(&assignment.value, position);
        }
        simple.words.iter().for_each(|word| self.analyze_word(word, position));
        let input = self.analyze_redirects(&simple.redirects, position).unwrap_or_else(|| position.input.clone());
        let words: Vec<String> = simple.words.iter().map(|word| word.text.clone()).collect();
        if let Some(own) = words.first().filter(|first| position.enclosing_functions.contains(&first.as_str())) {
            self.fork_bomb |= position.concurrent;
            self.add_uncertainty(format!("a function that calls itself, {own}"));
        }
        self.analyze_words(&words, &CommandPosition { input, ..position.clone() });
    }

    /// Assesses words as a command, including the commands that it runs.
    fn analyze_words(&mut self, words: &[String], position: &CommandPosition<'_>) {
        if words.is_empty() {
            return;
        }
        if self.operations.len() >= self.limits.commands {
            return self.add_uncertainty("there are too many commands");
        }
        self.check_variable_names(words);
        let context = CommandContext { paths: self.paths, bases: &self.bases, input: position.input.clone() };
        let finding = programs::assess(words, &context);
        if let Some((what, coverage)) = finding.uncertainty {
            self.set_uncertainty(what, coverage);
        }
        self.merge_traits(finding.traits);
        let before = self.operations.len();
        let mut wrapped_forms = position.wrapped_forms.clone();
        wrapped_forms.extend(by_plain_name(words));
        let spelled = CommandWords { words: words.to_vec(), wrapped_forms: wrapped_forms.clone() };
        wrapped_forms.push(words.to_vec());
        let Finding { risk, reason, accesses, nested, directory_changes, .. } = finding;
        let own = Operation { command: Some(spelled), risk: risk.unwrap_or(Risk::Medium), reason, accesses };
        if !finding.traits.is_transparent {
            self.operations.push(own.clone());
        }
        if self.depth >= TEXT_DEPTH_MAX * 2 {
            return self.add_uncertainty("commands that run commands are nested too deeply");
        }
        self.depth += 1;
        for nested in nested {
            match nested {
                NestedCommand::Words(words) => self.analyze_words(
                    &words,
                    &CommandPosition { wrapped_forms: wrapped_forms.clone(), ..position.clone() },
                ),
                NestedCommand::Text(text) => self.analyze_text(&text, position.input.clone(), &wrapped_forms),
            }
        }
        self.depth -= 1;
        if self.operations.len() == before {
            self.operations.push(own);
        }
        directory_changes.iter().for_each(|directory| self.change_directory(directory));
    }

    fn change_directory(&mut self, directory: &str) {
        let next: Vec<BaseDirectory> =
            self.bases.iter().map(|base| self.paths.change_directory(base, directory)).collect();
        self.bases_if_cd_failed.append(&mut self.bases);
        next.into_iter().for_each(|base| self.add_base(base));
    }

    const fn merge_traits(&mut self, traits: CommandTraits) {
        self.traits.fetches |= traits.fetches;
        self.traits.runs_script |= traits.runs_script;
        self.traits.shows_environment |= traits.shows_environment;
    }

    /// Checks the variables that a command sets.
    fn check_variable_names(&mut self, words: &[String]) {
        let Some((program, args)) = words.split_first() else { return };
        if !takes_variable_names(&program_name(program)) {
            return;
        }
        for arg in args {
            let (name, value) = split_assignment(arg);
            self.check_variable(name);
            self.has_unknown_values |= value.is_none_or(|value| value.contains([shell::UNKNOWN, shell::GLOB, '[']));
        }
    }

    fn check_variable(&mut self, name: &str) {
        if let Some(coverage) = effect_on_coverage(name) {
            self.set_uncertainty(format!("the variable {name} changes what commands do"), coverage);
        }
    }

    /// Analyses the substitutions and assignments of a word.
    fn analyze_word(&mut self, word: &Word, position: &CommandPosition<'_>) {
        for name in &word.assigns {
            self.has_unknown_values = true;
            self.check_variable(name);
        }
        for list in &word.substitutions {
            self.analyze_list(list, &CommandPosition { input: Input::NotPiped, concurrent: false, ..position.clone() });
        }
    }

    /// Analyses redirections; returns the source of the input if one redirects it.
    fn analyze_redirects(&mut self, redirects: &[Redirect], position: &CommandPosition<'_>) -> Option<Input> {
        let mut input = None;
        let mut accesses = Vec::new();
        for Redirect { kind, target } in redirects {
            self.analyze_word(target, position);
            match kind {
                RedirectKind::Read => {
                    accesses.extend(self.redirect_accesses(&target.text, RedirectUse::Read));
                    input = Some(Input::NotPiped);
                }
                RedirectKind::Write | RedirectKind::ReadWrite => {
                    accesses.extend(self.redirect_accesses(&target.text, RedirectUse::Write));
                }
                RedirectKind::Descriptor => {}
                RedirectKind::Heredoc(number) => {
                    let body = position.bodies.get(*number).cloned().unwrap_or_default();
                    self.analyze_word(&body, position);
                    input = Some(if body.is_literal() { Input::Text(body.text) } else { Input::Pipe });
                }
            }
        }
        if !accesses.is_empty() {
            self.operations.push(Operation { command: None, risk: Risk::Low, reason: None, accesses });
        }
        input
    }

    fn redirect_accesses(&mut self, word: &str, usage: RedirectUse) -> Vec<AssessedAccess> {
        let context = CommandContext { paths: self.paths, bases: &self.bases, input: Input::NotPiped };
        let path_refs = resolve_word(word, &context);
        if usage == RedirectUse::Write && path_refs.iter().any(|path_ref| path_ref.scope == PathScope::Unknown) {
            self.set_uncertainty("where a redirection writes is known only when it runs", Coverage::Complete);
        }
        let paths = self.paths;
        let touch = |path_ref| {
            let (risk, what) = match usage {
                RedirectUse::Write => (secrets::write_risk(&path_ref, paths), ResourceAccess::Write(path_ref)),
                RedirectUse::Read => (secrets::read_risk(&path_ref, paths), ResourceAccess::Read(path_ref)),
            };
            AssessedAccess { access: what, risk, evidence: Evidence::Explicit }
        };
        path_refs.into_iter().map(touch).collect()
    }
}

/// Returns the words with the bare name of the program, if they are written differently.
fn by_plain_name(words: &[String]) -> Option<Vec<String>> {
    let (program, args) = words.split_first()?;
    let plain = program_name(program);
    (plain != *program).then(|| std::iter::once(plain).chain(args.iter().cloned()).collect())
}

fn has_unknown_value(word: &Word) -> bool {
    let unknown = word.text.matches(shell::UNKNOWN).count();
    unknown > word.numeric_unknowns || word.text.contains([shell::GLOB, '['])
}

/// What a redirection does with its file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RedirectUse {
    Read,
    Write,
}

/// Whether a command contains a change of the working directory.
enum ChangesDirectory {
    No,
    Yes,
}

fn changes_directory(command: &Command) -> ChangesDirectory {
    let directory_changes = match command {
        Command::Simple(simple) => {
            simple.words.iter().any(|word| DIRECTORY_CHANGERS.contains(&program_name(&word.text).as_str()))
        }
        Command::Function { body, .. } => matches!(changes_directory(body), ChangesDirectory::Yes),
        Command::Compound { lists, .. } => lists
            .iter()
            .flat_map(|list| &list.0)
            .flat_map(|pipeline| &pipeline.commands)
            .any(|command| matches!(changes_directory(command), ChangesDirectory::Yes)),
    };
    if directory_changes { ChangesDirectory::Yes } else { ChangesDirectory::No }
}

const DIRECTORY_CHANGERS: [&str; 5] = ["cd", "chdir", "pushd", "popd", "eval"];
/// The maximum nesting depth of command texts.
const TEXT_DEPTH_MAX: usize = 6;
/// How many possible working directories are tracked before the directory counts as unknown.
const BASES_MAX: usize = 6;
