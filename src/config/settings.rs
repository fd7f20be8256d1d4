//! What the user has chosen, as plain values.
//!
//! It knows neither files nor the daemon, and holds no key: keys have places of their own.

pub mod rule;

use std::collections::BTreeMap;
use std::fmt;

use self::rule::Rule;
use super::pi::PiSettings;
use super::sandbox::SandboxSettings;

/// What the user has chosen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// Who answers where nobody says.
    pub provider: Option<String>,
    /// Which model answers where nobody says.
    pub model: Option<String>,
    /// What is known of providers, by name.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// What models cost.
    pub prices: Vec<Price>,
    /// When somebody is asked.
    pub approvals: Preset,
    /// What refines that.
    pub rules: Rules,
    /// What a run may use.
    pub limits: RunLimits,
    /// Which tools there are.
    pub tools: Tools,
    /// What confines the commands of models.
    pub sandbox: SandboxSettings,
    /// Where Pi is spoken, and to whom.
    pub pi: PiSettings,
    /// The names of secrets that sessions of clients over the network get from the login shell.
    pub login_secrets: Vec<String>,
}

/// The provider of those who have chosen none.
pub const NO_MODEL: &str = "playbook";

impl Settings {
    /// Returns who answers, given what was said for this session.
    ///
    /// The default model belongs to the default provider: somebody who names another provider gets that one's model.
    pub fn choose(&self, provider: Option<&str>, model: Option<&str>) -> Choice {
        let default = self.provider.as_deref();
        let provider = provider.or(default).unwrap_or(NO_MODEL);
        let fitting = self.model.as_ref().filter(|_| default.is_none_or(|default| default == provider));
        let own = self.providers.get(provider).and_then(|provider| provider.model.as_ref());
        let model = model.or(fitting.map(String::as_str)).or(own.map(String::as_str));
        Choice { provider: provider.to_owned(), model: model.map(str::to_owned) }
    }

    /// Returns what a model costs, if that is known.
    pub fn price(&self, model: &str) -> Option<&Price> {
        self.prices.iter().find(|price| price.model == model)
    }
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The provider.
    pub provider: String,
    /// Its model; none where the provider is to decide.
    pub model: Option<String>,
}

/// What is known of one provider.
#[derive(Clone, PartialEq, Eq)]
pub struct ProviderSettings {
    /// How it speaks.
    pub kind: ProviderKind,
    /// Where it is, if not where its kind usually is.
    pub base_url: Option<String>,
    /// Its model where nobody says.
    pub model: Option<String>,
    /// What goes with each request; credentials are refused here.
    pub headers: BTreeMap<String, String>,
    /// How many tokens its models take in all.
    pub context_window: Option<u32>,
    /// How much its models think before they answer.
    pub thinking: ThinkingLevel,
}

impl ProviderSettings {
    /// Returns a provider of which nothing but its kind is known.
    pub const fn of(kind: ProviderKind) -> Self {
        Self {
            kind,
            base_url: None,
            model: None,
            headers: BTreeMap::new(),
            context_window: None,
            thinking: ThinkingLevel::Usual,
        }
    }
}

impl fmt::Debug for ProviderSettings {
    // A header may be a secret in spite of everything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderSettings")
            .field("kind", &self.kind)
            .field("base_url", &self.base_url)
            .field("model", &self.model)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("context_window", &self.context_window)
            .field("thinking", &self.thinking)
            .finish()
    }
}

/// Returns the variable that holds a provider's place.
pub fn place_variable(provider: &str) -> String {
    match provider {
        "ollama" => "OLLAMA_HOST".to_owned(),
        _ => format!("{}_BASE_URL", variable_name(provider)),
    }
}

/// Returns the variable that holds a provider's key.
pub fn key_variable(provider: &str) -> String {
    format!("{}_API_KEY", variable_name(provider))
}

fn variable_name(provider: &str) -> String {
    let letter =
        |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
    provider.chars().map(letter).collect()
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// Every one of them, with its word.
            pub const ALL: &[(&str, Self)] = &[$(($word, Self::$variant)),+];

            /// Returns the word for it.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// Reads a word.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
            }
        }
    };
}

words! {
    /// How a provider speaks.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    ProviderKind {
        /// The native interface of ollama.
        Ollama = "ollama",
        /// Chat completions, as many servers speak them.
        OpenAi = "openai",
        /// Messages.
        Anthropic = "anthropic",
    }
}

impl ProviderKind {
    /// Returns how many tokens its models are reckoned to take where nobody says.
    pub const fn usual_window(self) -> u32 {
        match self {
            Self::Ollama => 32_768,
            Self::OpenAi => 128_000,
            Self::Anthropic => 200_000,
        }
    }
}

