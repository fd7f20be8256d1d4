//! The prompts of the first set-up.
//!
//! It writes no files: it returns the choices, or none if the user cancelled.

use crate::cli::phrase::count;
use crate::config::file::edit::Change;
use crate::config::settings::{NO_MODEL, ProviderKind, Settings};
use crate::provider::keys::Key;
use crate::provider::registry::key_variable;

/// Asks the user.
pub(super) trait Talk {
    /// Prints a line.
    fn say(&mut self, line: &str);
    /// Prompts and returns the typed line; none if the user cancelled.
    async fn ask(&mut self, question: &str) -> Option<String>;
    /// Prompts for a secret, which is not echoed.
    async fn ask_unseen(&mut self, question: &str) -> Option<String>;
    /// Returns where the key of a provider comes from, as text; none without a key.
    async fn key_source(&mut self, provider: &str) -> Option<String>;
    /// Lists the models of a provider, with this base URL and key if given; prints why it cannot.
    async fn models(&mut self, provider: &str, base_url: Option<&str>, key: Option<&Key>) -> Vec<String>;
}

/// What is known before the first prompt.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The models of a running Ollama server; none if it is not running.
    pub(super) ollama: Option<Vec<String>>,
    /// The key file.
    pub(super) key_file: String,
    /// The existing configuration.
    pub(super) settings: Settings,
}

/// The choices of the user.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// The change of the configuration file.
    pub(super) change: Change,
    /// The key to store, and where.
    pub(super) key: Option<(KeyPlace, Key)>,
}

/// Where a key is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyPlace {
    /// The key file, which only its owner can read.
    File,
    /// The keyring of the system.
    Keyring,
}

/// Asks for provider, base URL, key and model.
pub(super) async fn hold(talk: &mut impl Talk, known: &Known) -> Option<Chosen> {
    let provider = provider(talk, known).await?;
    if provider == NO_MODEL {
        return Some(Chosen { change: Change { provider, model: None, base_url: None }, key: None });
    }
    let base_url = if provider == ProviderKind::OpenAi.word() { place(talk, known).await? } else { None };
    let key = if provider == ProviderKind::Ollama.word() {
        None
    } else {
        key(talk, known, &provider, base_url.as_deref()).await?
    };
    let typed = key.as_ref().map(|(_, key)| key);
    let model = model(talk, known, &provider, base_url.as_deref(), typed).await?;
    Some(Chosen { change: Change { provider, model: Some(model), base_url }, key })
}

async fn provider(talk: &mut impl Talk, known: &Known) -> Option<String> {
    let built_in = ProviderKind::ALL.iter().map(|(word, _)| (*word).to_owned());
    let mut names: Vec<String> = built_in.collect();
    names.extend(known.settings.providers.keys().filter(|name| ProviderKind::parse(name).is_none()).cloned());
    names.push(NO_MODEL.to_owned());
    talk.say("Choose a provider by number or name.");
    for (index, name) in names.iter().enumerate() {
        talk.say(&format!("  {}  {name:<12} {}", index + 1, about(name, known)));
    }
    let running = known.ollama.as_ref().is_some_and(|models| !models.is_empty());
    let usual = known.settings.provider.clone().or_else(|| running.then(|| "ollama".to_owned()));
    one_of(talk, "provider", &names, usual.as_deref(), Others::Refused).await
}

fn about(name: &str, known: &Known) -> String {
    match (name, &known.ollama) {
        ("ollama", Some(models)) => format!("running here, with {}", count(models.len() as u64, "model")),
        ("ollama", None) => "models on this machine; not running now".to_owned(),
        ("openai", _) => "OpenAI, or any server with the chat completions API".to_owned(),
        ("anthropic", _) => "Anthropic".to_owned(),
        (NO_MODEL, _) => "no model: runs the steps in a message".to_owned(),
        (_, _) => "from your configuration".to_owned(),
    }
}

/// Asks for the base URL; an empty line keeps the current one.
async fn place(talk: &mut impl Talk, known: &Known) -> Option<Option<String>> {
    let question = match base_url_of(known, ProviderKind::OpenAi.word()) {
        Some(configured) => format!("base URL [{configured}]:"),
        None => "base URL, if it is not OpenAI:".to_owned(),
    };
    loop {
        let typed = talk.ask(&question).await?;
        match typed.trim() {
            "" => return Some(None),
            url if url.starts_with("http://") || url.starts_with("https://") => {
                return Some(Some(url.to_owned()));
            }
            _ => talk.say("A base URL starts with http:// or https://, and usually ends with /v1."),
        }
    }
}

fn base_url_of<'a>(known: &'a Known, provider: &str) -> Option<&'a str> {
    known.settings.providers.get(provider)?.base_url.as_deref()
}

