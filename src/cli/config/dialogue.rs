//! The prompts of the first set-up.
//!
//! It writes no files: it returns the choices, or none if the user cancelled.

use crate::cli::format::count;
use crate::config::file::edit::ConfigEdit;
use crate::config::settings::{NO_MODEL, Settings};
use crate::provider::dialect::{self, BUILT_IN};
use crate::provider::keys::Key;
use crate::provider::registry::key_variable;

/// Asks the user.
pub(super) trait Prompter {
    /// Prints a line.
    fn print(&mut self, line: &str);
    /// Prompts and returns the typed line; none if the user cancelled.
    async fn ask(&mut self, question: &str) -> Option<String>;
    /// Prompts for a secret, which is not echoed.
    async fn ask_hidden(&mut self, question: &str) -> Option<String>;
    /// Returns where the key of a provider comes from, as text; none without a key.
    async fn key_source(&mut self, provider: &str) -> Option<String>;
    /// Lists the models of a provider, with this base URL and key if given; prints why it cannot.
    async fn models(&mut self, provider: &str, base_url: Option<&str>, key: Option<&Key>) -> Vec<String>;
}

/// What is known before the first prompt.
#[derive(Debug, Default)]
pub(super) struct SetupContext {
    /// The models of a running Ollama server; none if it is not running.
    pub(super) ollama_models: Option<Vec<String>>,
    /// The key file.
    pub(super) key_file: String,
    /// The existing configuration.
    pub(super) settings: Settings,
}

/// The choices of the user.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SetupChoice {
    /// The change of the configuration file.
    pub(super) change: ConfigEdit,
    /// The key to store, and where.
    pub(super) key: Option<(KeyStorage, Key)>,
}

/// Where a key is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyStorage {
    /// The key file, which only its owner can read.
    File,
    /// The keyring of the system.
    Keyring,
}

/// Asks for provider, base URL, key and model.
pub(super) async fn run(prompter: &mut impl Prompter, context: &SetupContext) -> Option<SetupChoice> {
    let provider = ask_provider(prompter, context).await?;
    if provider == NO_MODEL {
        return Some(SetupChoice { change: ConfigEdit { provider, model: None, base_url: None }, key: None });
    }
    let built_in = dialect::find(BUILT_IN, &provider);
    let base_url = match built_in.and_then(|dialect| dialect.setup().base_url_question) {
        Some(question) => ask_base_url(prompter, context, &provider, question).await?,
        None => None,
    };
    let key = if built_in.is_some_and(|dialect| dialect.is_local()) {
        None
    } else {
        ask_key(prompter, context, &provider, base_url.as_deref()).await?
    };
    let typed = key.as_ref().map(|(_, key)| key);
    let model = ask_model(prompter, context, &provider, base_url.as_deref(), typed).await?;
    Some(SetupChoice { change: ConfigEdit { provider, model: Some(model), base_url }, key })
}

async fn ask_provider(prompter: &mut impl Prompter, context: &SetupContext) -> Option<String> {
    let mut names: Vec<String> = BUILT_IN.iter().map(|dialect| dialect.name().to_owned()).collect();
    let configured = context.settings.providers.keys();
    names.extend(configured.filter(|name| dialect::find(BUILT_IN, name).is_none()).cloned());
    names.push(NO_MODEL.to_owned());
    prompter.print("Choose a provider by number or name.");
    for (index, name) in names.iter().enumerate() {
        prompter.print(&format!("  {}  {name:<12} {}", index + 1, describe_provider(name, context)));
    }
    let running = context.ollama_models.as_ref().is_some_and(|models| !models.is_empty());
    let usual = context.settings.provider.clone().or_else(|| running.then(|| OLLAMA.to_owned()));
    ask_choice(prompter, "provider", &names, usual.as_deref(), OtherAnswers::Rejected).await
}

fn describe_provider(name: &str, context: &SetupContext) -> String {
    if name == NO_MODEL {
        return "no model: runs the steps in a message".to_owned();
    }
    let Some(dialect) = dialect::find(BUILT_IN, name) else { return "from your configuration".to_owned() };
    let description = dialect.setup().description;
    match &context.ollama_models {
        Some(models) if name == OLLAMA => format!("running here, with {}", count(models.len() as u64, "model")),
        None if name == OLLAMA => format!("{description}; not running now"),
        Some(_) | None => description.to_owned(),
    }
}

