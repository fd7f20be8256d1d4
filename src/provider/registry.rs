//! The registry of models: provider settings, a shared HTTP client, and one circuit breaker for each server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::header::{HeaderName, HeaderValue};

use super::breaker;
use super::circuit::{Circuit, RunAdmission, Starter};
use super::dialect::{self, BUILT_IN, Dialect, Dialects};
use super::endpoint::Endpoint;
use super::error::{ModelError, ModelErrorKind};
use super::http::{HttpClient, read_body};
use super::keys::{Key, KeySource, KeyStore, Keyring, KeyringUse, ResolvedKey};
use super::limits::Limits;
use super::model::{Request, Thinking};
use super::playbook;
use super::retry::RetryPolicy;
use super::target::Target;
use super::turn_stream::TurnStream;
use super::window::WindowCache;
use crate::config::settings;
pub use crate::config::settings::key_variable;

/// The client's environment variables, including keys and base URLs.
pub type Environment = BTreeMap<String, String>;

/// The settings of one provider.
#[derive(Clone)]
pub struct Settings {
    /// The wire protocol of its server.
    pub dialect: &'static dyn Dialect,
    /// The base URL, if not the default; the client's environment takes precedence.
    pub base_url: Option<String>,
    /// Additional headers of every request; never displayed, because they may hold secrets.
    pub headers: Vec<(String, String)>,
    /// The model for sessions that name none.
    pub model: Option<String>,
    /// The context window in tokens, if not the default; Ollama is asked to allocate a context of this size.
    pub context_tokens: Option<u32>,
    /// The thinking level of its models.
    pub thinking: Thinking,
}

impl Settings {
    /// Creates settings with the defaults of a dialect.
    pub const fn new(dialect: &'static dyn Dialect) -> Self {
        Self {
            dialect,
            base_url: None,
            headers: Vec::new(),
            model: None,
            context_tokens: None,
            thinking: Thinking::ServerDefault,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Settings")
            .field("dialect", &self.dialect.name())
            .field("base_url", &self.base_url)
            .field("headers", &headers)
            .field("model", &self.model)
            .field("context_tokens", &self.context_tokens)
            .field("thinking", &self.thinking)
            .finish()
    }
}

/// The registry of the models that sessions may use.
#[derive(Debug)]
pub struct ModelRegistry {
    dialects: Dialects,
    settings: BTreeMap<String, Settings>,
    keys: KeyStore,
    limits: Limits,
    client: Arc<HttpClient>,
    circuits: Arc<Circuits>,
    window_cache: Arc<WindowCache>,
}

/// The circuit breakers of all servers, by origin (scheme, host and port).
type Circuits = Mutex<BTreeMap<String, Server>>;

/// A server, whatever its names in the settings.
#[derive(Debug)]
struct Server {
    circuit: Arc<Circuit>,
    /// The providers that use it, with their base URLs.
    providers: BTreeSet<(String, String)>,
}

/// The status of the circuit breaker of one provider's server, for metrics; providers with the same server share
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CircuitReport {
    /// The provider.
    pub provider: String,
    /// Its base URL.
    pub base_url: String,
    /// The state of the breaker.
    pub state: breaker::BreakerState,
    /// The counters of the breaker.
    pub counts: breaker::Counts,
}

impl ModelRegistry {
    /// Creates a registry of the built-in and the given providers; keys are stored in `folder`.
    pub fn new(settings: BTreeMap<String, Settings>, folder: PathBuf, keyring: Keyring, limits: Limits) -> Self {
        Self::with_keys(BUILT_IN, settings, KeyStore::new(folder, keyring), limits)
    }

    /// Creates a registry of one provider for each dialect and the given providers, with this key store.
    pub(super) fn with_keys(
        dialects: Dialects,
        settings: BTreeMap<String, Settings>,
        keys: KeyStore,
        limits: Limits,
    ) -> Self {
        let client = Arc::new(HttpClient::new(limits.connect_timeout));
        let (circuits, window_cache) = (Arc::default(), Arc::default());
        Self { dialects, settings: with_built_in(dialects, settings), keys, limits, client, circuits, window_cache }
    }

    /// Creates a registry with other settings that keeps the connections and the circuit breakers of known servers.
    pub(super) fn with_settings(&self, settings: BTreeMap<String, Settings>) -> Self {
        Self {
            dialects: self.dialects,
            settings: with_built_in(self.dialects, settings),
            keys: self.keys.clone(),
            limits: self.limits,
            client: Arc::clone(&self.client),
            circuits: Arc::clone(&self.circuits),
            window_cache: Arc::clone(&self.window_cache),
        }
    }