/// Asks where to store the key and for the key, unless there is one already.
async fn key(
    talk: &mut impl Talk,
    known: &Known,
    provider: &str,
    base_url: Option<&str>,
) -> Option<Option<(KeyPlace, Key)>> {
    let variable = key_variable(provider);
    if let Some(source) = talk.key_source(provider).await {
        talk.say(&format!("The key comes from {source}; `push config key {provider}` stores another one."));
        return Some(None);
    }
    let names = ["file", "keyring", "none"].map(str::to_owned);
    talk.say("Choose where to store the key:");
    talk.say(&format!("  1  file         {}, readable only by you", known.key_file));
    talk.say("  2  keyring      the keyring of this system");
    talk.say(&format!("  3  none         not stored: you export {variable}, or the server needs no key"));
    // Most self-hosted servers need no key.
    let usual = if base_url.or(base_url_of(known, provider)).is_some() { "none" } else { "file" };
    let place = match one_of(talk, "key storage", &names, Some(usual), Others::Refused).await?.as_str() {
        "file" => KeyPlace::File,
        "keyring" => KeyPlace::Keyring,
        _ => {
            talk.say(&format!("If the server needs a key: export {variable}=… before you run push."));
            return Some(None);
        }
    };
    loop {
        let typed = talk.ask_unseen("key (not shown):").await?;
        match Key::new(&typed) {
            Some(key) if key.is_plain() => return Some(Some((place, key))),
            Some(_) => talk.say("A key consists of visible ASCII characters without spaces and quotes."),
            None => talk.say("The key is empty; Ctrl-D cancels."),
        }
    }
}

/// Asks for the model and offers those that the server lists.
async fn model(
    talk: &mut impl Talk,
    known: &Known,
    provider: &str,
    base_url: Option<&str>,
    key: Option<&Key>,
) -> Option<String> {
    let models = match (provider, &known.ollama) {
        ("ollama", models) => models.clone().unwrap_or_default(),
        (_, Some(_) | None) => talk.models(provider, base_url, key).await,
    };
    let (shown, more) = models.split_at(models.len().min(SHOWN));
    for (index, name) in shown.iter().enumerate() {
        talk.say(&format!("  {}  {name}", index + 1));
    }
    if !more.is_empty() {
        talk.say(&format!("     and {} more, which can be entered by name", more.len()));
    }
    let configured = known.settings.choose(Some(provider), None).model;
    // Among the many models of a hosted provider the first one is no useful default.
    let first = models.first().filter(|_| provider == "ollama" || models.len() == 1);
    let usual = configured.or_else(|| first.cloned());
    one_of(talk, "model", shown, usual.as_deref(), Others::Taken).await
}

/// How many models are listed.
const SHOWN: usize = 20;

/// Whether an answer outside the offered ones is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Others {
    Taken,
    Refused,
}

