//! The user's settings as plain values.
//!
//! They do not depend on the file or the daemon, and contain no credentials; those are stored separately.

pub mod rule;

use std::collections::BTreeMap;
use std::fmt;

use self::rule::Rule;
use super::listener::{HTTP_PORT, ListenerSettings, PI_PORT};
use super::sandbox::SandboxSettings;

/// The user's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The default provider.
    pub provider: Option<String>,
    /// The default model.
    pub model: Option<String>,
    /// The settings of providers, by name.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// The prices of models.
    pub prices: Vec<Price>,
    /// The approval preset.
    pub approvals: Preset,
    /// The approval rules, which refine the preset.
    pub rules: ApprovalRules,
    /// The limits of a run.
    pub limits: RunLimits,
    /// The optional tools.
    pub tools: OptionalTools,
    /// The confinement of a model's commands.
    pub sandbox: SandboxSettings,
    /// The Pi endpoint.
    pub pi: ListenerSettings,
    /// The port for all protocols.
    pub http: ListenerSettings,
    /// The notifications of the user.
    pub notify: NotifySettings,
    /// The names of secret variables that sessions of network clients get from the login shell.
    pub login_secrets: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            provider: None,
            model: None,
            providers: BTreeMap::new(),
            prices: Vec::new(),
            approvals: Preset::default(),
            rules: ApprovalRules::default(),
            limits: RunLimits::default(),
            tools: OptionalTools::default(),
            sandbox: SandboxSettings::default(),
            pi: ListenerSettings::closed(PI_PORT),
            http: ListenerSettings::closed(HTTP_PORT),
            notify: NotifySettings::default(),
            login_secrets: Vec::new(),
        }
    }
}

/// The provider that is used when none is configured.
pub const NO_MODEL: &str = "playbook";

impl Settings {
    /// Returns the provider and model of a session, given the ones it requests.
    ///
    /// The default model belongs to the default provider: a session that requests another provider gets that
    /// provider's model.
    pub fn select_model(&self, provider: Option<&str>, model: Option<&str>) -> ModelSelection {
        let default = self.provider.as_deref();
        let provider = provider.or(default).unwrap_or(NO_MODEL);
        let fitting = self.model.as_ref().filter(|_| default.is_none_or(|default| default == provider));
        let own = self.providers.get(provider).and_then(|provider| provider.model.as_ref());
        let model = model.or(fitting.map(String::as_str)).or(own.map(String::as_str));
        ModelSelection { provider: provider.to_owned(), model: model.map(str::to_owned) }
    }

    /// Returns the price of a model, if it is known.
    pub fn price(&self, model: &str) -> Option<&Price> {
        self.prices.iter().find(|price| price.model == model)
    }
}

/// The provider and model of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSelection {
    /// The provider.
    pub provider: String,
    /// Its model; `None` leaves the choice to the provider.
    pub model: Option<String>,
}

/// The settings of one provider.
#[derive(Clone, PartialEq, Eq)]
pub struct ProviderSettings {
    /// Its API.
    pub kind: ProviderKind,
    /// Its base URL, if it is not the default of its kind.
    pub base_url: Option<String>,
    /// Its default model.
    pub model: Option<String>,
    /// Headers of each request; credentials are refused here.
    pub headers: BTreeMap<String, String>,
    /// The size of its models' context window, in tokens.
    pub context_window: Option<u32>,
    /// How much its models think before they answer.
    pub thinking: ThinkingLevel,
}

impl ProviderSettings {
    /// Returns the default settings for a kind of provider.
    pub const fn new(kind: ProviderKind) -> Self {
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
    // A header value may be a secret in spite of the check, so only names are shown.
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

/// Returns the variable that holds a provider's base URL: the one of its kind if it is the built-in provider of a kind.
pub fn base_url_variable(provider: &str, kinds: &[ProviderKind]) -> String {
    match ProviderKind::find(kinds, provider).and_then(|kind| kind.base_url_variable) {
        Some(variable) => variable.to_owned(),
        None => format!("{}_BASE_URL", variable_prefix(provider)),
    }
}

/// Returns the variable that holds a provider's key.
pub fn key_variable(provider: &str) -> String {
    format!("{}_API_KEY", variable_prefix(provider))
}

fn variable_prefix(provider: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
    provider.chars().map(letter).collect()
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// Every value with its name in the file.
            pub const ALL: &[(&str, Self)] = &[$(($word, Self::$variant)),+];

            /// Returns the name in the file.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// Parses a name.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
            }
        }
    };
}

/// The API of a provider, as far as the configuration depends on it.
///
/// The providers define their kinds, and whoever reads a configuration passes the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderKind {
    /// The name in the file, which is also the name of the built-in provider.
    pub name: &'static str,
    /// The variable of the built-in provider's base URL, if it is not `NAME_BASE_URL`.
    pub base_url_variable: Option<&'static str>,
    /// The context window that is assumed when none is configured, in tokens.
    pub default_context_window: u32,
}

impl ProviderKind {
    /// Returns the kind with this name.
    pub fn find(kinds: &[Self], name: &str) -> Option<Self> {
        kinds.iter().find(|kind| kind.name == name).copied()
    }
}