/// Asks for the base URL; an empty line keeps the current one.
async fn ask_base_url(
    prompter: &mut impl Prompter,
    context: &SetupContext,
    provider: &str,
    question: &str,
) -> Option<Option<String>> {
    let question = match base_url_of(context, provider) {
        Some(configured) => format!("base URL [{configured}]:"),
        None => question.to_owned(),
    };
    loop {
        let typed = prompter.ask(&question).await?;
        match typed.trim() {
            "" => return Some(None),
            url if url.starts_with("http://") || url.starts_with("https://") => {
                return Some(Some(url.to_owned()));
            }
            _ => prompter.print("A base URL starts with http:// or https://, and usually ends with /v1."),
        }
    }
}

fn base_url_of<'a>(context: &'a SetupContext, provider: &str) -> Option<&'a str> {
    context.settings.providers.get(provider)?.base_url.as_deref()
}

/// Asks where to store the key and for the key, unless there is one already.
async fn ask_key(
    prompter: &mut impl Prompter,
    context: &SetupContext,
    provider: &str,
    base_url: Option<&str>,
) -> Option<Option<(KeyStorage, Key)>> {
    let variable = key_variable(provider);
    if let Some(source) = prompter.key_source(provider).await {
        prompter.print(&format!("The key comes from {source}; `push config key {provider}` stores another one."));
        return Some(None);
    }
    let names = ["file", "keyring", "none"].map(str::to_owned);
    prompter.print("Choose where to store the key:");
    prompter.print(&format!("  1  file         {}, readable only by you", context.key_file));
    prompter.print("  2  keyring      the keyring of this system");
    prompter.print(&format!("  3  none         not stored: you export {variable}, or the server needs no key"));
    // Most self-hosted servers need no key.
    let usual = if base_url.or(base_url_of(context, provider)).is_some() { "none" } else { "file" };
    let place = match ask_choice(prompter, "key storage", &names, Some(usual), OtherAnswers::Rejected).await?.as_str() {
        "file" => KeyStorage::File,
        "keyring" => KeyStorage::Keyring,
        _ => {
            prompter.print(&format!("If the server needs a key: export {variable}=… before you run push."));
            return Some(None);
        }
    };
    loop {
        let typed = prompter.ask_hidden("key (not shown):").await?;
        match Key::new(&typed) {
            Some(key) if key.has_valid_chars() => return Some(Some((place, key))),
            Some(_) => prompter.print("A key consists of visible ASCII characters without spaces and quotes."),
            None => prompter.print("The key is empty; Ctrl-D cancels."),
        }
    }
}

/// Asks for the model and offers those that the server lists.
async fn ask_model(
    prompter: &mut impl Prompter,
    context: &SetupContext,
    provider: &str,
    base_url: Option<&str>,
    key: Option<&Key>,
) -> Option<String> {
    let models = match (provider, &context.ollama_models) {
        (OLLAMA, models) => models.clone().unwrap_or_default(),
        (_, Some(_) | None) => prompter.models(provider, base_url, key).await,
    };
    let (shown, more) = models.split_at(models.len().min(SHOWN));
    for (index, name) in shown.iter().enumerate() {
        prompter.print(&format!("  {}  {name}", index + 1));
    }
    if !more.is_empty() {
        prompter.print(&format!("     and {} more, which can be entered by name", more.len()));
    }
    let configured = context.settings.select_model(Some(provider), None).model;
    // Among the many models of a hosted provider the first one is no useful default.
    let is_local = dialect::find(BUILT_IN, provider).is_some_and(|dialect| dialect.is_local());
    let first = models.first().filter(|_| is_local || models.len() == 1);
    let usual = configured.or_else(|| first.cloned());
    ask_choice(prompter, "model", shown, usual.as_deref(), OtherAnswers::Accepted).await
}

/// The provider whose running server is looked up before the first prompt.
const OLLAMA: &str = "ollama";
/// How many models are listed.
const SHOWN: usize = 20;

/// Whether an answer outside the offered ones is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OtherAnswers {
    Accepted,
    Rejected,
}

