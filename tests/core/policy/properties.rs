//! Properties of any text. `PUSH_FUZZ_SEED` sets the first seed.

use pushd::agent::policy::Decision::Ask;
use pushd::agent::policy::{Policy, RuleSource, Sandbox};
use pushd::config::settings::Preset;
use pushd::config::settings::rule::Rule;
use pushd::sandbox::shell::{Limits, parse};

use super::fixture::{command, policy};
use super::texts::{noise, odd, sound};
use crate::support::random::Random;

/// The number of seeds.
const SEEDS: u64 = 1_500;

#[test]
fn no_text_breaks_the_risk_assessment() {
    for seed in seeds(SEEDS) {
        let mut random = Random::new(seed);
        let text = if random.one_in(2) { noise(&mut random) } else { odd(&mut random) };
        let rules: Vec<Rule> = (0..3).map(|_| odd_rule(&mut random)).collect();
        let policy = policy(Preset::Trusted, &["deny: exec(rm*)", "deny: read(.env*)"]);
        let verdict = command(&policy.with_rules(RuleSource::User, &rules), &text, Sandbox::Full);
        assert!(!verdict.reason.is_empty() && !verdict.reason.contains(char::is_control), "seed {seed}: {text:?}");
    }
}

#[test]
fn a_command_over_an_analysis_limit_needs_approval() {
    let deep = |open: &str, close: &str, times: usize| format!("{}x{}", open.repeat(times), close.repeat(times));
    let texts = [
        deep("(", ")", 10_000),
        deep("( ", " )", 10_000),
        deep("{ ", "; }", 10_000),
        deep("$(", ")", 10_000),
        deep("\"$(", ")\"", 10_000),
        deep("if ", "; then x; fi", 5_000),
        deep("f() { ", "; }", 8_000),
        "(".repeat(60_000),
        "`".repeat(60_001),
        "$((".repeat(20_000),
        "${".repeat(30_000),
        "\"".repeat(60_001),
        "x;".repeat(30_000),
        "x|".repeat(30_000),
        format!("echo {}", "x ".repeat(30_000)),
        format!("echo {}", "x".repeat(70_000)),
        "cat <<A ".repeat(7_000),
        "sh -c ".repeat(10_000),
        "env ".repeat(16_000),
        "! ".repeat(30_000),
        "echo ".to_owned() + &"{a,b}".repeat(12_000),
        format!("sh -c '{}'", "eval ".repeat(12_000)),
    ];
    for text in texts {
        let verdict = command(&policy(Preset::Trusted, &["allow: exec", "deny: exec(*y*z*)"]), &text, Sandbox::Full);
        let head: String = text.chars().take(20).collect();
        assert_eq!(verdict.decision, Ask, "{head}: {}", verdict.reason);
    }
}

#[test]
fn a_command_at_a_limit_is_parsed_and_one_above_is_refused() {
    let limits = Limits { bytes: 40, depth: 3, commands: 4, words: 5 };
    for (text, clear) in [
        ("a; b; c; d", true),
        ("a; b; c; d; e", false),
        ("a b c d e", true),
        ("a b c d e f", false),
        ("( ( a ) )", true),
        ("( ( ( a ) ) )", false),
        ("echo 67890123456789012345678901234567890", true),
        ("echo 678901234567890123456789012345678901", false),
    ] {
        assert_eq!(parse(text, &limits).is_ok(), clear, "{text}");
    }
}

#[test]
fn one_more_denial_never_makes_a_decision_less_strict() {
    for seed in seeds(SEEDS) {
        let mut random = Random::new(seed);
        let text = if random.one_in(2) { noise(&mut random) } else { compound(&mut random) };
        let (policy, sandbox) = random_policy(&mut random);
        let before = command(&policy, &text, sandbox).decision;
        for effect in ["deny", "ask"] {
            let rule = rule(&mut random, effect);
            let after =
                command(&policy.clone().with_rules(RuleSource::User, std::slice::from_ref(&rule)), &text, sandbox)
                    .decision;
            assert!(after >= before, "seed {seed}: {text:?} with {rule}: {before:?} became {after:?}");
        }
    }
}