/// Prompts until the answer is a number or a name; an empty line means the default.
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
            Others::Taken | Others::Refused => talk.say(&format!("Unknown {what}.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_running_ollama_is_offered_first_with_its_models() {
        let known = Known { ollama: Some(vec!["a".into(), "b".into()]), ..Known::default() };
        let (change, said) = talk(&known, &["", "2"]).await;
        assert_eq!(change, chosen("ollama", Some("b"), None));
        assert!(!said.contains("key (not shown)"), "{said}");
        assert!(
            said.contains("running here, with 2 models") && said.contains("provider [ollama]:"),
            "{said}"
        );
        let (change, _) = talk(&known, &["ollama", ""]).await;
        assert_eq!(change, chosen("ollama", Some("a"), None));
        let (change, _) = talk(&known, &["1", "c:7b"]).await;
        assert_eq!(change, chosen("ollama", Some("c:7b"), None));
    }

    #[tokio::test]
    async fn another_server_has_a_place_a_key_and_a_model() {
        let answers = ["2", "host/v1", "http://host/v1", "", "m"];
        let (change, said) = talk(&Known::default(), &answers).await;
        assert_eq!(change, chosen("openai", Some("m"), Some("http://host/v1")));
        assert!(said.contains("starts with http://") && said.contains("export OPENAI_API_KEY=…"), "{said}");
        assert!(said.contains("key storage [none]:"), "{said}");
    }

    #[tokio::test]
    async fn the_models_of_a_server_are_offered_and_asked_for_with_the_new_key() {
        let mut prepared = Prepared::new(&["openai", "http://host/v1", "file", "secret", "2"]);
        prepared.models = vec!["big".into(), "small".into()];
        let chosen = hold(&mut prepared, &Known::default()).await.unwrap();
        assert_eq!(chosen.change.model.as_deref(), Some("small"));
        assert_eq!(prepared.listed, [("openai".into(), Some("http://host/v1".into()), Key::new("secret"))]);
        assert!(prepared.said.contains("  2  small\nmodel:"), "no default among many: {}", prepared.said);

        let mut prepared = Prepared::new(&["openai", "", "none", ""]);
        prepared.models = vec!["only".into()];
        let chosen = hold(&mut prepared, &Known::default()).await.unwrap();
        assert_eq!(chosen.change.model.as_deref(), Some("only"));

        let mut prepared = Prepared::new(&["anthropic", "none", "m30"]);
        prepared.models = (1..=SHOWN + 12).map(|number| format!("m{number}")).collect();
        let chosen = hold(&mut prepared, &Known::default()).await.unwrap();
        assert_eq!(chosen.change.model.as_deref(), Some("m30"));
        assert!(prepared.said.contains("and 12 more") && !prepared.said.contains("m21"), "{}", prepared.said);
    }

    #[tokio::test]
    async fn an_address_that_is_configured_is_shown_and_stays() {
        let mut known = Known::default();
        let mut openai = crate::config::settings::ProviderSettings::of(ProviderKind::OpenAi);
        openai.base_url = Some("http://host/v1".into());
        known.settings.providers.insert("openai".into(), openai);
        let (change, said) = talk(&known, &["openai", "", "", "m"]).await;
        assert_eq!(change, chosen("openai", Some("m"), None));
        assert!(
            said.contains("base URL [http://host/v1]:") && said.contains("key storage [none]:"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn a_key_is_asked_for_unseen_until_it_is_one() {
        for (typed, place) in [("", KeyPlace::File), ("1", KeyPlace::File), ("keyring", KeyPlace::Keyring)] {
            let answers = ["anthropic", typed, "", "two words", " secret ", "m"];
            let mut prepared = Prepared::new(&answers);
            let chosen = hold(&mut prepared, &Known::default()).await.unwrap();
            assert_eq!(chosen.key, Some((place, Key::new("secret").unwrap())));
            assert_eq!(prepared.unseen, ["", "two words", " secret "], "{}", prepared.said);
        }
    }

    #[tokio::test]
    async fn a_key_that_is_there_is_not_asked_for() {
        let mut prepared = Prepared::new(&["anthropic", "m"]);
        prepared.source = Some("ANTHROPIC_API_KEY".into());
        let taken = hold(&mut prepared, &Known::default()).await;
        assert_eq!(taken, chosen("anthropic", Some("m"), None));
        assert!(prepared.said.contains("comes from ANTHROPIC_API_KEY;"), "{}", prepared.said);
    }

    #[tokio::test]
    async fn what_is_configured_is_what_nothing_typed_means() {
        let mut known = Known::default();
        known.settings.provider = Some("openai".into());
        known.settings.model = Some("gpt".into());
        let (change, said) = talk(&known, &["", "", "none", ""]).await;
        assert_eq!(change, chosen("openai", Some("gpt"), None), "{said}");
    }

    #[tokio::test]
    async fn no_model_is_a_choice_and_nonsense_is_not() {
        let (change, said) = talk(&Known::default(), &["", "9", "0", "nobody", "playbook"]).await;
        assert_eq!(change, chosen("playbook", None, None));
        assert_eq!(said.matches("Unknown provider.").count(), 3, "{said}");
    }

    #[tokio::test]
    async fn whoever_leaves_has_chosen_nothing() {
        for answers in [&[][..], &["2"], &["2", ""], &["2", "", ""], &["2", "", "", "key"], &["ollama"]] {
            assert_eq!(talk(&Known::default(), answers).await.0, None, "{answers:?}");
        }
    }

    fn chosen(provider: &str, model: Option<&str>, base_url: Option<&str>) -> Option<Chosen> {
        let change = Change {
            provider: provider.into(),
            model: model.map(Into::into),
            base_url: base_url.map(Into::into),
        };
        Some(Chosen { change, key: None })
    }

    /// A prompter with scripted answers, which cancels after the last one.
    struct Prepared {
        answers: Vec<String>,
        said: String,
        /// The answers to prompts without echo.
        unseen: Vec<String>,
        source: Option<String>,
        /// The models of every server, and the arguments with which they were listed.
        models: Vec<String>,
        listed: Vec<(String, Option<String>, Option<Key>)>,
    }

    impl Prepared {
        fn new(answers: &[&str]) -> Self {
            let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
            let (models, listed) = (Vec::new(), Vec::new());
            Self { answers, said: String::new(), unseen: Vec::new(), source: None, models, listed }
        }
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

        async fn ask_unseen(&mut self, question: &str) -> Option<String> {
            let typed = self.ask(question).await?;
            self.unseen.push(typed.clone());
            Some(typed)
        }

        async fn key_source(&mut self, _provider: &str) -> Option<String> {
            self.source.clone()
        }

        async fn models(&mut self, provider: &str, base_url: Option<&str>, key: Option<&Key>) -> Vec<String> {
            self.listed.push((provider.to_owned(), base_url.map(str::to_owned), key.cloned()));
            self.models.clone()
        }
    }

    async fn talk(known: &Known, answers: &[&str]) -> (Option<Chosen>, String) {
        let mut prepared = Prepared::new(answers);
        let chosen = hold(&mut prepared, known).await;
        (chosen, prepared.said)
    }
}