    /// Resolves a provider and a model with the session's own environment.
    ///
    /// `model` is the choice of the session; without it the provider's own setting applies.
    pub async fn resolve(
        &self,
        provider: &str,
        model: Option<&str>,
        environment: &Environment,
    ) -> Result<ModelHandle, ModelError> {
        let settings = self.settings(provider)?;
        let target = self.target(provider, settings, environment).await?;
        if let Some(model) = model.or(settings.model.as_deref()).filter(|model| !model.is_empty()) {
            let thinking = settings.thinking;
            return Ok(ModelHandle { target: Arc::new(target), model: model.to_owned(), thinking, run: None });
        }
        let known = match fetch_models(&target).await {
            Ok(models) if !models.is_empty() => format!("; available: {}", abbreviated_list(&models)),
            Ok(_) => "; its server lists no models".to_owned(),
            Err(_) => String::new(),
        };
        let message =
            format!("no model is selected for {provider}: pass --model, set PUSH_MODEL, or run `push config`{known}");
        Err(ModelError::new(ModelErrorKind::NotConfigured, message))
    }

    /// Lists the models of a provider's server; a given base URL or key overrides the configured one.
    pub async fn list_models(
        &self,
        provider: &str,
        base_url: Option<&str>,
        key: Option<&Key>,
        environment: &Environment,
    ) -> Result<Vec<String>, ModelError> {
        let mut environment = environment.clone();
        // Variables take precedence over every other source.
        let overrides = [(self.base_url_variable(provider), base_url), (key_variable(provider), key.map(Key::expose))];
        environment.extend(overrides.into_iter().filter_map(|(name, value)| Some((name, value?.to_owned()))));
        let target = self.target(provider, self.settings(provider)?, &environment).await?;
        fetch_models(&target).await
    }

    /// Returns the source of a provider's key with this environment; `None` if there is no key.
    pub async fn key_source(&self, provider: &str, environment: &Environment) -> Result<Option<KeySource>, ModelError> {
        let endpoint = self.endpoint(provider, self.settings(provider)?, environment)?;
        Ok(self.key(provider, &endpoint, environment).await?.map(|found| found.source))
    }

    /// Returns whether a provider has a valid endpoint and, if its server requires one, a key, without any client's
    /// environment.
    ///
    /// The keyring is not queried, because it may prompt the user.
    pub async fn is_configured(&self, provider: &str) -> bool {
        let nothing = Environment::new();
        let Ok(settings) = self.settings(provider) else { return false };
        let Ok(endpoint) = self.endpoint(provider, settings, &nothing) else { return false };
        let found = self.keys.find(provider, &key_variable(provider), &nothing, KeyringUse::No).await;
        found.is_ok_and(|found| found.is_some() || !endpoint.requires_key())
    }

    /// Returns the names of all providers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.settings.keys().map(String::as_str)
    }

    /// Returns the dialects that providers may have.
    pub(super) const fn dialects(&self) -> Dialects {
        self.dialects
    }

    /// Returns the key store.
    pub const fn keys(&self) -> &KeyStore {
        &self.keys
    }

    /// Returns the breaker state of the server that a provider uses with this environment; `None` before its first
    /// request.
    pub fn circuit_state(&self, provider: &str, environment: &Environment) -> Option<breaker::BreakerState> {
        let endpoint = self.endpoint(provider, self.settings(provider).ok()?, environment).ok()?;
        let circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        Some(circuits.get(&endpoint.origin())?.circuit.snapshot().0)
    }

    /// Returns the status of every circuit breaker.
    pub fn circuits(&self) -> Vec<CircuitReport> {
        let circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        let reports = circuits.values().flat_map(|server| {
            let (state, counts) = server.circuit.snapshot();
            server.providers.iter().map(move |(provider, base_url)| CircuitReport {
                provider: provider.clone(),
                base_url: base_url.clone(),
                state,
                counts,
            })
        });
        reports.collect()
    }

    pub(super) fn settings(&self, provider: &str) -> Result<&Settings, ModelError> {
        self.settings.get(provider).ok_or_else(|| {
            let known: Vec<&str> = self.names().collect();
            let known = known.join(", ");
            let message = if provider == playbook::NAME {
                format!("the provider {provider:?} has no model; providers with models: {known}")
            } else {
                format!("there is no provider {provider:?}; known are {known}")
            };
            ModelError::new(ModelErrorKind::NotConfigured, message)
        })
    }

