//! The decisions of the presets, and the coverage of tools by rules.

use super::*;
use crate::config::settings::rule::Target;
use crate::tools::{Network, catalogue};

const CATEGORIES: [Category; 5] =
    [Category::Read, Category::Write, Category::Exec, Category::Git, Category::Network];
const UNHELD: [Sandbox; 2] = [Sandbox::Missing, Sandbox::NoneChosen];

#[test]
fn reading_goes_ahead_and_nothing_else_does_unasked() {
    for preset in [Preset::Standard, Preset::Strict] {
        for category in CATEGORIES {
            for sandbox in UNHELD {
                let asked = weigh::preset_asks(preset, sandbox, category, Risk::Low);
                assert_eq!(asked, category != Category::Read, "{category:?}");
            }
        }
    }
}

#[test]
fn who_is_trusted_is_asked_about_what_is_critical_and_about_commands_that_nothing_holds() {
    for category in CATEGORIES {
        for sandbox in [Sandbox::Full, Sandbox::Partial, Sandbox::Missing, Sandbox::NoneChosen] {
            assert!(weigh::preset_asks(Preset::Trusted, sandbox, category, Risk::Critical));
            let asked = weigh::preset_asks(Preset::Trusted, sandbox, category, Risk::High);
            assert_eq!(asked, category == Category::Exec && sandbox == Sandbox::Missing);
        }
    }
}

#[test]
fn a_stricter_preset_a_higher_risk_and_less_of_a_sandbox_never_ask_less() {
    let sandboxes = [Sandbox::Full, Sandbox::Partial, Sandbox::NoneChosen];
    for category in CATEGORIES {
        for (lenient, strict) in [(Preset::Trusted, Preset::Standard), (Preset::Standard, Preset::Strict)] {
            for risk in Risk::ALL {
                for sandbox in sandboxes {
                    let asks = |preset| weigh::preset_asks(preset, sandbox, category, risk);
                    assert!(asks(strict) >= asks(lenient), "{category:?} {risk:?} {sandbox:?}");
                }
            }
        }
        for preset in [Preset::Strict, Preset::Standard, Preset::Trusted] {
            for pair in Risk::ALL.windows(2) {
                let asks = |risk| weigh::preset_asks(preset, Sandbox::Full, category, risk);
                assert!(asks(pair[1]) >= asks(pair[0]), "{category:?} {preset:?}");
            }
            for pair in sandboxes.windows(2) {
                let asks = |sandbox| weigh::preset_asks(preset, sandbox, category, Risk::Medium);
                assert!(asks(pair[1]) >= asks(pair[0]), "{category:?} {preset:?}");
            }
        }
    }
}

#[test]
fn rules_know_every_tool() {
    let mut known: Vec<String> =
        Target::ALL.iter().map(|target| format!("sandbox_{}", target.word())).collect();
    known.retain(|name| catalogue(Network::Allowed).iter().any(|tool| tool.name == name));
    assert_eq!(known.len(), catalogue(Network::Allowed).len());
}
