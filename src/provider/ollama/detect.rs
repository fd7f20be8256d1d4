//! Detects a running Ollama server, so that set-up and hints can offer its models.

use serde_json::Value;

use super::Ollama;
use crate::provider::dialect::Dialect;
use crate::provider::registry::{Environment, ModelRegistry, fetch, fetch_models};

/// A running Ollama server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningOllama {
    /// The base URL.
    pub base_url: String,
    /// The version that it reports.
    pub version: String,
    /// The models that it lists.
    pub models: Vec<String>,
}

impl ModelRegistry {
    /// Detects a running Ollama server at the configured or the default endpoint.
    pub async fn detect_ollama(&self, environment: &Environment) -> Option<RunningOllama> {
        let name = Ollama.name();
        let settings = self.settings(name).ok()?;
        let target = self.target(name, settings, environment).await.ok()?;
        let version = fetch(&target, "/api/version").await.ok()?;
        let version: Value = serde_json::from_slice(&version).ok()?;
        let version = version.get("version")?.as_str()?.to_owned();
        let models = fetch_models(&target).await.unwrap_or_default();
        Some(RunningOllama { base_url: target.endpoint.base_url, version, models })
    }
}
