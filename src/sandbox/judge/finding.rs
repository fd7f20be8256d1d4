//! The assessment of one command in progress.

use super::level::Risk;
use super::part::{By, Coverage, Touch, What};
use super::place::{Base, Place, Spot, Zone};
use super::secrets;
use crate::sandbox::address::{self, Reachability};

/// The context of a command: its possible working directories and its input.
pub(super) struct Scene<'a> {
    pub(super) place: &'a Place,
    /// The possible working directories.
    pub(super) bases: &'a [Base],
    pub(super) input: Input,
}

/// The source of the standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    /// Empty, or a file.
    Quiet,
    /// The output of another command.
    Pipe,
    /// A literal text.
    Text(String),
}

/// The assessment of one command.
#[derive(Debug, Default)]
pub(super) struct Finding {
    pub(super) risk: Option<Risk>,
    pub(super) why: Option<&'static str>,
    pub(super) touches: Vec<Touch>,
    pub(super) unclear: Option<(&'static str, Coverage)>,
    pub(super) inner: Vec<Inner>,
    pub(super) moves: Vec<String>,
    pub(super) traits: Traits,
}

/// Properties that matter in combination with other commands of the same call.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Traits {
    /// It downloads from another host.
    pub(super) fetches: bool,
    /// It executes a script file or its input.
    pub(super) runs_text: bool,
    /// It prints the environment, which may contain secrets.
    pub(super) shows_environment: bool,
    /// It only runs its nested commands.
    pub(super) is_transparent: bool,
}

/// A command that another command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Inner {
    /// As words.
    Words(Vec<String>),
    /// As a text for a shell.
    Text(String),
}

impl Finding {
    pub(super) fn of(risk: Risk) -> Self {
        Self { risk: Some(risk), ..Self::default() }
    }

    /// Raises the risk to at least this level.
    pub(super) fn raise(&mut self, risk: Risk, why: &'static str) {
        if self.risk.is_none_or(|known| known < risk) {
            self.risk = Some(risk);
            self.why = Some(why);
        }
    }

    /// Records that the command may run commands that are not visible here, and why.
    pub(super) fn unclear(&mut self, what: &'static str) {
        self.doubt(what, Coverage::Partial);
    }

    fn doubt(&mut self, what: &'static str, coverage: Coverage) {
        if self.unclear.is_none_or(|(_, known)| known < coverage) {
            self.unclear = Some((what, coverage));
        }
    }

    pub(super) fn read(&mut self, word: &str, scene: &Scene<'_>) {
        self.spots(word, scene, |spot| (secrets::of_reading(&spot, scene.place), What::Read(spot)));
    }

    pub(super) fn write(&mut self, word: &str, scene: &Scene<'_>) {
        self.spots(word, scene, |spot| (secrets::of_writing(&spot, scene.place), What::Write(spot)));
        if spots(word, scene).iter().any(|spot| spot.zone == Zone::Unknown) {
            // The unknown path is among the accesses, so the coverage is complete.
            self.doubt("where it writes is known only when it runs", Coverage::Complete);
        }
    }

    /// Records a word that may be the name of a file.
    pub(super) fn name(&mut self, word: &str, scene: &Scene<'_>) {
        self.spots(word, scene, |spot| {
            let risk = match secrets::of_reading(&spot, scene.place) {
                // In the workspace, a word that looks like the name of a secret is usually an ordinary word.
                Risk::Low | Risk::Medium => Risk::Low,
                risk @ (Risk::High | Risk::Critical) => risk,
            };
            (risk, What::Name(spot))
        });
    }

    pub(super) fn network(&mut self, host: Option<String>) {
        let risk = match host.as_deref().map(address::of_host) {
            Some(Reachability::Metadata) => Risk::Critical,
            Some(Reachability::Public | Reachability::Private) | None => Risk::High,
        };
        self.touches.push(Touch { what: What::Network(host), risk, by: By::Words });
    }

    pub(super) fn git(&mut self, words: String) {
        self.touches.push(Touch { what: What::Git(words), risk: Risk::Medium, by: By::Words });
    }

    fn spots(&mut self, word: &str, scene: &Scene<'_>, touch: impl Fn(Spot) -> (Risk, What)) {
        if word.is_empty() {
            return;
        }
        for spot in spots(word, scene) {
            let (risk, what) = touch(spot);
            let touch = Touch { what, risk, by: By::Words };
            if !self.touches.contains(&touch) {
                self.touches.push(touch);
            }
        }
    }
}

/// Resolves a word against every possible working directory.
pub(super) fn spots(word: &str, scene: &Scene<'_>) -> Vec<Spot> {
    let mut found: Vec<Spot> = Vec::new();
    for base in scene.bases {
        let spot = scene.place.spot(base, word);
        if !found.contains(&spot) {
            found.push(spot);
        }
    }
    found
}
