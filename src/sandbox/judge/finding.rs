//! What is found out about one command.

use super::level::Risk;
use super::part::{By, Coverage, Touch, What};
use super::place::{Base, Place, Spot, Zone};
use super::secrets;
use crate::sandbox::address::{self, Reachability};

/// Where a command runs and what it reads.
pub(super) struct Scene<'a> {
    pub(super) place: &'a Place,
    /// The directories that it may be in.
    pub(super) bases: &'a [Base],
    pub(super) input: Input,
}

/// Where the standard input comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    /// It is empty, or a file.
    Quiet,
    /// Another command.
    Pipe,
    /// A text that is known to the letter.
    Text(String),
}

/// What is found out about one command.
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

/// What matters beside other commands of the same call.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Traits {
    /// It brings something from another machine.
    pub(super) fetches: bool,
    /// It runs a file of its own choice, or what it reads.
    pub(super) runs_text: bool,
    /// It prints the variables, secrets among them.
    pub(super) shows_environment: bool,
    /// It is nothing but its inner commands.
    pub(super) is_transparent: bool,
}

/// A command in a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Inner {
    /// Its words.
    Words(Vec<String>),
    /// Its text.
    Text(String),
}

impl Finding {
    pub(super) fn of(risk: Risk) -> Self {
        Self { risk: Some(risk), ..Self::default() }
    }

    /// Makes the risk at least this.
    pub(super) fn raise(&mut self, risk: Risk, why: &'static str) {
        if self.risk.is_none_or(|known| known < risk) {
            self.risk = Some(risk);
            self.why = Some(why);
        }
    }

    /// Says that commands may run that are not seen here, and why.
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
            // The unknown place is among what is touched.
            self.doubt("where it writes is known only when it runs", Coverage::Complete);
        }
    }

    /// Notes a word that may be a file.
    pub(super) fn name(&mut self, word: &str, scene: &Scene<'_>) {
        self.spots(word, scene, |spot| {
            let risk = match secrets::of_reading(&spot, scene.place) {
                // Inside, a word that is named like a secret is mostly just a word.
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

/// Returns where a word may lead.
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
