//! The questions of the first set-up, and what the answers mean.
//!
//! It writes nothing: what was chosen is handed back, or nothing when somebody left.

use crate::config::file::edit::Change;
use crate::config::settings::{NO_MODEL, ProviderKind, Settings};

/// Somebody who can be asked.
pub(super) trait Talk {
    /// Says a line.
    fn say(&mut self, line: &str);
    /// Asks, and returns what was typed; none when nobody is there any more.
    async fn ask(&mut self, question: &str) -> Option<String>;
}

/// What is known before anybody is asked.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The models of an ollama that runs; none where none does.
    pub(super) ollama: Option<Vec<String>>,
    /// The providers whose key is in the environment.
    pub(super) keys: Vec<String>,
    /// What is configured already.
    pub(super) settings: Settings,
}

/// Asks for provider, place, key and model.
pub(super) async fn hold(talk: &mut impl Talk, known: &Known) -> Option<Change> {
    let provider = provider(talk, known).await?;
    if provider == NO_MODEL {
        return Some(Change { provider, model: None, base_url: None });
    }
    let base_url = if provider == ProviderKind::OpenAi.word() { place(talk).await? } else { None };
    if provider != ProviderKind::Ollama.word() {
        key(talk, known, &provider);
    }
    let model = model(talk, known, &provider).await?;
    Some(Change { provider, model: Some(model), base_url })
}

async fn provider(talk: &mut impl Talk, known: &Known) -> Option<String> {
    let built_in = ProviderKind::ALL.iter().map(|(word, _)| (*word).to_owned());
    let mut names: Vec<String> = built_in.collect();
    names.extend(known.settings.providers.keys().filter(|name| ProviderKind::parse(name).is_none()).cloned());
    names.push(NO_MODEL.to_owned());
    talk.say("Who is to answer?");
    for (index, name) in names.iter().enumerate() {
        talk.say(&format!("  {}  {name:<12} {}", index + 1, about(name, known)));
    }
    let running = known.ollama.as_ref().is_some_and(|models| !models.is_empty());
    let usual = known.settings.provider.clone().or_else(|| running.then(|| "ollama".to_owned()));
    one_of(talk, "provider", &names, usual.as_deref(), Others::Refused).await
}

fn about(name: &str, known: &Known) -> String {
    match (name, &known.ollama) {
        ("ollama", Some(models)) => format!("runs here, with {} models", models.len()),
        ("ollama", None) => "models on this machine; none runs now".to_owned(),
        ("openai", _) => "OpenAI, or any server that speaks chat completions".to_owned(),
        ("anthropic", _) => "Anthropic".to_owned(),
        (NO_MODEL, _) => "no model: runs the steps of a message".to_owned(),
        (_, _) => "from your configuration".to_owned(),
    }
}

/// Asks where the server is; nothing typed leaves what holds.
async fn place(talk: &mut impl Talk) -> Option<Option<String>> {
    loop {
        let typed = talk.ask("its address, if it is not OpenAI's own:").await?;
        match typed.trim() {
            "" => return Some(None),
            url if url.starts_with("http://") || url.starts_with("https://") => {
                return Some(Some(url.to_owned()));
            }
            _ => talk.say("An address begins with http:// or https://, and usually ends with /v1."),
        }
    }
}

/// Says where the key comes from; it is not asked for, as nothing that is typed here is hidden.
fn key(talk: &mut impl Talk, known: &Known, provider: &str) {
    let variable = key_variable(provider);
    if known.keys.iter().any(|name| name == provider) {
        talk.say(&format!("Its key is taken from {variable}, which is set here."));
    } else {
        talk.say(&format!("Its key is taken from the environment: export {variable}=… before you run push."));
    }
}

async fn model(talk: &mut impl Talk, known: &Known, provider: &str) -> Option<String> {
    let models: &[String] = match (provider, &known.ollama) {
        ("ollama", Some(models)) => models,
        (_, Some(_) | None) => &[],
    };
    for (index, name) in models.iter().enumerate() {
        talk.say(&format!("  {}  {name}", index + 1));
    }
    let configured = known.settings.choose(Some(provider), None).model;
    let usual = configured.or_else(|| models.first().cloned());
    one_of(talk, "model", models, usual.as_deref(), Others::Taken).await
}

/// Whether an answer may be none of those offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    Taken,
    Refused,
}

