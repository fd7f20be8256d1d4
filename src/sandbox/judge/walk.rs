//! Traverses a command text and assesses every command in its context.

use super::finding::{Finding, Inner, Input, Scene, Traits, spots};
use super::level::Risk;
use super::part::{By, Coverage, Doubt, Part, Spelling, Touch, What};
use super::place::{Base, Place, Zone};
use super::variables::{assigned, effect_of, takes_names};
use super::words::plain_name;
use super::{programs, secrets};
use crate::sandbox::shell::{
    self, Background, Block, Command, Limits, List, Pipeline, Redirect, Script, Simple, Way, When, Word,
};

/// The state of the analysis of a command text.
pub(super) struct Walk<'a> {
    place: &'a Place,
    limits: Limits,
    /// The possible working directories of the next command.
    bases: Vec<Base>,
    /// The possible working directories if the last `cd` failed.
    otherwise: Vec<Base>,
    /// The functions that have been defined.
    functions: Vec<String>,
    /// The nesting depth of command texts.
    depth: usize,
    pub(super) parts: Vec<Part>,
    pub(super) unclear: Option<Doubt>,
    pub(super) fork_bomb: bool,
    pub(super) traits: Traits,
    /// Whether arithmetic reads variables, and whether a variable has an unknown value.
    counts: bool,
    open_values: bool,
}

/// The position of a command in the text.
#[derive(Clone)]
struct Stand<'c> {
    input: Input,
    /// The functions that contain it.
    inside: Vec<&'c str>,
    /// Whether it runs concurrently with other commands.
    beside: bool,
    /// The wrappers that run it.
    outer: Vec<Vec<String>>,
    bodies: &'c [Word],
}

impl<'a> Walk<'a> {
    pub(super) fn new(place: &'a Place, cwd: Option<&str>, limits: Limits) -> Self {
        Self {
            place,
            limits,
            bases: vec![place.base(cwd)],
            otherwise: Vec::new(),
            functions: Vec::new(),
            depth: 0,
            parts: Vec::new(),
            unclear: None,
            fork_bomb: false,
            traits: Traits::default(),
            counts: false,
            open_values: false,
        }
    }

    /// Analyses a whole text.
    pub(super) fn whole(&mut self, text: &str) {
        self.text(text, Input::Quiet, &[]);
        if self.counts && self.open_values {
            self.doubt("arithmetic with a variable whose value is unknown");
        }
    }

    /// Records that commands may run that are not visible in the text, and why.
    fn doubt(&mut self, what: impl Into<String>) {
        self.doubt_with(what, Coverage::Partial);
    }

    fn doubt_with(&mut self, what: impl Into<String>, coverage: Coverage) {
        if self.unclear.as_ref().is_none_or(|known| known.coverage < coverage) {
            self.unclear = Some(Doubt { reason: what.into(), coverage });
        }
    }

    fn text(&mut self, text: &str, input: Input, outer: &[Vec<String>]) {
        if self.depth == TEXTS {
            return self.doubt("command texts are nested too deeply");
        }
        match shell::parse(text, &self.limits) {
            Err(unclear) => self.doubt(unclear.to_string()),
            Ok(Script { list, bodies, counts_with_variables }) => {
                self.depth += 1;
                self.counts |= counts_with_variables;
                let stand = Stand {
                    input,
                    inside: Vec::new(),
                    beside: false,
                    outer: outer.to_vec(),
                    bodies: &bodies,
                };
                self.list(&list, &stand);
                self.depth -= 1;
            }
        }
    }

    fn list(&mut self, list: &List, stand: &Stand<'_>) {
        for pipeline in &list.0 {
            if pipeline.when != When::Succeeded {
                self.join();
            }
            self.pipeline(pipeline, stand);
            if pipeline.commands.len() > 1 || pipeline.background == Background::Yes {
                self.join();
            }
        }
        self.join();
    }

    /// Adds the working directories of a `cd` that may have failed.
    fn join(&mut self) {
        for base in std::mem::take(&mut self.otherwise) {
            self.may_be_in(base);
        }
    }

    fn may_be_in(&mut self, base: Base) {
        let base = if self.bases.len() >= BASES { Base::Unknown } else { base };
        if !self.bases.contains(&base) {
            self.bases.push(base);
        }
    }

