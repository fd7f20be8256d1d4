//! The models that sessions may ask: settings of providers, connections for all of them, one circuit breaker a server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;

use super::answering::Answering;
use super::breaker;
use super::circuit::{Circuit, RunAdmission, Starter};
use super::dialect::Dialect;
use super::error::{Kind, ModelError};
use super::http::{Client, read_body};
use super::keys::{AskKeyring, Found, Key, Keyring, Keys, Source};
use super::limits::Limits;
use super::model::{Request, Thinking};
use super::place::Place;
use super::retry::Policy;
use super::target::Target;
use super::window::Windows;
pub use crate::config::settings::{key_variable, place_variable};

/// The variables of the client's environment; keys and places among them.
pub type Environment = BTreeMap<String, String>;

/// What is set about one provider.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// What its server speaks.
    pub dialect: Dialect,
    /// Where it is, if not at the usual place; the client's environment comes before it.
    pub base_url: Option<String>,
    /// What is sent with every request besides; never shown, as it may hold secrets.
    pub headers: Vec<(String, String)>,
    /// The model that is asked when a session names none.
    pub model: Option<String>,
    /// How many tokens its models take in all, if not what is usual; Ollama is told to make its context so large.
    pub context_tokens: Option<u32>,
    /// How much its models are to think.
    pub thinking: Thinking,
}

impl Settings {
    /// Sets nothing but what the server speaks.
    pub const fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            base_url: None,
            headers: Vec::new(),
            model: None,
            context_tokens: None,
            thinking: Thinking::Usual,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Settings")
            .field("dialect", &self.dialect)
            .field("base_url", &self.base_url)
            .field("headers", &headers)
            .field("model", &self.model)
            .field("context_tokens", &self.context_tokens)
            .field("thinking", &self.thinking)
            .finish()
    }
}

/// The models that sessions may ask.
#[derive(Debug)]
pub struct Models {
    settings: BTreeMap<String, Settings>,
    keys: Keys,
    limits: Limits,
    client: Arc<Client>,
    circuits: Arc<Circuits>,
    windows: Arc<Windows>,
}

/// The breakers of all servers, by scheme, host and port.
type Circuits = Mutex<BTreeMap<String, Server>>;

/// A server that is asked, whatever it is called in the settings.
#[derive(Debug)]
struct Server {
    circuit: Arc<Circuit>,
    /// The providers that ask it, with the base URLs that they use.
    providers: BTreeSet<(String, String)>,
}

/// What is known of the circuit breaker of one provider's server, for metrics; providers of one server share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CircuitReport {
    /// The provider.
    pub provider: String,
    /// Its base URL.
    pub base_url: String,
    /// What the breaker does with questions.
    pub state: breaker::State,
    /// What it has counted.
    pub counts: breaker::Counts,
}

/// An Ollama that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningOllama {
    /// Where.
    pub base_url: String,
    /// Which version it says it is.
    pub version: String,
    /// The models it has.
    pub models: Vec<String>,
}

impl Models {
    /// Knows the three usual providers and those that are set; keys are kept in `folder`.
    pub fn new(
        settings: BTreeMap<String, Settings>,
        folder: PathBuf,
        keyring: Keyring,
        limits: Limits,
    ) -> Self {
        Self::with_keys(settings, Keys::new(folder, keyring), limits)
    }

    /// Knows the three usual providers and those that are set, with keys from these places.
    pub(super) fn with_keys(settings: BTreeMap<String, Settings>, keys: Keys, limits: Limits) -> Self {
        let client = Arc::new(Client::new(limits.connect));
        let (circuits, windows) = (Arc::default(), Arc::default());
        Self { settings: with_usual(settings), keys, limits, client, circuits, windows }
    }

    /// Knows other settings, and keeps the connections and the circuit breakers of servers that are known.
    pub(super) fn with_settings(&self, settings: BTreeMap<String, Settings>) -> Self {
        Self {
            settings: with_usual(settings),
            keys: self.keys.clone(),
            limits: self.limits,
            client: Arc::clone(&self.client),
            circuits: Arc::clone(&self.circuits),
            windows: Arc::clone(&self.windows),
        }
    }