    pub(super) async fn target(
        &self,
        provider: &str,
        settings: &Settings,
        environment: &Environment,
    ) -> Result<Target, ModelError> {
        let endpoint = self.endpoint(provider, settings, environment)?;
        let help = key_help(provider);
        let key = self.key(provider, &endpoint, environment).await?;
        if key.is_none() && endpoint.requires_key() {
            let message = format!("{provider} has no key: {help}");
            return Err(ModelError::new(ModelErrorKind::NotConfigured, message));
        }
        Ok(Target {
            name: provider.to_owned(),
            dialect: settings.dialect,
            headers: parse_headers(provider, &settings.headers)?,
            key,
            key_help: help,
            context_tokens: settings.context_tokens.unwrap_or(settings.dialect.kind().default_context_window),
            context_tokens_set: settings.context_tokens.is_some(),
            window_cache: Arc::clone(&self.window_cache),
            limits: self.limits,
            client: Arc::clone(&self.client),
            circuit: self.circuit(provider, &endpoint),
            endpoint,
        })
    }

    async fn key(
        &self,
        provider: &str,
        endpoint: &Endpoint,
        environment: &Environment,
    ) -> Result<Option<ResolvedKey>, ModelError> {
        // A loopback server rarely requires a key, and a keyring is slow to answer.
        let keyring = if endpoint.is_loopback() { KeyringUse::No } else { KeyringUse::Yes };
        let found = self.keys.find(provider, &key_variable(provider), environment, keyring).await;
        found.map_err(|error| {
            let message = format!("cannot look up the key for {provider}: {error}");
            ModelError::new(ModelErrorKind::NotConfigured, message)
        })
    }

    fn base_url_variable(&self, provider: &str) -> String {
        settings::base_url_variable(provider, &dialect::kinds(self.dialects))
    }

    fn endpoint(&self, provider: &str, settings: &Settings, environment: &Environment) -> Result<Endpoint, ModelError> {
        let variable = self.base_url_variable(provider);
        let (source, written) = match (environment.get(&variable), &settings.base_url) {
            (Some(written), _) if !written.trim().is_empty() => (variable, written),
            (_, Some(written)) => (format!("the base URL of {provider}"), written),
            (_, None) => return Ok(Endpoint::default_for(settings.dialect)),
        };
        Endpoint::parse(settings.dialect, written).map_err(|reason| {
            ModelError::new(ModelErrorKind::NotConfigured, format!("{source} cannot be used: {reason}"))
        })
    }

    fn circuit(&self, provider: &str, endpoint: &Endpoint) -> Arc<Circuit> {
        let mut circuits = self.circuits.lock().unwrap_or_else(PoisonError::into_inner);
        if circuits.values().map(|server| server.providers.len()).sum::<usize>() >= MAX_CIRCUITS {
            // Endpoints come from clients, so their number is unbounded: evict closed breakers that are not in use.
            circuits.retain(|_, server| {
                Arc::strong_count(&server.circuit) > 1 || server.circuit.snapshot().0 != breaker::BreakerState::Closed
            });
        }
        let server = circuits.entry(endpoint.origin()).or_insert_with(|| Server {
            circuit: Arc::new(Circuit::new(self.limits.breaker)),
            providers: BTreeSet::new(),
        });
        server.providers.insert((provider.to_owned(), endpoint.base_url.clone()));
        Arc::clone(&server.circuit)
    }
}

/// A handle to a model of a resolved provider.
#[derive(Debug, Clone)]
pub struct ModelHandle {
    target: Arc<Target>,
    model: String,
    thinking: Thinking,
    /// The run that uses it; without one, every request counts as a run started by a program.
    run: Option<Arc<RunAdmission>>,
}

impl ModelHandle {
    /// Makes requests on behalf of a run: the circuit breaker counts all of them as one.
    #[must_use]
    pub fn for_run(self, run: Arc<RunAdmission>) -> Self {
        Self { run: Some(run), ..self }
    }

    /// Starts one turn; [`Request::model`] names the model, normally [`ModelHandle::model`].
    ///
    /// Nothing is sent before the stream is polled.
    pub fn start_turn(&self, request: &Request) -> TurnStream {
        self.start_turn_with(request, self.target.limits.retry)
    }

