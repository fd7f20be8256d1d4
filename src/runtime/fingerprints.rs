//! Fingerprints of requests: they distinguish a repetition under an idempotency key from a different request.
//!
//! A fingerprint covers everything that changes the effect of a request. Its first part names the format version, so
//! that fingerprints of different versions never collide. Fingerprints of the first version are stored in existing
//! databases and are still recognised.

use super::generate;
use crate::config::sandbox::SandboxKind;
use crate::kernel::command::{Command, Prompt};
use crate::kernel::event::{Budget, Criterion, Image};
use crate::kernel::id::{Fingerprint, SessionId};
use crate::kernel::idempotency::{IdempotencyCache, KeySpace};
use crate::protocol::intent::{Fork, StartSession};

/// Returns the fingerprint of a message that starts a run.
pub(super) fn message(
    text: &str,
    criteria: &[Criterion],
    images: &[Image],
    limits: (Option<u64>, Budget),
    rules: &[String],
) -> Fingerprint {
    let (time_limit, Budget { cost, turns, tokens }) = limits;
    let mut parts = vec!["message.2".to_owned(), text.to_owned(), criteria.len().to_string()];
    for criterion in criteria {
        parts.extend([criterion.id.clone(), criterion.check.clone(), criterion.exit_code.to_string()]);
    }
    parts.push(images.len().to_string());
    for image in images {
        parts.extend([image.mime.clone(), image.data.clone()]);
    }
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    parts.extend([time_limit, cost, turns, tokens].map(number));
    parts.extend(rules.iter().cloned());
    generate::fingerprint(parts.iter().map(String::as_str))
}

/// Returns the fingerprint of a session start. It covers the request alone and not the configuration, which may change
/// before a repetition.
pub(super) fn start(start: &StartSession) -> Fingerprint {
    let provider = start.provider.as_deref().unwrap_or_default();
    let model = start.model.as_deref().unwrap_or_default();
    generate::fingerprint(["start.2", &start.cwd, provider, model, sandbox(start), &start.mode])
}

/// Returns the fingerprint of a fork.
pub(super) fn fork(parent: &SessionId, fork: &Fork) -> Fingerprint {
    let at = fork.at.map_or_else(String::new, |at| at.to_string());
    generate::fingerprint(["fork.1", parent.as_str(), &at, fork.name.as_deref().unwrap_or_default()])
}

/// Returns whether a stored fingerprint, of any version, belongs to this start.
pub(super) fn matches_start(stored: Fingerprint, request: &StartSession) -> bool {
    let provider = request.provider.as_deref().unwrap_or_default();
    stored == start(request) || stored == generate::fingerprint([&*request.cwd, provider, sandbox(request)])
}

/// Replaces the fingerprint of a message by its first-version one if an earlier version stored that, so that
/// its repetition is recognised.
pub(super) fn apply_legacy_fingerprint(command: &mut Command, ledger: &IdempotencyCache) {
    let (Command::Prompt(prompt) | Command::Queue(prompt)) = command else { return };
    let first = legacy_message(prompt);
    if let Ok(Some(_)) = ledger.lookup(&(KeySpace::Prompt, prompt.message.clone()), first) {
        prompt.fingerprint = first;
    }
}

/// Returns the first-version fingerprint of a message, which omits its limits and rules.
fn legacy_message(prompt: &Prompt) -> Fingerprint {
    let codes: Vec<_> = prompt.criteria.iter().map(|criterion| criterion.exit_code.to_string()).collect();
    let criteria = prompt.criteria.iter().zip(&codes);
    let checks = criteria.flat_map(|(criterion, code)| [criterion.check.as_str(), code.as_str()]);
    generate::fingerprint(["message", &prompt.text].into_iter().chain(checks).chain(image_parts(&prompt.images)))
}

/// Returns the parts that images add to a first-version fingerprint.
pub(super) fn image_parts(images: &[Image]) -> impl Iterator<Item = &str> {
    images.iter().flat_map(|image| ["image", image.mime.as_str(), image.data.as_str()])
}

