//! Findings about the confinement of commands of models.

use super::Finding;
use crate::client::SandboxReply;

/// Reports which layers are active, how strong the confinement is, and why it is not stronger.
pub(super) fn layers_finding(sandbox: &SandboxReply) -> Finding {
    const ABOUT: &str = "sandbox";
    let names = if sandbox.layers.is_empty() { "none".to_owned() } else { sandbox.layers.join(", ") };
    let why = sandbox.why.as_deref().unwrap_or_default();
    let because = if why.is_empty() { String::new() } else { format!(": {why}") };
    let provider = sandbox.provider.as_str();
    let mechanism = sandbox.mechanism.as_deref().filter(|mechanism| !["", "auto"].contains(mechanism));
    if let Some(mechanism) = mechanism.filter(|_| provider != "none") {
        return chosen_mechanism_finding(mechanism, &sandbox.strength, &names, &because);
    }
    match sandbox.strength.as_str() {
        "full" => Finding::ok(ABOUT, format!("commands of models are confined ({provider}: {names})")),
        "partial" => {
            Finding::note(ABOUT, format!("commands of models are partially confined ({provider}: {names}){because}"))
                .with_remedy("install bubblewrap, or allow user namespaces; until then commands ask for approval unless `trusted` or a rule allows them")
        }
        _ if provider == "none" => Finding::note(ABOUT, format!("commands of models are not confined{because}"))
            .with_remedy("remove `provider = \"none\"` from [sandbox]; until then commands ask for approval unless `trusted` or a rule allows them"),
        _ => Finding::note(ABOUT, format!("commands of models are not confined{because}")).with_remedy(
            "on Linux install bubblewrap or allow user namespaces; until then commands ask for approval unless `trusted` or a rule allows them",
        ),
    }
}

/// Reports the same where the configuration restricts the confinement to one mechanism.
fn chosen_mechanism_finding(mechanism: &str, strength: &str, names: &str, because: &str) -> Finding {
    const ABOUT: &str = "sandbox";
    let setting = format!("`mechanism = \"{mechanism}\"` in [sandbox]");
    match strength {
        "full" => Finding::ok(ABOUT, format!("commands of models are confined by {setting} ({names})")),
        "partial" => Finding::note(ABOUT, format!("commands of models are partially confined ({names}){because}"))
            .with_remedy(format!(
                "remove {setting}; until then commands ask for approval unless `trusted` or a rule allows them"
            )),
        _ => Finding::note(ABOUT, format!("commands of models do not run: {setting} does not work here{because}"))
            .with_remedy(format!("remove {setting}, or make this mechanism available")),
    }
}

/// Reports which parts of the home commands of models can access, and how to open more.
pub(super) fn home_finding(sandbox: &SandboxReply) -> Option<Finding> {
    if sandbox.hidden.is_empty() || sandbox.strength == "missing" {
        return None;
    }
    let or_none = |paths: &[String]| if paths.is_empty() { "nothing".to_owned() } else { paths.join(", ") };
    let overlaid = sandbox.layers.iter().any(|name| name == "overlay");
    let begins = if overlaid { "" } else { " (empty, because overlays are not available)" };
    let text = format!(
        "commands of models cannot read {}; readable in it: {}; private caches{begins}: {}",
        sandbox.hidden.join(", "),
        or_none(&sandbox.readable),
        or_none(&sandbox.caches),
    );
    let remedy = "`readable = [\"~/…\"]` in the [sandbox] section of the configuration opens more";
    Some(Finding::ok("home", text).with_remedy(remedy))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Level;
    use super::*;

    #[test]
    fn active_layers_are_listed_and_missing_ones_explained() {
        let full = layers_finding(&sandbox(
            json!({"provider": "local", "strength": "full", "layers": ["bubblewrap", "seccomp"]}),
        ));
        assert_eq!(full.level, Level::Ok);
        assert!(full.text.contains("local: bubblewrap, seccomp"), "{}", full.text);
        let partial =
            json!({"provider": "local", "strength": "partial", "layers": ["landlock"], "why": "no namespaces"});
        let partial = layers_finding(&sandbox(partial));
        assert_eq!(partial.level, Level::Note);
        assert!(partial.text.ends_with("partially confined (local: landlock): no namespaces"), "{}", partial.text);
        assert_eq!(home_finding(&sandbox(json!({"strength": "full"}))), None);
        let seen = home_finding(&sandbox(json!({"strength": "full", "layers": ["overlay"], "hidden": ["/home/ann"],
            "readable": ["/home/ann/.cargo"], "caches": []})))
        .unwrap();
        let expected =
            "commands of models cannot read /home/ann; readable in it: /home/ann/.cargo; private caches: nothing";
        assert_eq!(seen.text, expected);
        for (strength, level, words) in [
            ("full", Level::Ok, "are confined by `mechanism = \"bubblewrap\"` in [sandbox] (seccomp)"),
            ("partial", Level::Note, "partially confined (seccomp): no program"),
            (
                "missing",
                Level::Note,
                "do not run: `mechanism = \"bubblewrap\"` in [sandbox] does not work here: no program",
            ),
        ] {
            let chosen =
                layers_finding(&sandbox(json!({"provider": "local", "mechanism": "bubblewrap", "strength": strength,
                "layers": ["seccomp"], "why": "no program"})));
            assert_eq!(chosen.level, level);
            assert!(chosen.text.contains(words), "{}", chosen.text);
        }
        let none = layers_finding(&sandbox(
            json!({"provider": "none", "strength": "missing", "layers": [], "why": "switched off"}),
        ));
        assert!(
            none.text.contains("not confined: switched off")
                && none.remedy.is_some_and(|remedy| remedy.contains("none"))
        );
    }

    fn sandbox(described: Value) -> SandboxReply {
        serde_json::from_value(described).unwrap()
    }
}