    /// Makes a provider ready to be asked, with the session's own environment.
    ///
    /// `model` is what the session chose; without, the provider's own setting holds.
    pub async fn resolve(
        &self,
        provider: &str,
        model: Option<&str>,
        environment: &Environment,
    ) -> Result<Ready, ModelError> {
        let settings = self.settings(provider)?;
        let target = self.target(provider, settings, environment).await?;
        if let Some(model) = model.or(settings.model.as_deref()).filter(|model| !model.is_empty()) {
            let thinking = settings.thinking;
            return Ok(Ready { target: Arc::new(target), model: model.to_owned(), thinking, run: None });
        }
        let known = match list(&target).await {
            Ok(models) if !models.is_empty() => format!("; it has {}", some_of(&models)),
            Ok(_) => "; it has none yet".to_owned(),
            Err(_) => String::new(),
        };
        let message = format!(
            "no model of {provider} is chosen: name one with --model, set PUSH_MODEL, or use `push config`{known}"
        );
        Err(ModelError::new(Kind::NotConfigured, message))
    }

    /// Lists the models that a provider's server has, asked at this place and with this key where they are given.
    pub async fn list(
        &self,
        provider: &str,
        base_url: Option<&str>,
        key: Option<&Key>,
        environment: &Environment,
    ) -> Result<Vec<String>, ModelError> {
        let mut environment = environment.clone();
        // Nothing comes before a variable.
        let said = [(place_variable(provider), base_url), (key_variable(provider), key.map(Key::expose))];
        environment.extend(said.into_iter().filter_map(|(name, value)| Some((name, value?.to_owned()))));
        let target = self.target(provider, self.settings(provider)?, &environment).await?;
        list(&target).await
    }

    /// Looks whether an Ollama runs, where the environment says or at the usual place.
    pub async fn find_ollama(&self, environment: &Environment) -> Option<RunningOllama> {
        let name = Dialect::Ollama.name();
        let settings = self.settings(name).ok()?;
        let target = self.target(name, settings, environment).await.ok()?;
        let version = ask(&target, "/api/version").await.ok()?;
        let version: Value = serde_json::from_slice(&version).ok()?;
        let version = version.get("version")?.as_str()?.to_owned();
        let models = list(&target).await.unwrap_or_default();
        Some(RunningOllama { base_url: target.place.base, version, models })
    }

    /// Returns where a provider's key comes from with this environment; none where it has none.
    pub async fn key_source(
        &self,
        provider: &str,
        environment: &Environment,
    ) -> Result<Option<Source>, ModelError> {
        let place = place(provider, self.settings(provider)?, environment)?;
        Ok(self.key(provider, &place, environment).await?.map(|found| found.source))
    }

    /// Tells whether a provider's server has a place and, where it wants one, a key, without anybody's environment.
    ///
    /// The keyring is not asked, as it may have to ask its user.
    pub async fn can_be_asked(&self, provider: &str) -> bool {
        let nothing = Environment::new();
        let Ok(settings) = self.settings(provider) else { return false };
        let Ok(place) = place(provider, settings, &nothing) else { return false };
        let found = self.keys.find(provider, &key_variable(provider), &nothing, AskKeyring::No).await;
        found.is_ok_and(|found| found.is_some() || !place.wants_key())
    }