#[test]
fn one_more_part_never_makes_a_decision_less_strict() {
    for seed in seeds(SEEDS) {
        let mut random = Random::new(seed);
        let (first, second) = (compound(&mut random), sound(&mut random));
        let (policy, sandbox) = random_policy(&mut random);
        let alone = [&first, &second].map(|text| command(&policy, text, sandbox)).into_iter();
        let strictest = alone.map(|verdict| (verdict.decision, verdict.risk));
        let (decision, risk) = strictest.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1))).unwrap();
        for joined in [
            format!("{first}; {second}"),
            format!("{first} && {second}"),
            format!("{second} || {first}"),
            format!("{first} | {second}"),
            format!("({first}); {second}"),
            format!("{first}\n{second}"),
            format!("if {first}; then {second}; fi"),
            format!("echo \"$({first})\"; {second}"),
        ] {
            let both = command(&policy, &joined, sandbox);
            assert!(both.decision >= decision && both.risk >= risk, "seed {seed}: {joined:?}: {}", both.reason);
        }
    }
}

#[test]
fn no_rule_of_a_project_loosens_anything() {
    for seed in seeds(SEEDS) {
        let mut random = Random::new(seed);
        let text = compound(&mut random);
        let (policy, sandbox) = random_policy(&mut random);
        let before = command(&policy, &text, sandbox).decision;
        let rules: Vec<Rule> = ["allow", "ask", "deny"].into_iter().map(|effect| rule(&mut random, effect)).collect();
        let after = command(&policy.with_rules(RuleSource::Project, &rules), &text, sandbox).decision;
        assert!(after >= before, "seed {seed}: {text:?} with {rules:?}");
    }
}

#[test]
fn every_rule_is_read_again_as_it_was_written() {
    for seed in seeds(SEEDS * 4) {
        let mut random = Random::new(seed);
        let effect = ["allow", "ask", "deny"][random.below(3) as usize];
        let rule = rule(&mut random, effect);
        assert_eq!(rule.to_string().parse::<Rule>().as_ref(), Ok(&rule), "seed {seed}");
        let text = noise(&mut random);
        for exact in command(&policy(Preset::Strict, &[]), &text, Sandbox::Full).grant_rules {
            assert_eq!(exact.to_string().parse::<Rule>().as_ref(), Ok(&exact), "seed {seed}: {text:?}");
        }
    }
}

fn seeds(many: u64) -> impl Iterator<Item = u64> {
    let first = std::env::var("PUSH_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    first..first + many
}

fn compound(random: &mut Random) -> String {
    let commands: Vec<String> = (0..random.below(3) + 1).map(|_| sound(random)).collect();
    commands.join([" && ", "; ", " | "][random.below(3) as usize])
}

fn random_policy(random: &mut Random) -> (Policy, Sandbox) {
    let preset = [Preset::Strict, Preset::Standard, Preset::Trusted][random.below(3) as usize];
    let sandboxes = [Sandbox::Full, Sandbox::Partial, Sandbox::Unavailable, Sandbox::Disabled];
    let mut one = |_| {
        let effect = ["allow", "allow", "ask", "deny"][random.below(4) as usize];
        rule(random, effect)
    };
    let rules: Vec<Rule> = (0..3).map(&mut one).collect();
    (Policy::new(preset).with_rules(RuleSource::User, &rules), sandboxes[random.below(4) as usize])
}

fn rule(random: &mut Random, effect: &str) -> Rule {
    let targets = ["exec", "exec", "read", "write", "git", "network", "write_file", "fetch", "sandbox_read_file"];
    let patterns = [
        "*", "ls*", "cat *", "rm*", "make", ".env*", "/src/**", "~/z", "//etc/*", "*.org", "git*", "a\\ b", "push*",
        "??",
    ];
    let target = targets[random.below(targets.len() as u64) as usize];
    let text = match random.below(4) {
        0 => format!("{effect}: {target}"),
        _ => format!("{effect}: {target}({})", patterns[random.below(patterns.len() as u64) as usize]),
    };
    text.parse().unwrap()
}

/// Makes a rule of a few letters that mean something in patterns.
fn odd_rule(random: &mut Random) -> Rule {
    let targets = ["exec", "read", "write", "git", "network"];
    let pieces = ["/", "/", "~", "*", "**", "?", ".", "..", "\\\\", "\\*", "\\ ", "a", "\u{e9}", "\u{4e16}"];
    loop {
        let target = random.pick(&targets).copied().unwrap_or_default();
        let many = random.below(4) + 1;
        let pattern: String = (0..many).filter_map(|_| random.pick(&pieces).copied()).collect();
        if let Ok(rule) = format!("deny: {target}({pattern})").parse() {
            return rule;
        }
    }
}
