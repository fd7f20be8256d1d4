//! Risk assessment of a tool call, from its tool and its arguments and never from the model's description of them.
//!
//! A command is parsed with the grammar of the shell, and every command in it is assessed, also behind wrappers such as
//! `env` and `sudo`. The assessment is lexical: it cannot know what a program really does; the sandbox limits that. It
//! reads no files, so the same call always gets the same assessment.

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

/// Permissions that a call of `sandbox_exec` requests beyond running a command in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    /// Access to the network.
    pub network: bool,
    /// Running outside the sandbox.
    pub outside: bool,
}

/// Assesses a command for `/bin/sh -c`, in the directory `cwd` of the workspace or in the workspace itself.
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
        raise(Risk::Critical, "it may send secrets to another host");
    }
    if walk.traits.fetches && walk.traits.runs_text {
        raise(Risk::Critical, "it may run code that it has just downloaded");
    }
    if walk.fork_bomb {
        raise(Risk::Critical, "it starts itself recursively, like a fork bomb");
    }
    if wish.outside {
        raise(Risk::High, "it runs outside the sandbox");
    }
    if walk.unclear.is_some() {
        raise(Risk::High, "it cannot be analysed completely");
    }
    Judgement { category: Category::Exec, risk, why, parts: walk.parts, unclear: walk.unclear }
}

/// Adds access to unknown hosts to every command that does not name a host.
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

/// Assesses a tool other than a command, which accesses these resources.
pub(crate) fn tool(category: Category, touches: Vec<(What, Risk)>, least: Risk) -> Judgement {
    let touches = touches.into_iter().map(|(what, risk)| Touch { what, risk, by: By::Itself }).collect();
    let part = Part { command: None, risk: least, why: None, touches };
    Judgement { category, risk: part.whole_risk(), why: None, parts: vec![part], unclear: None }
}

/// Returns the risk of reading a file and of writing it.
pub(crate) fn risks(spot: &Spot, place: &Place) -> (Risk, Risk) {
    (secrets::of_reading(spot, place), secrets::of_writing(spot, place))
}

/// Returns the host of a URL.
pub fn host(url: &str) -> Option<String> {
    network::host_of(url)
}