/// The kinds of the built-in providers, for the tests of the configuration.
#[cfg(test)]
pub(crate) static TEST_KINDS: std::sync::LazyLock<Vec<ProviderKind>> =
    std::sync::LazyLock::new(|| crate::provider::dialect::kinds(crate::provider::dialect::BUILT_IN));

words! {
    /// How much a model thinks before it answers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    ThinkingLevel {
        /// The default of the model.
        #[default]
        Usual = "usual",
        /// No thinking.
        Off = "off",
        /// Little thinking.
        Low = "low",
        /// Medium thinking.
        Medium = "medium",
        /// Much thinking.
        High = "high",
    }
}

words! {
    /// When a call needs an approval; ordered from strict to lenient.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    Preset {
        /// Everything except reading needs an approval.
        Strict = "strict",
        /// Calls that stay in the workspace need no approval if a sandbox confines them.
        #[default]
        Standard = "standard",
        /// Only critical calls need an approval.
        Trusted = "trusted",
    }
}

/// The approval rules, by author.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApprovalRules {
    /// The user's rules.
    pub user: Vec<Rule>,
    /// The rules of projects, which ask or deny but never allow.
    pub projects: Vec<Rule>,
}

/// The limits of a run; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunLimits {
    /// The maximum number of model turns.
    pub max_turns: Option<u32>,
    /// The maximum number of input and output tokens.
    pub max_tokens: Option<u64>,
    /// The maximum cost, in millionths of a US dollar.
    pub max_cost_micro_usd: Option<u64>,
    /// The maximum cost of all runs of a local day, in millionths of a US dollar.
    pub max_daily_cost_micro_usd: Option<u64>,
    /// The share of the context window at which the history is compacted, in thousandths.
    pub compact_at_permille: u16,
}

/// The default maximum number of turns, so that a model in a loop does not run forever.
pub const DEFAULT_MAX_TURNS: u32 = 200;

impl RunLimits {
    /// Returns the limits with the defaults filled in, so that a project can lower but never raise them.
    #[must_use]
    pub fn with_defaults(self) -> Self {
        Self { max_turns: self.max_turns.or(Some(DEFAULT_MAX_TURNS)), ..self }
    }
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            max_turns: None,
            max_tokens: None,
            max_cost_micro_usd: None,
            max_daily_cost_micro_usd: None,
            compact_at_permille: 800,
        }
    }
}

/// The notifications of the user: shell commands by occasion, and whether the desktop shows them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NotifySettings {
    /// The command for an approval that is wanted.
    pub approval: Option<String>,
    /// The command for a run that has succeeded.
    pub run_complete: Option<String>,
    /// The command for a run that has failed or was denied.
    pub run_failed: Option<String>,
    /// Whether the desktop shows them.
    pub desktop: Switch,
}

/// The tools that are not always offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OptionalTools {
    /// The tool that fetches from the network.
    pub fetch: Switch,
}

/// A boolean setting; ordered from strict to lenient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Switch {
    /// Disabled.
    #[default]
    Off,
    /// Enabled.
    On,
}

/// The price of a model, in millionths of a US dollar for a million tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Price {
    /// The model, as its provider calls it.
    pub model: String,
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from the cache.
    pub cache_read: u64,
    /// Input tokens written to the cache.
    pub cache_write: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explicit_choice_overrides_the_default_and_a_model_stays_with_its_provider() {
        let mut settings = Settings { provider: Some("ollama".into()), ..Settings::default() };
        settings.model = Some("qwen".into());
        let openai = ProviderSettings { model: Some("gpt".into()), ..ProviderSettings::new(TEST_KINDS[1]) };
        settings.providers.insert("openai".into(), openai);
        for (provider, model, chosen) in [
            (None, None, ("ollama", Some("qwen"))),
            (None, Some("llama"), ("ollama", Some("llama"))),
            (Some("openai"), None, ("openai", Some("gpt"))),
            (Some("openai"), Some("o"), ("openai", Some("o"))),
            (Some("anthropic"), None, ("anthropic", None)),
        ] {
            let choice = settings.select_model(provider, model);
            assert_eq!((choice.provider.as_str(), choice.model.as_deref()), chosen);
        }
        settings.provider = None;
        assert_eq!(settings.select_model(Some("openai"), None).model.as_deref(), Some("qwen"));
    }

    #[test]
    fn without_any_choice_the_playbook_answers() {
        let choice = Settings::default().select_model(None, None);
        assert_eq!((choice.provider.as_str(), choice.model), ("playbook", None));
    }

    #[test]
    fn every_enum_word_round_trips() {
        for (word, preset) in Preset::ALL {
            assert_eq!((Preset::parse(word), preset.word()), (Some(*preset), *word));
        }
        for (word, level) in ThinkingLevel::ALL {
            assert_eq!((ThinkingLevel::parse(word), level.word()), (Some(*level), *word));
        }
        assert_eq!(ProviderKind::find(&TEST_KINDS, "OpenAI"), None);
        assert!(Preset::Strict < Preset::Standard && Preset::Standard < Preset::Trusted);
    }

    #[test]
    fn headers_are_not_shown() {
        let mut provider = ProviderSettings::new(TEST_KINDS[1]);
        provider.headers.insert("X-Title".into(), "hunter2".into());
        let shown = format!("{provider:?}");
        assert!(shown.contains("X-Title") && !shown.contains("hunter2"), "{shown}");
    }
}
