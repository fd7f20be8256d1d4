//! Findings about the confinement of commands of models.

use serde_json::Value;

use super::Finding;
use crate::cli::format::field;

/// Reports which layers are active, how strong the confinement is, and why it is not stronger.
pub(super) fn layers_finding(sandbox: &Value) -> Finding {
    const ABOUT: &str = "sandbox";
    let names: Vec<&str> =
        sandbox.get("layers").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let why = field(sandbox, "why");
    let because = if why.is_empty() { String::new() } else { format!(": {why}") };
    let provider = field(sandbox, "provider");
    let mechanism = Some(field(sandbox, "mechanism")).filter(|mechanism| !["", "auto"].contains(&mechanism.as_str()));
    if let Some(mechanism) = mechanism.filter(|_| provider != "none") {
        return chosen_mechanism_finding(&mechanism, &field(sandbox, "strength"), &names, &because);
    }
    match field(sandbox, "strength").as_str() {
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
pub(super) fn home_finding(sandbox: &Value) -> Option<Finding> {
    let list = |name: &str| -> Vec<String> {
        let paths = sandbox.get(name).and_then(Value::as_array).into_iter().flatten();
        paths.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let hidden = list("hidden");
    if hidden.is_empty() || field(sandbox, "strength") == "missing" {
        return None;
    }
    let or_none = |paths: Vec<String>| if paths.is_empty() { "nothing".to_owned() } else { paths.join(", ") };
    let overlaid =
        sandbox.get("layers").and_then(Value::as_array).is_some_and(|names| names.iter().any(|name| name == "overlay"));
    let begins =
        if overlaid { "start with the existing content" } else { "start empty, because overlays are not available" };
    let text = format!(
        "hidden from commands of models: {}; readable in it: {}, and what the PATH and toolchain variables of a session add; \
         private copies of caches, which {begins}: {}; `readable = [\"~/…\"]` in the [sandbox] section of the configuration opens more",
        hidden.join(", "),
        or_none(list("readable")),
        or_none(list("caches")),
    );
    Some(Finding::ok("home", text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Level;
    use super::*;

    #[test]
    fn active_layers_are_listed_and_missing_ones_explained() {
        let full =
            layers_finding(&json!({"provider": "local", "strength": "full", "layers": ["bubblewrap", "seccomp"]}));
        assert_eq!(full.level, Level::Ok);
        assert!(full.text.contains("local: bubblewrap, seccomp"), "{}", full.text);
        let partial =
            json!({"provider": "local", "strength": "partial", "layers": ["landlock"], "why": "no namespaces"});
        let partial = layers_finding(&partial);
        assert_eq!(partial.level, Level::Note);
        assert!(partial.text.ends_with("partially confined (local: landlock): no namespaces"), "{}", partial.text);
        assert_eq!(home_finding(&json!({"strength": "full"})), None);
        let seen = home_finding(&json!({"strength": "full", "layers": ["overlay"], "hidden": ["/home/ann"],
            "readable": ["/home/ann/.cargo"], "caches": []}))
        .unwrap();
        for words in ["models: /home/ann;", "in it: /home/ann/.cargo,", "content: nothing;", "opens more"] {
            assert!(seen.text.contains(words), "{}", seen.text);
        }
        for (strength, level, words) in [
            ("full", Level::Ok, "are confined by `mechanism = \"bubblewrap\"` in [sandbox] (seccomp)"),
            ("partial", Level::Note, "partially confined (seccomp): no program"),
            (
                "missing",
                Level::Note,
                "do not run: `mechanism = \"bubblewrap\"` in [sandbox] does not work here: no program",
            ),
        ] {
            let chosen = layers_finding(&json!({"provider": "local", "mechanism": "bubblewrap", "strength": strength,
                "layers": ["seccomp"], "why": "no program"}));
            assert_eq!(chosen.level, level);
            assert!(chosen.text.contains(words), "{}", chosen.text);
        }
        let none =
            layers_finding(&json!({"provider": "none", "strength": "missing", "layers": [], "why": "switched off"}));
        assert!(
            none.text.contains("not confined: switched off")
                && none.remedy.is_some_and(|remedy| remedy.contains("none"))
        );
    }
}