    /// Starts one turn like [`ModelHandle::start_turn`], without retries.
    pub fn start_turn_without_retry(&self, request: &Request) -> TurnStream {
        self.start_turn_with(request, RetryPolicy { attempts: 1, ..self.target.limits.retry })
    }

    fn start_turn_with(&self, request: &Request, policy: RetryPolicy) -> TurnStream {
        let run = self.run.clone().unwrap_or_else(|| Arc::new(RunAdmission::new(Starter::Program)));
        TurnStream::new(Arc::clone(&self.target), request, policy, run)
    }

    /// Returns the selected model.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Returns the size of the model's context window in tokens, as far as it is known.
    pub fn window(&self) -> u32 {
        self.target.window(&self.model)
    }

    /// Queries the server for the context window, unless the cached value is recent.
    pub async fn look_up_window(&self) {
        self.target.look_up_window(&self.model).await;
    }

    /// Updates the context window from the error of a conversation that is too long; returns whether the error
    /// names one.
    pub fn learn_window(&self, error: &ModelError) -> bool {
        self.target.learn_window(&self.model, error)
    }

    /// Returns the thinking level.
    pub const fn thinking(&self) -> Thinking {
        self.thinking
    }

    /// Returns the dialect of its server.
    pub fn dialect(&self) -> &'static dyn Dialect {
        self.target.dialect
    }

    /// Returns the provider's name.
    pub fn provider(&self) -> &str {
        &self.target.name
    }

    /// Returns the key in use, so that it can be redacted.
    pub fn secret(&self) -> Option<&str> {
        self.target.key.as_ref().map(|found| found.key.expose())
    }

    /// Returns the base URL of its server.
    pub fn base_url(&self) -> &str {
        &self.target.endpoint.base_url
    }
}

fn with_built_in(dialects: Dialects, settings: BTreeMap<String, Settings>) -> BTreeMap<String, Settings> {
    let usual = dialects.iter().map(|dialect| (dialect.name().to_owned(), Settings::new(*dialect)));
    usual.chain(settings).collect()
}

/// Returns the variable that holds the base URL of a provider.
pub fn base_url_variable(provider: &str) -> String {
    settings::base_url_variable(provider, &dialect::kinds(BUILT_IN))
}

/// Returns instructions for setting a provider's key.
fn key_help(provider: &str) -> String {
    format!("set {} in your shell, or store it with `push config key {provider}`", key_variable(provider))
}

fn parse_headers(provider: &str, written: &[(String, String)]) -> Result<Vec<(HeaderName, HeaderValue)>, ModelError> {
    let unusable = |name: &str| {
        let message = format!("the header {name:?} set for {provider} is not a valid HTTP header");
        ModelError::new(ModelErrorKind::NotConfigured, message)
    };
    let header = |(name, value): &(String, String)| {
        let header = HeaderName::try_from(name).map_err(|_| unusable(name))?;
        let mut value = HeaderValue::try_from(value).map_err(|_| unusable(name))?;
        value.set_sensitive(true);
        Ok((header, value))
    };
    written.iter().map(header).collect()
}

pub(super) async fn fetch_models(target: &Target) -> Result<Vec<String>, ModelError> {
    let body = fetch(target, target.dialect.models_path()).await?;
    target.dialect.parse_models(&body).ok_or_else(|| {
        let base_url = &target.endpoint.base_url;
        let message = format!("{} lists no models; check that {base_url} is its base URL", target.name);
        target.redact(ModelError::invalid_response(message, &body))
    })
}

/// Sends a GET request that involves no model and returns its body.
pub(super) async fn fetch(target: &Target, path: &str) -> Result<Vec<u8>, ModelError> {
    let within = target.limits.lookup_timeout;
    let response = target.client.send(target.request(path, None)?, within).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let body = read_body(response, target.limits.turn.line_bytes, within).await?;
    if status.is_success() { Ok(body) } else { Err(target.error_from_response(status, &headers, &body, "")) }
}

fn abbreviated_list(models: &[String]) -> String {
    let shown: Vec<&str> = models.iter().take(MAX_LISTED_MODELS).map(String::as_str).collect();
    let more = models.len().saturating_sub(MAX_LISTED_MODELS);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

/// How many circuit breakers are held before unused closed ones are evicted.
const MAX_CIRCUITS: usize = 64;
/// How many models a message lists.
const MAX_LISTED_MODELS: usize = 8;
