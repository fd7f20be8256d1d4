//! Sessions and models as clients see them.

use std::sync::Arc;
use std::time::Duration;

use super::{Execution, OperationError, Result};
use crate::config::settings::{Settings, ThinkingLevel};
use crate::kernel::command::{Phase, Snapshot};
use crate::protocol::operation::Thinking;
use crate::protocol::operation_result::{ModelCost, ModelRow, SessionInfo};
use crate::provider::dialect::{self, BUILT_IN};
use crate::provider::playbook;
use crate::runtime::commands::session_view::SessionView;

impl Execution {
    /// Returns a session as clients see it.
    pub(super) fn info(&self, view: &SessionView, snapshot: &Snapshot) -> SessionInfo {
        SessionInfo {
            session: view.session().clone(),
            name: snapshot.name.clone(),
            file: self.file_of(view.session(), snapshot),
            model: self.session_model(snapshot),
            thinking: self.thinking(snapshot),
            streaming: matches!(snapshot.phase, Phase::Running | Phase::Waiting),
            message_count: view.read(|projection| projection.message_count()),
            created_at: snapshot.opened_at,
        }
    }

    /// Returns the model of a session; `None` if its provider has none.
    pub(super) fn session_model(&self, snapshot: &Snapshot) -> Option<ModelRow> {
        self.shown_model(snapshot.provider(), snapshot.model()?)
    }

    /// Returns the row of a model, whether or not it can be used.
    pub(super) fn shown_model(&self, provider: &str, model: &str) -> Option<ModelRow> {
        self.settings().ok().map(|settings| shown_model(&settings, provider, model))
    }

    /// Returns the thinking level of a session: its own, or the configured one.
    pub(super) fn thinking(&self, snapshot: &Snapshot) -> Thinking {
        let settings = self.settings().ok();
        thinking_level(settings.as_deref(), snapshot.provider(), snapshot.adjusted.thinking.as_deref())
    }

    /// Returns a model that a session may switch to.
    pub(super) fn model_row(&self, provider: &str, model: &str) -> Result<ModelRow> {
        let settings = self.settings()?;
        let known = self.service.server().hub().services().model_config.registry(&settings);
        if !known.names().any(|name| name == provider) {
            return Err(OperationError::UnknownModel { provider: provider.to_owned(), model: model.to_owned() });
        }
        Ok(shown_model(&settings, provider, model))
    }

    /// Returns every model that can be used: those that servers list, and the configured ones.
    ///
    /// A server that does not respond in time contributes only its configured models.
    pub(super) async fn model_rows(&self) -> Result<Vec<ModelRow>> {
        let settings = self.settings()?;
        let models = self.service.server().hub().services().model_config.registry(&settings);
        let nothing = std::collections::BTreeMap::new();
        let environment = self.service.environment(&self.peer).await;
        let environment = environment.as_ref().map_or(&nothing, |environment| environment.variables());
        let mut rows = Vec::new();
        for provider in models.names() {
            let listed =
                tokio::time::timeout(LIST_TIMEOUT, models.list_models(provider, None, None, environment)).await;
            let mut names = listed.ok().and_then(std::result::Result::ok).unwrap_or_default();
            names.extend(settings.select_model(Some(provider), None).model.filter(|model| !names.contains(model)));
            names.sort();
            rows.extend(names.iter().take(MAX_MODELS).map(|name| shown_model(&settings, provider, name)));
        }
        Ok(rows)
    }

    pub(super) fn settings(&self) -> Result<Arc<Settings>> {
        let settings = self.service.server().hub().services().model_config.settings();
        settings.map_err(|error| OperationError::message(format!("the configuration cannot be used: {error}")))
    }
}

/// How long a server may take to list its models.
const LIST_TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum number of listed models of one provider.
const MAX_MODELS: usize = 500;

/// Returns the row of a model.
pub(in crate::runtime::commands) fn shown_model(settings: &Settings, provider: &str, model: &str) -> ModelRow {
    let set = settings.providers.get(provider);
    let kind = set.map(|set| set.kind).or_else(|| Some(dialect::find(BUILT_IN, provider)?.kind()));
    let usual = kind.map_or(0, |kind| u64::from(kind.default_context_window));
    let price = settings.price(model);
    let dollars = |micro: u64| micro as f64 / 1_000_000.0;
    ModelRow {
        id: model.to_owned(),
        name: model.to_owned(),
        provider: provider.to_owned(),
        provider_kind: kind.map_or(playbook::NAME, |kind| kind.name).to_owned(),
        base_url: set.and_then(|set| set.base_url.clone()).unwrap_or_default(),
        reasoning: kind.is_some(),
        sees_images: kind.is_some(),
        context_window: set.and_then(|set| set.context_window).map_or(usual, u64::from),
        max_tokens: usual,
        cost: price.map_or_else(ModelCost::default, |price| ModelCost {
            input: dollars(price.input),
            output: dollars(price.output),
            cache_read: dollars(price.cache_read),
            cache_write: dollars(price.cache_write),
        }),
    }
}

/// Returns the thinking level of a session: its own, or the configured one.
pub(in crate::runtime::commands) fn thinking_level(
    settings: Option<&Settings>,
    provider: &str,
    chosen: Option<&str>,
) -> Thinking {
    let configured = || Some(level(settings?.providers.get(provider)?.thinking));
    chosen.and_then(Thinking::parse).or_else(configured).unwrap_or(Thinking::Off)
}

const fn level(level: ThinkingLevel) -> Thinking {
    match level {
        ThinkingLevel::Usual | ThinkingLevel::Off => Thinking::Off,
        ThinkingLevel::Low => Thinking::Low,
        ThinkingLevel::Medium => Thinking::Medium,
        ThinkingLevel::High => Thinking::High,
    }
}