    fn pipeline(&mut self, pipeline: &Pipeline, stand: &Stand<'_>) {
        let beside = stand.beside || pipeline.commands.len() > 1 || pipeline.background == Background::Yes;
        for (index, command) in pipeline.commands.iter().enumerate() {
            let input = if index == 0 { stand.input.clone() } else { Input::Pipe };
            self.command(command, &Stand { input, beside, ..stand.clone() });
        }
    }

    fn command(&mut self, command: &Command, stand: &Stand<'_>) {
        match command {
            Command::Simple(simple) => self.simple(simple, stand),
            Command::Function { name, body } => {
                let scene = Scene { place: self.place, bases: &self.bases, input: Input::Quiet };
                if programs::is_known(name, &scene) || !name.is_ascii() {
                    self.doubt(format!("a function that shadows the command {name}"));
                }
                self.functions.push(name.clone());
                self.may_be_in_anything(&moves_in(body));
                let mut inner = stand.clone();
                inner.inside.push(name);
                self.command(body, &inner);
            }
            Command::Compound { block, words, lists, redirects } => {
                let input = self.redirects(redirects, stand).unwrap_or_else(|| stand.input.clone());
                words.iter().for_each(|word| self.word(word, stand));
                match block {
                    Block::For { variable } => {
                        self.variable(variable);
                        self.open_values |= words.iter().any(is_open_value);
                        self.may_be_in_anything(&moves_in(command));
                    }
                    Block::While => self.may_be_in_anything(&moves_in(command)),
                    Block::Group | Block::Subshell | Block::If | Block::Case => {}
                }
                for list in lists {
                    self.list(list, &Stand { input: input.clone(), ..stand.clone() });
                }
            }
        }
    }

    /// Adds an unknown working directory: a `cd` in a loop or a function may run several times.
    fn may_be_in_anything(&mut self, moves: &Moves) {
        match moves {
            Moves::Some => self.may_be_in(Base::Unknown),
            Moves::None => {}
        }
    }

    fn simple(&mut self, simple: &Simple, stand: &Stand<'_>) {
        for assignment in &simple.assignments {
            self.variable(&assignment.name);
            self.open_values |= is_open_value(&assignment.value);
            self.word(&assignment.value, stand);
        }
        simple.words.iter().for_each(|word| self.word(word, stand));
        let input = self.redirects(&simple.redirects, stand).unwrap_or_else(|| stand.input.clone());
        let words: Vec<String> = simple.words.iter().map(|word| word.text.clone()).collect();
        if let Some(own) = words.first().filter(|first| stand.inside.contains(&first.as_str())) {
            self.fork_bomb |= stand.beside;
            self.doubt(format!("a function that calls itself, {own}"));
        }
        self.words(&words, &Stand { input, ..stand.clone() });
    }

    /// Assesses words as a command, including the commands that it runs.
    fn words(&mut self, words: &[String], stand: &Stand<'_>) {
        if words.is_empty() {
            return;
        }
        if self.parts.len() >= self.limits.commands {
            return self.doubt("there are too many commands");
        }
        self.names(words);
        let scene = Scene { place: self.place, bases: &self.bases, input: stand.input.clone() };
        let finding = programs::judge(words, &scene);
        if let Some((what, coverage)) = finding.unclear {
            self.doubt_with(what, coverage);
        }
        self.note(finding.traits);
        let before = self.parts.len();
        let mut outer = stand.outer.clone();
        outer.extend(by_plain_name(words));
        let spelled = Spelling { words: words.to_vec(), outer: outer.clone() };
        outer.push(words.to_vec());
        let Finding { risk, why, touches, inner, moves, .. } = finding;
        let own = Part { command: Some(spelled), risk: risk.unwrap_or(Risk::Medium), why, touches };
        if !finding.traits.is_transparent {
            self.parts.push(own.clone());
        }
        if self.depth >= TEXTS * 2 {
            return self.doubt("commands that run commands are nested too deeply");
        }
        self.depth += 1;
        for inner in inner {
            match inner {
                Inner::Words(words) => self.words(&words, &Stand { outer: outer.clone(), ..stand.clone() }),
                Inner::Text(text) => self.text(&text, stand.input.clone(), &outer),
            }
        }
        self.depth -= 1;
        if self.parts.len() == before {
            self.parts.push(own);
        }
        moves.iter().for_each(|folder| self.go(folder));
    }

    fn go(&mut self, folder: &str) {
        let next: Vec<Base> = self.bases.iter().map(|base| self.place.step(base, folder)).collect();
        self.otherwise.append(&mut self.bases);
        next.into_iter().for_each(|base| self.may_be_in(base));
    }

