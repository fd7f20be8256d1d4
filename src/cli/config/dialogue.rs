//! The questions of the first set-up, and what the answers mean.
//!
//! It writes nothing: what was chosen is handed back, or nothing when somebody left.

use crate::cli::phrase::count;
use crate::config::file::edit::Change;
use crate::config::settings::{NO_MODEL, ProviderKind, Settings};
use crate::provider::keys::Key;
use crate::provider::registry::key_variable;

/// Somebody who can be asked.
pub(super) trait Talk {
    /// Says a line.
    fn say(&mut self, line: &str);
    /// Asks, and returns what was typed; none when nobody is there any more.
    async fn ask(&mut self, question: &str) -> Option<String>;
    /// Asks for what nobody may see, not even while it is typed.
    async fn ask_unseen(&mut self, question: &str) -> Option<String>;
    /// Returns where a provider's key comes from already, in words.
    async fn key_source(&mut self, provider: &str) -> Option<String>;
    /// Lists the models of a provider, asked at this place and with this key where they are said; says why it cannot.
    async fn models(&mut self, provider: &str, base_url: Option<&str>, key: Option<&Key>) -> Vec<String>;
}

/// What is known before anybody is asked.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The models of an ollama that runs; none where none does.
    pub(super) ollama: Option<Vec<String>>,
    /// The file of keys.
    pub(super) key_file: String,
    /// What is configured already.
    pub(super) settings: Settings,
}

/// What was chosen.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// What is to be written into the configuration.
    pub(super) change: Change,
    /// The key that is to be put away, and where.
    pub(super) key: Option<(KeyPlace, Key)>,
}

/// Where a key is put away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyPlace {
    /// The file that only its owner can read.
    File,
    /// The system's keyring.
    Keyring,
}

/// Asks for provider, place, key and model.
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
        ("ollama", Some(models)) => format!("runs here, with {}", count(models.len() as u64, "model")),
        ("ollama", None) => "models on this machine; none runs now".to_owned(),
        ("openai", _) => "OpenAI, or any server that speaks chat completions".to_owned(),
        ("anthropic", _) => "Anthropic".to_owned(),
        (NO_MODEL, _) => "no model: runs the steps of a message".to_owned(),
        (_, _) => "from your configuration".to_owned(),
    }
}

/// Asks where the server is; nothing typed leaves what holds.
async fn place(talk: &mut impl Talk, known: &Known) -> Option<Option<String>> {
    let question = match base_url_of(known, ProviderKind::OpenAi.word()) {
        Some(configured) => format!("its address [{configured}]:"),
        None => "its address, if it is not OpenAI's own:".to_owned(),
    };
    loop {
        let typed = talk.ask(&question).await?;
        match typed.trim() {
            "" => return Some(None),
            url if url.starts_with("http://") || url.starts_with("https://") => {
                return Some(Some(url.to_owned()));
            }
            _ => talk.say("An address begins with http:// or https://, and usually ends with /v1."),
        }
    }
}

fn base_url_of<'a>(known: &'a Known, provider: &str) -> Option<&'a str> {
    known.settings.providers.get(provider)?.base_url.as_deref()
}

/// Asks where the key is to be kept, unless there is one, and for the key.
async fn key(
    talk: &mut impl Talk,
    known: &Known,
    provider: &str,
    base_url: Option<&str>,
) -> Option<Option<(KeyPlace, Key)>> {
    let variable = key_variable(provider);
    if let Some(source) = talk.key_source(provider).await {
        talk.say(&format!("Its key is taken from {source}; `push config key {provider}` stores another."));
        return Some(None);
    }
    let names = ["file", "keyring", "none"].map(str::to_owned);
    talk.say("Where is its key to be kept?");
    talk.say(&format!("  1  file         {}, readable by you alone", known.key_file));
    talk.say("  2  keyring      the keyring of this system");
    talk.say(&format!("  3  none         nowhere: you export {variable}, or the server wants none"));
    // Most servers that people run themselves want none.
    let usual = if base_url.or(base_url_of(known, provider)).is_some() { "none" } else { "file" };
    let place = match one_of(talk, "place", &names, Some(usual), Others::Refused).await?.as_str() {
        "file" => KeyPlace::File,
        "keyring" => KeyPlace::Keyring,
        _ => {
            talk.say(&format!("If it wants a key: export {variable}=… before you run push."));
            return Some(None);
        }
    };
    loop {
        let typed = talk.ask_unseen("its key (it is not shown):").await?;
        match Key::new(&typed) {
            Some(key) if key.is_plain() => return Some(Some((place, key))),
            Some(_) => talk.say("A key has no blanks, no quotes and no accents."),
            None => talk.say("Nothing was typed; Ctrl-D leaves."),
        }
    }
}

/// Asks for the model, among those that the server says it has.
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
        talk.say(&format!("     and {} more; any of their names will do", more.len()));
    }
    let configured = known.settings.choose(Some(provider), None).model;
    // Of many on a server of somebody else, the first is no better than the others.
    let first = models.first().filter(|_| provider == "ollama" || models.len() == 1);
    let usual = configured.or_else(|| first.cloned());
    one_of(talk, "model", shown, usual.as_deref(), Others::Taken).await
}

/// How many models are shown.
const SHOWN: usize = 20;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_running_ollama_is_offered_first_with_its_models() {
        let known = Known { ollama: Some(vec!["a".into(), "b".into()]), ..Known::default() };
        let (change, said) = talk(&known, &["", "2"]).await;
        assert_eq!(change, chosen("ollama", Some("b"), None));
        assert!(!said.contains("its key"), "{said}");
        assert!(said.contains("runs here, with 2 models") && said.contains("provider [ollama]:"), "{said}");
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
        assert!(said.contains("begins with http://") && said.contains("export OPENAI_API_KEY=…"), "{said}");
        assert!(said.contains("place [none]:"), "{said}");
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
        assert!(said.contains("its address [http://host/v1]:") && said.contains("place [none]:"), "{said}");
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
        assert!(prepared.said.contains("taken from ANTHROPIC_API_KEY;"), "{}", prepared.said);
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
        assert_eq!(said.matches("There is no such provider.").count(), 3, "{said}");
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

    /// Somebody with prepared answers, who leaves when they are used up.
    struct Prepared {
        answers: Vec<String>,
        said: String,
        /// What was typed unseen.
        unseen: Vec<String>,
        source: Option<String>,
        /// The models of every server, and how they were asked for.
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