/// Asks until the answer is a number, a name or, with nothing typed, the usual one.
async fn one_of(
    talk: &mut impl Talk,
    what: &str,
    names: &[String],
    usual: Option<&str>,
    others: Others,
) -> Option<String> {
    let question = match usual {
        Some(usual) => format!("{what} [{usual}]:"),
        None => format!("{what}:"),
    };
    loop {
        let typed = talk.ask(&question).await?;
        let typed = typed.trim();
        if typed.is_empty() {
            if let Some(usual) = usual {
                return Some(usual.to_owned());
            }
            continue;
        }
        let numbered = typed.parse::<usize>().ok().and_then(|number| names.get(number.checked_sub(1)?));
        if let Some(name) = numbered.or_else(|| names.iter().find(|name| *name == typed)) {
            return Some(name.clone());
        }
        match others {
            Others::Taken if !typed.contains(char::is_control) => return Some(typed.to_owned()),
            Others::Taken | Others::Refused => talk.say(&format!("There is no such {what}.")),
        }
    }
}

/// Returns the variable that holds a provider's key.
pub(super) fn key_variable(provider: &str) -> String {
    let letter =
        |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
    format!("{}_API_KEY", provider.chars().map(letter).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_running_ollama_is_offered_first_with_its_models() {
        let known = Known { ollama: Some(vec!["a".into(), "b".into()]), ..Known::default() };
        let (change, said) = talk(&known, &["", "2"]).await;
        assert_eq!(change, chosen("ollama", Some("b"), None));
        assert!(said.contains("runs here, with 2 models") && said.contains("provider [ollama]:"), "{said}");
        let (change, _) = talk(&known, &["ollama", ""]).await;
        assert_eq!(change, chosen("ollama", Some("a"), None));
        let (change, _) = talk(&known, &["1", "c:7b"]).await;
        assert_eq!(change, chosen("ollama", Some("c:7b"), None));
    }

    #[tokio::test]
    async fn another_server_has_a_place_a_key_and_a_model() {
        let (change, said) = talk(&Known::default(), &["2", "host/v1", "http://host/v1", "", "m"]).await;
        assert_eq!(change, chosen("openai", Some("m"), Some("http://host/v1")));
        assert!(said.contains("begins with http://") && said.contains("export OPENAI_API_KEY=…"), "{said}");
        let known = Known { keys: vec!["anthropic".into()], ..Known::default() };
        let (change, said) = talk(&known, &["anthropic", "m"]).await;
        assert_eq!(change, chosen("anthropic", Some("m"), None));
        assert!(said.contains("ANTHROPIC_API_KEY, which is set here"), "{said}");
    }

    #[tokio::test]
    async fn what_is_configured_is_what_nothing_typed_means() {
        let mut known = Known::default();
        known.settings.provider = Some("openai".into());
        known.settings.model = Some("gpt".into());
        let (change, said) = talk(&known, &["", "", ""]).await;
        assert_eq!(change, chosen("openai", Some("gpt"), None), "{said}");
    }

    #[tokio::test]
    async fn no_model_is_a_choice_and_nonsense_is_not() {
        let (change, said) = talk(&Known::default(), &["", "9", "0", "nobody", "playbook"]).await;
        assert_eq!(change, chosen("playbook", None, None));
        assert_eq!(said.matches("There is no such provider.").count(), 3, "{said}");
    }

    #[tokio::test]
    async fn whoever_leaves_has_chosen_nothing() {
        for answers in [&[][..], &["2"], &["2", ""], &["ollama"]] {
            assert_eq!(talk(&Known::default(), answers).await.0, None, "{answers:?}");
        }
    }

    fn chosen(provider: &str, model: Option<&str>, base_url: Option<&str>) -> Option<Change> {
        Some(Change {
            provider: provider.into(),
            model: model.map(Into::into),
            base_url: base_url.map(Into::into),
        })
    }

    /// Somebody with prepared answers, who leaves when they are used up.
    struct Prepared {
        answers: Vec<String>,
        said: String,
    }

    impl Talk for Prepared {
        fn say(&mut self, line: &str) {
            self.said += line;
            self.said.push('\n');
        }

        async fn ask(&mut self, question: &str) -> Option<String> {
            self.say(question);
            (!self.answers.is_empty()).then(|| self.answers.remove(0))
        }
    }

    async fn talk(known: &Known, answers: &[&str]) -> (Option<Change>, String) {
        let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
        let mut prepared = Prepared { answers, said: String::new() };
        let change = hold(&mut prepared, known).await;
        (change, prepared.said)
    }
}