fn sandbox(start: &StartSession) -> &str {
    start.sandbox_provider.as_deref().unwrap_or(SandboxKind::Local.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::id::{MessageId, RunId};
    use crate::kernel::idempotency::KeyEntry;

    #[test]
    fn everything_that_a_message_asks_for_changes_its_digest() {
        let plain = || message("go", &[], &[], (None, Budget::default()), &[]);
        assert_eq!(plain(), plain());
        let budgets = [
            Budget { cost: Some(1), ..Budget::default() },
            Budget { turns: Some(1), ..Budget::default() },
            Budget { tokens: Some(1), ..Budget::default() },
        ];
        let mut digests = vec![plain(), message("go", &[], &[], (Some(1), Budget::default()), &[])];
        digests.extend(budgets.map(|budget| message("go", &[], &[], (None, budget), &[])));
        digests.push(message("go", &[], &[], (None, Budget::default()), &["allow exec".to_owned()]));
        digests.push(message("other", &[], &[], (None, Budget::default()), &[]));
        let different: std::collections::BTreeSet<_> = digests.iter().map(|digest| digest.0).collect();
        assert_eq!(different.len(), digests.len());
    }

    #[test]
    fn everything_that_a_start_asks_for_changes_its_digest() {
        let plain = start_request();
        let model = StartSession { model: Some("large".into()), ..start_request() };
        let provider = StartSession { provider: Some("other".into()), ..start_request() };
        assert!(matches_start(start(&plain), &plain));
        assert!(!matches_start(start(&plain), &model));
        assert!(!matches_start(start(&plain), &provider));
        assert!(!matches_start(start(&model), &plain));
    }

    #[test]
    fn a_start_stored_by_an_earlier_version_is_recognised() {
        let stored = generate::fingerprint(["/work", "", SandboxKind::Local.as_str()]);
        let with_model = StartSession { model: Some("large".into()), ..start_request() };
        assert!(matches_start(stored, &start_request()));
        assert!(matches_start(stored, &with_model), "the earlier version ignored the model");
    }

    #[test]
    fn a_message_stored_by_an_earlier_version_is_recognised() {
        // The fingerprint that the first version computed for this text and criterion, with any budget.
        let stored = Fingerprint(0x5be0_2973_97ba_afd0_9740_54b0_0987_110e);
        let key = (KeySpace::Prompt, MessageId::from("m1"));
        let entry = KeyEntry { fingerprint: stored, run: RunId::from("r1") };
        let ledger = IdempotencyCache::from_entries([(key, entry)]);
        for turns in [None, Some(5)] {
            let mut command = Command::Prompt(Box::new(prompt("make", turns)));
            apply_legacy_fingerprint(&mut command, &ledger);
            let Command::Prompt(prompt) = command else { unreachable!() };
            assert_eq!(prompt.fingerprint, stored);
        }
        let mut other = Command::Queue(Box::new(prompt("test", None)));
        apply_legacy_fingerprint(&mut other, &ledger);
        let Command::Queue(other) = other else { unreachable!() };
        assert_ne!(other.fingerprint, stored);
    }

    fn prompt(check: &str, turns: Option<u64>) -> Prompt {
        let (id, check) = ("check-1".to_owned(), check.to_owned());
        let criteria = vec![Criterion { id, check, exit_code: 0, description: None }];
        let budget = Budget { turns, ..Budget::default() };
        Prompt {
            run: RunId::from("r2"),
            message: MessageId::from("m1"),
            text: "go".into(),
            images: Vec::new(),
            fingerprint: message("go", &criteria, &[], (None, budget), &[]),
            criteria,
            time_limit: None,
            budget,
            rules: Vec::new(),
            needs_environment: false,
        }
    }

    fn start_request() -> StartSession {
        StartSession {
            mode: "agent".into(),
            provider: None,
            sandbox_provider: None,
            cwd: "/work".into(),
            model: None,
            name: None,
            repo: None,
            metadata: None,
            environment: None,
            idempotency_key: Some("key".into()),
        }
    }
}