/// Prompts until the answer is a number or a name; an empty line means the default.
async fn ask_choice(
    prompter: &mut impl Prompter,
    what: &str,
    names: &[String],
    usual: Option<&str>,
    others: OtherAnswers,
) -> Option<String> {
    let question = match usual {
        Some(usual) => format!("{what} [{usual}]:"),
        None => format!("{what}:"),
    };
    loop {
        let typed = prompter.ask(&question).await?;
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
            OtherAnswers::Accepted if !typed.contains(char::is_control) => return Some(typed.to_owned()),
            OtherAnswers::Accepted | OtherAnswers::Rejected => prompter.print(&format!("Unknown {what}.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_running_ollama_is_offered_first_with_its_models() {
        let context = SetupContext { ollama_models: Some(vec!["a".into(), "b".into()]), ..SetupContext::default() };
        let (change, text) = run_scripted(&context, &["", "2"]).await;
        assert_eq!(change, chosen("ollama", Some("b"), None));
        assert!(!text.contains("key (not shown)"), "{text}");
        assert!(text.contains("running here, with 2 models") && text.contains("provider [ollama]:"), "{text}");
        let (change, _) = run_scripted(&context, &["ollama", ""]).await;
        assert_eq!(change, chosen("ollama", Some("a"), None));
        let (change, _) = run_scripted(&context, &["1", "c:7b"]).await;
        assert_eq!(change, chosen("ollama", Some("c:7b"), None));
    }

    #[tokio::test]
    async fn an_openai_server_has_a_base_url_a_key_and_a_model() {
        let answers = ["2", "host/v1", "http://host/v1", "", "m"];
        let (change, text) = run_scripted(&SetupContext::default(), &answers).await;
        assert_eq!(change, chosen("openai", Some("m"), Some("http://host/v1")));
        assert!(text.contains("starts with http://") && text.contains("export OPENAI_API_KEY=…"), "{text}");
        assert!(text.contains("key storage [none]:"), "{text}");
    }

    #[tokio::test]
    async fn the_models_of_a_server_are_listed_with_the_new_key() {
        let mut prepared = ScriptedPrompter::new(&["openai", "http://host/v1", "file", "secret", "2"]);
        prepared.models = vec!["big".into(), "small".into()];
        let chosen = run(&mut prepared, &SetupContext::default()).await.unwrap();
        assert_eq!(chosen.change.model.as_deref(), Some("small"));
        assert_eq!(prepared.listed, [("openai".into(), Some("http://host/v1".into()), Key::new("secret"))]);
        assert!(prepared.output.contains("  2  small\nmodel:"), "no default among many: {}", prepared.output);

        let mut prepared = ScriptedPrompter::new(&["openai", "", "none", ""]);
        prepared.models = vec!["only".into()];
        let chosen = run(&mut prepared, &SetupContext::default()).await.unwrap();
        assert_eq!(chosen.change.model.as_deref(), Some("only"));

        let mut prepared = ScriptedPrompter::new(&["anthropic", "none", "m30"]);
        prepared.models = (1..=SHOWN + 12).map(|number| format!("m{number}")).collect();
        let chosen = run(&mut prepared, &SetupContext::default()).await.unwrap();
        assert_eq!(chosen.change.model.as_deref(), Some("m30"));
        assert!(prepared.output.contains("and 12 more") && !prepared.output.contains("m21"), "{}", prepared.output);
    }

    #[tokio::test]
    async fn a_configured_base_url_is_the_default() {
        let mut context = SetupContext::default();
        let mut openai = crate::config::settings::ProviderSettings::new(crate::config::settings::TEST_KINDS[1]);
        openai.base_url = Some("http://host/v1".into());
        context.settings.providers.insert("openai".into(), openai);
        let (change, text) = run_scripted(&context, &["openai", "", "", "m"]).await;
        assert_eq!(change, chosen("openai", Some("m"), None));
        assert!(text.contains("base URL [http://host/v1]:") && text.contains("key storage [none]:"), "{text}");
    }

    #[tokio::test]
    async fn a_key_is_prompted_for_without_echo_until_it_is_valid() {
        for (typed, place) in [("", KeyStorage::File), ("1", KeyStorage::File), ("keyring", KeyStorage::Keyring)] {
            let answers = ["anthropic", typed, "", "two words", " secret ", "m"];
            let mut prepared = ScriptedPrompter::new(&answers);
            let chosen = run(&mut prepared, &SetupContext::default()).await.unwrap();
            assert_eq!(chosen.key, Some((place, Key::new("secret").unwrap())));
            assert_eq!(prepared.hidden_answers, ["", "two words", " secret "], "{}", prepared.output);
        }
    }

    #[tokio::test]
    async fn an_existing_key_is_not_prompted_for() {
        let mut prepared = ScriptedPrompter::new(&["anthropic", "m"]);
        prepared.key_source = Some("ANTHROPIC_API_KEY".into());
        let taken = run(&mut prepared, &SetupContext::default()).await;
        assert_eq!(taken, chosen("anthropic", Some("m"), None));
        assert!(prepared.output.contains("comes from ANTHROPIC_API_KEY;"), "{}", prepared.output);
    }

    #[tokio::test]
    async fn an_empty_answer_means_the_configured_value() {
        let mut context = SetupContext::default();
        context.settings.provider = Some("openai".into());
        context.settings.model = Some("gpt".into());
        let (change, text) = run_scripted(&context, &["", "", "none", ""]).await;
        assert_eq!(change, chosen("openai", Some("gpt"), None), "{text}");
    }

    #[tokio::test]
    async fn no_model_is_a_valid_choice_and_unknown_names_are_not() {
        let (change, text) = run_scripted(&SetupContext::default(), &["", "9", "0", "nobody", "playbook"]).await;
        assert_eq!(change, chosen("playbook", None, None));
        assert_eq!(text.matches("Unknown provider.").count(), 3, "{text}");
    }

    #[tokio::test]
    async fn a_cancelled_setup_returns_nothing() {
        for answers in [&[][..], &["2"], &["2", ""], &["2", "", ""], &["2", "", "", "key"], &["ollama"]] {
            assert_eq!(run_scripted(&SetupContext::default(), answers).await.0, None, "{answers:?}");
        }
    }

    fn chosen(provider: &str, model: Option<&str>, base_url: Option<&str>) -> Option<SetupChoice> {
        let change =
            ConfigEdit { provider: provider.into(), model: model.map(Into::into), base_url: base_url.map(Into::into) };
        Some(SetupChoice { change, key: None })
    }

    /// A prompter with scripted answers, which cancels after the last one.
    struct ScriptedPrompter {
        answers: Vec<String>,
        output: String,
        /// The answers to prompts without echo.
        hidden_answers: Vec<String>,
        key_source: Option<String>,
        /// The models of every server, and the arguments with which they were listed.
        models: Vec<String>,
        listed: Vec<(String, Option<String>, Option<Key>)>,
    }

    impl ScriptedPrompter {
        fn new(answers: &[&str]) -> Self {
            let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
            let (models, listed) = (Vec::new(), Vec::new());
            Self { answers, output: String::new(), hidden_answers: Vec::new(), key_source: None, models, listed }
        }
    }

    impl Prompter for ScriptedPrompter {
        fn print(&mut self, line: &str) {
            self.output += line;
            self.output.push('\n');
        }

        async fn ask(&mut self, question: &str) -> Option<String> {
            self.print(question);
            (!self.answers.is_empty()).then(|| self.answers.remove(0))
        }

        async fn ask_hidden(&mut self, question: &str) -> Option<String> {
            let typed = self.ask(question).await?;
            self.hidden_answers.push(typed.clone());
            Some(typed)
        }

        async fn key_source(&mut self, _provider: &str) -> Option<String> {
            self.key_source.clone()
        }

        async fn models(&mut self, provider: &str, base_url: Option<&str>, key: Option<&Key>) -> Vec<String> {
            self.listed.push((provider.to_owned(), base_url.map(str::to_owned), key.cloned()));
            self.models.clone()
        }
    }

    async fn run_scripted(context: &SetupContext, answers: &[&str]) -> (Option<SetupChoice>, String) {
        let mut prepared = ScriptedPrompter::new(answers);
        let chosen = run(&mut prepared, context).await;
        (chosen, prepared.output)
    }
}