    /// Returns the names of all providers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.settings.keys().map(String::as_str)
    }

    /// Returns where keys are kept.
    pub const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Returns what the breaker does of the server that a provider has with this environment, if it was ever asked.
    pub fn circuit_state(&self, provider: &str, environment: &Environment) -> Option<breaker::State> {
        let place = place(provider, self.settings(provider).ok()?, environment).ok()?;
        let circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        Some(circuits.get(&place.server())?.circuit.look().0)
    }

    /// Returns what is known of every server's circuit breaker.
    pub fn circuits(&self) -> Vec<CircuitReport> {
        let circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        let reports = circuits.values().flat_map(|server| {
            let (state, counts) = server.circuit.look();
            server.providers.iter().map(move |(provider, base_url)| CircuitReport {
                provider: provider.clone(),
                base_url: base_url.clone(),
                state,
                counts,
            })
        });
        reports.collect()
    }

    fn settings(&self, provider: &str) -> Result<&Settings, ModelError> {
        self.settings.get(provider).ok_or_else(|| {
            let known: Vec<&str> = self.names().collect();
            let message = format!("there is no provider {provider:?}; known are {}", known.join(", "));
            ModelError::new(Kind::NotConfigured, message)
        })
    }

    async fn target(
        &self,
        provider: &str,
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Target, ModelError> {
        let place = place(provider, settings, environment)?;
        let advice = advice(provider);
        let key = self.key(provider, &place, environment).await?;
        if key.is_none() && place.wants_key() {
            let message = format!("{provider} has no key: {advice}");
            return Err(ModelError::new(Kind::NotConfigured, message));
        }
        Ok(Target {
            name: provider.to_owned(),
            dialect: settings.dialect,
            headers: headers(provider, &settings.headers)?,
            key,
            key_advice: advice,
            context_tokens: settings.context_tokens.unwrap_or(settings.dialect.kind().usual_window()),
            context_set: settings.context_tokens.is_some(),
            windows: Arc::clone(&self.windows),
            limits: self.limits,
            client: Arc::clone(&self.client),
            circuit: self.circuit(provider, &place),
            place,
        })
    }

    async fn key(
        &self,
        provider: &str,
        place: &Place,
        environment: &Environment,
    ) -> Result<Option<Found>, ModelError> {
        // A server on this machine rarely wants a key, and a keyring takes its time to answer.
        let keyring = if place.is_here() { AskKeyring::No } else { AskKeyring::Yes };
        let found = self.keys.find(provider, &key_variable(provider), environment, keyring).await;
        found.map_err(|error| {
            let message = format!("the key of {provider} cannot be looked up: {error}");
            ModelError::new(Kind::NotConfigured, message)
        })
    }

    fn circuit(&self, provider: &str, place: &Place) -> Arc<Circuit> {
        let mut circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        if circuits.values().map(|server| server.providers.len()).sum::<usize>() >= CIRCUITS {
            // Places come from clients, who may name any number of them.
            circuits.retain(|_, server| {
                Arc::strong_count(&server.circuit) > 1 || server.circuit.look().0 != breaker::State::Closed
            });
        }
        let server = circuits.entry(place.server()).or_insert_with(|| Server {
            circuit: Arc::new(Circuit::new(self.limits.breaker)),
            providers: BTreeSet::new(),
        });
        server.providers.insert((provider.to_owned(), place.base.clone()));
        Arc::clone(&server.circuit)
    }
}

/// A provider that can be asked.
#[derive(Debug, Clone)]
pub struct Ready {
    target: Arc<Target>,
    model: String,
    thinking: Thinking,
    /// The run that asks; without, every question is a run of a program.
    run: Option<Arc<RunAdmission>>,
}

impl Ready {
    /// Asks on behalf of a run: all its questions are one to the circuit breaker.
    #[must_use]
    pub fn for_run(self, run: Arc<RunAdmission>) -> Self {
        Self { run: Some(run), ..self }
    }

    /// Asks for one turn; [`Request::model`] names the model, mostly [`Ready::model`].
    ///
    /// Nothing is sent before the first pieces are waited for.
    pub fn ask(&self, request: &Request) -> Answering {
        self.ask_with(request, self.target.limits.retry)
    }

    /// Asks for one turn like [`Ready::ask`], and not again whatever goes wrong.
    pub fn ask_once(&self, request: &Request) -> Answering {
        self.ask_with(request, Policy { attempts: 1, ..self.target.limits.retry })
    }

    fn ask_with(&self, request: &Request, policy: Policy) -> Answering {
        let run = self.run.clone().unwrap_or_else(|| Arc::new(RunAdmission::new(Starter::Program)));
        Answering::new(Arc::clone(&self.target), request, policy, run)
    }

