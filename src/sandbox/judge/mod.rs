//! What a call would do and how much harm that may do, judged by its tool and its arguments and never by what a model
//! says about them.
//!
//! A command is taken apart by the grammar of the shell and judged in every part, through whatever only runs another
//! command. It is judged by its words: what a program does in truth is nobody's to know here, and keeping it from doing
//! so is the sandbox's. Nothing is looked up, so that the same call is always judged the same.

mod danger;
mod files;
mod finding;
mod git;
mod level;
mod network;
mod part;
mod place;
mod programs;
mod secrets;
mod startup;
mod variables;
mod walk;
mod words;
mod wrappers;

use crate::sandbox::shell::Limits;
use walk::Walk;

pub use level::{Category, Risk};
pub use part::{By, Coverage, Doubt, Judgement, Part, Spelling, Touch, What};
pub use place::{Place, Spot, Zone};

/// What a call of `sandbox_exec` wants beyond running a command in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    /// To talk to other machines.
    pub network: bool,
    /// To run outside the sandbox.
    pub outside: bool,
}

/// Judges a command for `/bin/sh -c`, in a directory of the workspace or in the workspace itself.
pub fn command(text: &str, cwd: Option<&str>, wish: Wish, place: &Place, limits: Limits) -> Judgement {
    let mut walk = Walk::new(place, cwd, limits);
    walk.whole(text);
    if wish.network {
        give_network(&mut walk.parts);
    }
    let worst = walk.parts.iter().max_by_key(|part| part.whole_risk());
    let mut risk = worst.map_or(Risk::Low, Part::whole_risk);
    let mut why = worst.and_then(|part| part.why);
    let mut raise = |least: Risk, reason: &'static str| {
        if risk < least {
            (risk, why) = (least, Some(reason));
        }
    };
    let what = || walk.parts.iter().flat_map(|part| &part.touches).map(|touch| &touch.what);
    let far = what().any(|what| matches!(what, What::Network(_)));
    let secret = what().any(|what| match what {
        What::Read(spot) | What::Name(spot) => secrets::holds_secrets(spot, place),
        What::Write(_) | What::Git(_) | What::Network(_) => false,
    });
    if far && (secret || walk.traits.shows_environment) {
        raise(Risk::Critical, "it may send secrets to another machine");
    }
    if walk.traits.fetches && walk.traits.runs_text {
        raise(Risk::Critical, "it may run what it has just fetched");
    }
    if walk.fork_bomb {
        raise(Risk::Critical, "it starts itself over and over");
    }
    if wish.outside {
        raise(Risk::High, "it runs outside the sandbox");
    }
    if walk.unclear.is_some() {
        raise(Risk::High, "it cannot be told what it does");
    }
    Judgement { category: Category::Exec, risk, why, parts: walk.parts, unclear: walk.unclear }
}

/// Has every command talk to unknown machines, unless its words say to which.
fn give_network(parts: &mut Vec<Part>) {
    let far = |part: &Part| part.touches.iter().any(|touch| matches!(touch.what, What::Network(_)));
    let touch = || Touch { what: What::Network(None), risk: Risk::High, by: By::Itself };
    if parts.iter().all(|part| part.command.is_none()) {
        parts.push(Part { command: None, risk: Risk::Low, why: None, touches: vec![touch()] });
    }
    for part in parts.iter_mut().filter(|part| part.command.is_some() && !far(part)) {
        part.touches.push(touch());
    }
}

/// Judges a tool that touches these things and is no command.
pub(crate) fn tool(category: Category, touches: Vec<(What, Risk)>, least: Risk) -> Judgement {
    let touches = touches.into_iter().map(|(what, risk)| Touch { what, risk, by: By::Itself }).collect();
    let part = Part { command: None, risk: least, why: None, touches };
    Judgement { category, risk: part.whole_risk(), why: None, parts: vec![part], unclear: None }
}

/// Returns the risk of reading and of writing a file.
pub(crate) fn risks(spot: &Spot, place: &Place) -> (Risk, Risk) {
    (secrets::of_reading(spot, place), secrets::of_writing(spot, place))
}

/// Returns the machine that an address names.
pub fn host(url: &str) -> Option<String> {
    network::host_of(url)
}