    const fn note(&mut self, traits: Traits) {
        self.traits.fetches |= traits.fetches;
        self.traits.runs_text |= traits.runs_text;
        self.traits.shows_environment |= traits.shows_environment;
    }

    /// Checks the variables that a command sets.
    fn names(&mut self, words: &[String]) {
        let Some((program, args)) = words.split_first() else { return };
        if !takes_names(&plain_name(program)) {
            return;
        }
        for arg in args {
            let (name, value) = assigned(arg);
            self.variable(name);
            self.open_values |= value.is_none_or(|value| value.contains([shell::HOLE, shell::GLOB, '[']));
        }
    }

    fn variable(&mut self, name: &str) {
        if let Some(coverage) = effect_of(name) {
            self.doubt_with(format!("the variable {name} changes what commands do"), coverage);
        }
    }

    /// Analyses the substitutions and assignments of a word.
    fn word(&mut self, word: &Word, stand: &Stand<'_>) {
        for name in &word.assigns {
            self.open_values = true;
            self.variable(name);
        }
        for list in &word.scripts {
            self.list(list, &Stand { input: Input::Quiet, beside: false, ..stand.clone() });
        }
    }

    /// Analyses redirections; returns the source of the input if one redirects it.
    fn redirects(&mut self, redirects: &[Redirect], stand: &Stand<'_>) -> Option<Input> {
        let mut input = None;
        let mut touches = Vec::new();
        for Redirect { way, target } in redirects {
            self.word(target, stand);
            match way {
                Way::Read => {
                    touches.extend(self.touches(&target.text, Use::Reads));
                    input = Some(Input::Quiet);
                }
                Way::Write | Way::Both => {
                    touches.extend(self.touches(&target.text, Use::Writes));
                }
                Way::Descriptor => {}
                Way::Document(number) => {
                    let body = stand.bodies.get(*number).cloned().unwrap_or_default();
                    self.word(&body, stand);
                    input = Some(if body.is_literal() { Input::Text(body.text) } else { Input::Pipe });
                }
            }
        }
        if !touches.is_empty() {
            self.parts.push(Part { command: None, risk: Risk::Low, why: None, touches });
        }
        input
    }

    fn touches(&mut self, word: &str, usage: Use) -> Vec<Touch> {
        let scene = Scene { place: self.place, bases: &self.bases, input: Input::Quiet };
        let spots = spots(word, &scene);
        if usage == Use::Writes && spots.iter().any(|spot| spot.zone == Zone::Unknown) {
            self.doubt_with("where a redirection writes is known only when it runs", Coverage::Complete);
        }
        let place = self.place;
        let touch = |spot| {
            let (risk, what) = match usage {
                Use::Writes => (secrets::of_writing(&spot, place), What::Write(spot)),
                Use::Reads => (secrets::of_reading(&spot, place), What::Read(spot)),
            };
            Touch { what, risk, by: By::Itself }
        };
        spots.into_iter().map(touch).collect()
    }
}

/// Returns the words with the bare name of the program, if they are written differently.
fn by_plain_name(words: &[String]) -> Option<Vec<String>> {
    let (program, args) = words.split_first()?;
    let plain = plain_name(program);
    (plain != *program).then(|| std::iter::once(plain).chain(args.iter().cloned()).collect())
}

fn is_open_value(word: &Word) -> bool {
    let unknown = word.text.matches(shell::HOLE).count();
    unknown > word.numbers || word.text.contains([shell::GLOB, '['])
}

/// What a redirection does with its file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Reads,
    Writes,
}

/// Whether a command contains a change of the working directory.
enum Moves {
    None,
    Some,
}

fn moves_in(command: &Command) -> Moves {
    let moves = match command {
        Command::Simple(simple) => {
            simple.words.iter().any(|word| MOVERS.contains(&plain_name(&word.text).as_str()))
        }
        Command::Function { body, .. } => matches!(moves_in(body), Moves::Some),
        Command::Compound { lists, .. } => lists
            .iter()
            .flat_map(|list| &list.0)
            .flat_map(|pipeline| &pipeline.commands)
            .any(|command| matches!(moves_in(command), Moves::Some)),
    };
    if moves { Moves::Some } else { Moves::None }
}

const MOVERS: [&str; 5] = ["cd", "chdir", "pushd", "popd", "eval"];
/// The maximum nesting depth of command texts.
const TEXTS: usize = 6;
/// How many possible working directories are tracked before the directory counts as unknown.
const BASES: usize = 6;