words! {
    /// How much a model thinks before it answers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    ThinkingLevel {
        /// As it does when nothing is said about it.
        #[default]
        Usual = "usual",
        /// Not at all.
        Off = "off",
        /// A little.
        Low = "low",
        /// Some.
        Medium = "medium",
        /// Much.
        High = "high",
    }
}

words! {
    /// When somebody is asked; the order is from strict to lenient.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    Preset {
        /// Only reading goes ahead.
        Strict = "strict",
        /// What stays in the workspace goes ahead where a sandbox holds it there.
        #[default]
        Standard = "standard",
        /// Only what is critical asks.
        Trusted = "trusted",
    }
}

/// Rules of approval, by who wrote them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// The user.
    pub own: Vec<Rule>,
    /// Projects, which ask and deny and allow nothing.
    pub projects: Vec<Rule>,
}

/// What a run may use; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// How often a model may be asked.
    pub max_turns: Option<u32>,
    /// How many tokens may go in and out.
    pub max_tokens: Option<u64>,
    /// What it may cost, in millionths of a US dollar.
    pub max_cost_micro_usd: Option<u64>,
    /// At how many thousandths of the context window the history is summarised.
    pub compact_at_permille: u16,
}

/// How often a model may be asked where nobody says: one that goes in circles is asked about in the end.
pub const USUAL_TURNS: u32 = 200;

impl RunLimits {
    /// Returns them with what holds where nobody says, so that a project can lower it and never raise it.
    #[must_use]
    pub fn with_usual(self) -> Self {
        Self { max_turns: self.max_turns.or(Some(USUAL_TURNS)), ..self }
    }
}

impl Default for RunLimits {
    fn default() -> Self {
        Self { max_turns: None, max_tokens: None, max_cost_micro_usd: None, compact_at_permille: 800 }
    }
}

/// Which tools there are beside those that are always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tools {
    /// The one that fetches from the network.
    pub fetch: Switch,
}

/// Whether something is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Switch {
    /// It is not.
    #[default]
    Off,
    /// It is.
    On,
}

/// What a model costs, in millionths of a US dollar for a million tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Price {
    /// The model, as its provider calls it.
    pub model: String,
    /// Tokens that go in.
    pub input: u64,
    /// Tokens that come out.
    pub output: u64,
    /// Tokens that were known already.
    pub cache_read: u64,
    /// Tokens that are to be known later.
    pub cache_write: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_goes_before_the_default_and_a_model_stays_with_its_provider() {
        let mut settings = Settings { provider: Some("ollama".into()), ..Settings::default() };
        settings.model = Some("qwen".into());
        let openai =
            ProviderSettings { model: Some("gpt".into()), ..ProviderSettings::of(ProviderKind::OpenAi) };
        settings.providers.insert("openai".into(), openai);
        for (provider, model, chosen) in [
            (None, None, ("ollama", Some("qwen"))),
            (None, Some("llama"), ("ollama", Some("llama"))),
            (Some("openai"), None, ("openai", Some("gpt"))),
            (Some("openai"), Some("o"), ("openai", Some("o"))),
            (Some("anthropic"), None, ("anthropic", None)),
        ] {
            let choice = settings.choose(provider, model);
            assert_eq!((choice.provider.as_str(), choice.model.as_deref()), chosen);
        }
        settings.provider = None;
        assert_eq!(settings.choose(Some("openai"), None).model.as_deref(), Some("qwen"));
    }

    #[test]
    fn without_any_choice_the_playbook_answers() {
        let choice = Settings::default().choose(None, None);
        assert_eq!((choice.provider.as_str(), choice.model), ("playbook", None));
    }

    #[test]
    fn every_word_is_read_as_what_it_was_written_for() {
        for (word, preset) in Preset::ALL {
            assert_eq!((Preset::parse(word), preset.word()), (Some(*preset), *word));
        }
        for (word, level) in ThinkingLevel::ALL {
            assert_eq!((ThinkingLevel::parse(word), level.word()), (Some(*level), *word));
        }
        assert_eq!(ProviderKind::parse("OpenAI"), None);
        assert!(Preset::Strict < Preset::Standard && Preset::Standard < Preset::Trusted);
    }

    #[test]
    fn headers_are_not_shown() {
        let mut provider = ProviderSettings::of(ProviderKind::OpenAi);
        provider.headers.insert("X-Title".into(), "hunter2".into());
        let shown = format!("{provider:?}");
        assert!(shown.contains("X-Title") && !shown.contains("hunter2"), "{shown}");
    }
}