    /// Returns the model that was chosen.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns how many tokens the model takes in all, as far as that is known.
    pub fn window(&self) -> u32 {
        self.target.window(&self.model)
    }

    /// Asks the server how many tokens the model takes, unless that was done lately.
    pub async fn look_up_window(&self) {
        self.target.look_up_window(&self.model).await;
    }

    /// Learns how many tokens the model takes from the refusal of a conversation; tells whether it says so.
    pub fn learn_window(&self, error: &ModelError) -> bool {
        self.target.learn_window(&self.model, error)
    }

    /// Returns how much the model is to think.
    pub const fn thinking(&self) -> Thinking {
        self.thinking
    }

    /// Returns the provider's name.
    pub fn provider(&self) -> &str {
        &self.target.name
    }

    /// Returns the key that is used, for whoever is to hide it.
    pub fn secret(&self) -> Option<&str> {
        self.target.key.as_ref().map(|found| found.key.expose())
    }

    /// Returns where its server is.
    pub fn base_url(&self) -> &str {
        &self.target.place.base
    }
}

fn with_usual(settings: BTreeMap<String, Settings>) -> BTreeMap<String, Settings> {
    let usual = Dialect::ALL.map(|dialect| (dialect.name().to_owned(), Settings::new(dialect)));
    usual.into_iter().chain(settings).collect()
}

/// Says how a provider's key is set.
fn advice(provider: &str) -> String {
    format!("set {} in your shell, or store it with `push config key {provider}`", key_variable(provider))
}

fn place(provider: &str, settings: &Settings, environment: &Environment) -> Result<Place, ModelError> {
    let variable = place_variable(provider);
    let (source, written) = match (environment.get(&variable), &settings.base_url) {
        (Some(written), _) if !written.trim().is_empty() => (variable, written),
        (_, Some(written)) => (format!("the base URL of {provider}"), written),
        (_, None) => return Ok(Place::usual(settings.dialect)),
    };
    Place::read(settings.dialect, written)
        .map_err(|reason| ModelError::new(Kind::NotConfigured, format!("{source} cannot be used: {reason}")))
}

fn headers(
    provider: &str,
    written: &[(String, String)],
) -> Result<Vec<(HeaderName, HeaderValue)>, ModelError> {
    let unusable = |name: &str| {
        let message = format!("the header {name:?} of {provider} cannot be sent as it is set");
        ModelError::new(Kind::NotConfigured, message)
    };
    let header = |(name, value): &(String, String)| {
        let header = HeaderName::try_from(name).map_err(|_| unusable(name))?;
        let mut value = HeaderValue::try_from(value).map_err(|_| unusable(name))?;
        value.set_sensitive(true);
        Ok((header, value))
    };
    written.iter().map(header).collect()
}

async fn list(target: &Target) -> Result<Vec<String>, ModelError> {
    let body = ask(target, target.dialect.models_path()).await?;
    target.dialect.models(&body).ok_or_else(|| {
        let place = &target.place.base;
        let message = format!("{} gave no list of models; is {place} its base URL?", target.name);
        target.hide(ModelError::garbage(message, &body))
    })
}

/// Asks a question that needs no model.
async fn ask(target: &Target, path: &str) -> Result<Vec<u8>, ModelError> {
    let within = target.limits.lookup;
    let response = target.client.send(target.call(path, None)?, within).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let body = read_body(response, target.limits.turn.line_bytes, within).await?;
    if status.is_success() { Ok(body) } else { Err(target.refusal(status, &headers, &body, "")) }
}

fn some_of(models: &[String]) -> String {
    let shown: Vec<&str> = models.iter().take(SHOWN).map(String::as_str).collect();
    let more = models.len().saturating_sub(SHOWN);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

/// How many servers' breakers are remembered before those that matter least are forgotten.
const CIRCUITS: usize = 64;
/// How many models a sentence names.
const SHOWN: usize = 8;
