//! The decisions of the presets, and the coverage of tools by rules.

use super::*;
use crate::tools::{Network, ToolSet};

const CATEGORIES: [Category; 5] = [Category::Read, Category::Write, Category::Exec, Category::Git, Category::Network];
const UNSANDBOXED: [Sandbox; 2] = [Sandbox::Unavailable, Sandbox::Disabled];

#[test]
fn only_reading_is_allowed_without_approval() {
    for preset in [Preset::Standard, Preset::Strict] {
        for category in CATEGORIES {
            for sandbox in UNSANDBOXED {
                let needs_approval = evaluate::preset_asks(preset, sandbox, category, Risk::Low);
                assert_eq!(needs_approval, category != Category::Read, "{category:?}");
            }
        }
    }
}

#[test]
fn the_trusted_preset_asks_about_critical_risk_and_unconfined_commands() {
    for category in CATEGORIES {
        for sandbox in [Sandbox::Full, Sandbox::Partial, Sandbox::Unavailable, Sandbox::Disabled] {
            assert!(evaluate::preset_asks(Preset::Trusted, sandbox, category, Risk::Critical));
            let needs_approval = evaluate::preset_asks(Preset::Trusted, sandbox, category, Risk::High);
            assert_eq!(needs_approval, category == Category::Exec && sandbox == Sandbox::Unavailable);
        }
    }
}

#[test]
fn a_stricter_preset_a_higher_risk_and_less_of_a_sandbox_never_ask_less() {
    let sandboxes = [Sandbox::Full, Sandbox::Partial, Sandbox::Disabled];
    for category in CATEGORIES {
        for (lenient, strict) in [(Preset::Trusted, Preset::Standard), (Preset::Standard, Preset::Strict)] {
            for risk in Risk::ALL {
                for sandbox in sandboxes {
                    let asks = |preset| evaluate::preset_asks(preset, sandbox, category, risk);
                    assert!(asks(strict) >= asks(lenient), "{category:?} {risk:?} {sandbox:?}");
                }
            }
        }
        for preset in [Preset::Strict, Preset::Standard, Preset::Trusted] {
            for pair in Risk::ALL.windows(2) {
                let asks = |risk| evaluate::preset_asks(preset, Sandbox::Full, category, risk);
                assert!(asks(pair[1]) >= asks(pair[0]), "{category:?} {preset:?}");
            }
            for pair in sandboxes.windows(2) {
                let asks = |sandbox| evaluate::preset_asks(preset, sandbox, category, Risk::Medium);
                assert!(asks(pair[1]) >= asks(pair[0]), "{category:?} {preset:?}");
            }
        }
    }
}

#[test]
fn rules_cover_every_tool() {
    for tool in ToolSet::builtin().available(Network::Allowed) {
        let rule: Rule = format!("deny: {}", tool.name()).parse().unwrap();
        assert!(tool.name().ends_with(rule.target.as_str()), "{rule}");
    }
}
