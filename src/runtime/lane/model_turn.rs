//! One turn of a model: from the conversation to the requested tool calls.
//!
//! A turn uses journaled data only: the conversation is folded from the session's events, in memory or from the
//! journal, so that a restarted daemon sends the same request. Every result is reported to the session, which stores it before it is published.

mod context_window;
mod instructions;
mod manual_compaction;
mod pricing;
mod response;
mod summary;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use super::call_policy::CallPolicy;
use super::conversation::ConversationSource;
use super::tool_context::ToolContextBuilder;
use super::unredacted::{self, SentValue, SessionSecrets};
use super::user_command::TurnInterrupts;
use crate::agent::price;
use crate::agent::prompt::{self, PromptContext};
use crate::agent::turn_machine::{self, model_failure, success};
use crate::agent::{Context, ExceededLimit, RAISE_BUDGET, grouping, inquiry};
use crate::config::sandbox::SandboxKind;
use crate::kernel::effect::{FinishReport, ModelChoice, Report, TurnRequest};
use crate::kernel::environment::Environment;
use crate::kernel::event::{PendingCall, Purpose, ToolError};
use crate::kernel::gate::{self, BudgetResource};
use crate::kernel::id::SessionId;
use crate::provider::error::ModelError;
use crate::provider::model::{Request, Thinking, ToolSpec};
use crate::provider::registry::ModelHandle;
use crate::provider::{Question, ReportSender, RunAdmission, SessionClosed};
use crate::runtime::model_config::RunConfig;
use crate::runtime::services::Services;
use crate::tools::{self, AnyTool, ToolContext, ToolErrorKind};
pub(super) use manual_compaction::compact;

/// The input of a model turn.
pub(super) struct ModelTurnInput {
    pub(super) services: Arc<Services>,
    pub(super) session: SessionId,
    /// The model and its settings.
    pub(super) model_choice: ModelChoice,
    pub(super) branch: Option<String>,
    pub(super) tool_context: ToolContextBuilder,
    /// The sandbox of its commands.
    pub(super) sandbox: SandboxKind,
    /// The configuration of the run.
    pub(super) run_config: RunConfigSource,
    /// The environment that clients sent. It may set the server and its key, which the environment of tools may not.
    pub(super) environment: Option<Arc<Environment>>,
    /// Receives environments that clients send.
    pub(super) environment_updates: watch::Receiver<Option<Arc<Environment>>>,
    /// The original arguments of the calls that were pending after the last turn, where they were redacted.
    pub(super) pending_args: Vec<Option<String>>,
    /// The secrets of the session.
    pub(super) secrets: SessionSecrets,
    /// Interrupts its waits.
    pub(super) interrupts: Arc<TurnInterrupts>,
    /// The state of the run at the circuit breaker of the server.
    pub(super) admission: Arc<RunAdmission>,
}

/// The configuration of a run: the one at its start, and after a restart the current one.
pub(super) struct RunConfigSource {
    /// The configuration that the first turn has used.
    pub(super) cached: Arc<OnceLock<RunConfig>>,
    /// The configuration that was loaded for this turn, or why it is invalid.
    pub(super) loaded: Result<RunConfig, String>,
}

impl RunConfigSource {
    fn get(&self) -> Result<RunConfig, String> {
        match (self.cached.get(), &self.loaded) {
            (Some(rules), _) => Ok(rules.clone()),
            (None, Ok(rules)) => Ok(self.cached.get_or_init(|| rules.clone()).clone()),
            (None, Err(why)) => Err(why.clone()),
        }
    }
}

/// Runs one turn.
pub(super) async fn take_turn(
    input: ModelTurnInput,
    turn: TurnRequest,
    conversation: ConversationSource,
    reports: ReportSender,
) -> Result<(), SessionClosed> {
    match ModelTurn::prepare(input, &turn, conversation, reports).await {
        Ok(mut model_turn) => model_turn.take_turn(&turn).await,
        Err((finish, reports)) => reports.finish(finish).await,
    }
}

/// A model turn in progress.
struct ModelTurn {
    input: ModelTurnInput,
    run_config: RunConfig,
    context: Context,
    tool_context: ToolContext,
    call_policy: CallPolicy,
    reports: ReportSender,
    /// The estimated tokens of the last request.
    prompt_tokens: u64,
    /// The maximum tokens of a request in this turn, if the server accepts fewer than it declares.
    token_ceiling: Option<u64>,
    /// The number of retries, while the server has not responded.
    retry_attempt: Option<u32>,
    /// The number of steering messages that the request contains.
    steers_seen: usize,
}

impl ModelTurn {
    async fn prepare(
        input: ModelTurnInput,
        turn: &TurnRequest,
        conversation: ConversationSource,
        reports: ReportSender,
    ) -> Result<Self, (FinishReport, ReportSender)> {
        let rules = match input.run_config.get() {
            Ok(rules) => rules,
            Err(why) => return Err((FinishReport::permanent_failure("INVALID_CONFIGURATION", why), reports)),
        };
        let context = match conversation.load(&input.services.journal, &input.session).await {
            Ok(conversation) => Context::new(&conversation),
            Err(message) => {
                return Err((FinishReport::permanent_failure("INTERNAL_ERROR", message), reports));
            }
        };
        let tool_context = match input.tool_context.build(reports.redactor()) {
            Ok(tool_context) => tool_context,
            Err(error) => {
                let error: ToolError = error.into();
                return Err((FinishReport::permanent_failure(&error.kind, error.message), reports));
            }
        };
        let call_policy = CallPolicy::load(&input.services, &rules, turn, input.sandbox, &tool_context).await;
        let (prompt_tokens, token_ceiling, retry_attempt, steers) = (0, None, None, turn.steers.len());
        Ok(Self {
            input,
            run_config: rules,
            context,
            tool_context,
            call_policy,
            reports,
            prompt_tokens,
            token_ceiling,
            retry_attempt,
            steers_seen: steers,
        })
    }

    async fn take_turn(&mut self, turn: &TurnRequest) -> Result<(), SessionClosed> {
        if turn.checks_started {
            return self.reports.finish(success(&self.context.last_text())).await;
        }
        let budget = self.run_config.budget(&turn.budget);
        if let Some(exceeded) = ExceededLimit::find(&budget, &turn.spent) {
            return self.ask_for_budget(&exceeded).await;
        }
        match self.exceeded_daily_limit(turn).await {
            Ok(None) => {}
            Ok(Some(exceeded)) => return self.ask_for_budget(&exceeded).await,
            Err(finish) => return self.reports.finish(finish).await,
        }
        if self.context.pending().next().is_some() {
            return self.resume_calls().await;
        }
        let denied = self.context.policy_denials();
        if denied >= MAX_DENIALS {
            let summary = format!("{denied} calls of the model in a row were denied");
            return self.reports.finish(turn_machine::denied(summary)).await;
        }
        let handle = match self.resolve_model(turn).await? {
            Ok(handle) => handle,
            Err(error) => return self.reports.finish(model_failure(error)).await,
        };
        self.redact_key(&handle);
        let is_limited = budget.cost.is_some() || self.run_config.settings.limits.max_daily_cost_micro_usd.is_some();
        if is_limited && self.price(&handle).is_none() {
            return self.reports.finish(price_unknown(handle.model())).await;
        }
        // Existing clients show the current phase, and expect one status event per turn.
        let (source, phase) = ("orchestrator".to_owned(), "Asking model...".to_owned());
        let detail = Some(handle.model().to_owned());
        self.reports.send(Report::Status { source, phase, detail }).await?;
        self.request_turn(turn, &handle).await
    }

    /// Resolves the model, or returns what is missing.
    ///
    /// The URL and the key of the server may be in the client's environment alone. A restarted daemon waits until a
    /// client sends it again, because the configured server is a different one, which must not receive this
    /// conversation.
    async fn resolve_model(&mut self, turn: &TurnRequest) -> Result<Result<ModelHandle, ModelError>, SessionClosed> {
        let models = self.input.services.model_config.registry(&self.run_config.settings);
        loop {
            let brought = self.input.environment_updates.borrow_and_update().clone();
            let environment = self.input.environment.clone().or(brought);
            if environment.is_some() || !turn.needs_environment {
                let nothing = BTreeMap::new();
                let variables = environment.as_ref().map_or(&nothing, |environment| environment.variables());
                let ModelChoice { provider, model, .. } = &self.input.model_choice;
                let handle = models.resolve(provider, model.as_deref(), variables).await;
                return Ok(handle.map(|handle| handle.for_run(Arc::clone(&self.input.admission))));
            }
            self.reports.warn("ENVIRONMENT_MISSING", ENVIRONMENT_LOST, None).await?;
            self.input.environment_updates.changed().await.map_err(|_| SessionClosed)?;
            self.input.environment = self.input.environment_updates.borrow().clone();
            self.input.tool_context.environment = self.input.environment.clone();
            self.rebuild_tool_context();
        }
    }

    /// Adds a key that is in no client environment to the secrets: a model or a tool may print it.
    fn redact_key(&mut self, handle: &ModelHandle) {
        if let Some(key) = handle.secret().filter(|key| !self.input.secrets.contains(key)) {
            self.input.secrets.add(vec![key.to_owned()]);
            self.rebuild_tool_context();
        }
    }

    fn rebuild_tool_context(&mut self) {
        self.reports.set_redactor(self.input.secrets.redactor());
        if let Ok(tool_context) = self.input.tool_context.build(self.reports.redactor()) {
            self.tool_context = tool_context;
        }
    }

    /// Requests the pending calls that can start now.
    async fn resume_calls(&self) -> Result<(), SessionClosed> {
        let left = self.context.pending().count();
        // After a restart only the stored, redacted arguments of pending calls are left.
        let known =
            self.input.pending_args.get(self.input.pending_args.len().saturating_sub(left)..).unwrap_or_default();
        let now = grouping::parallel_count(self.context.pending(), &self.input.services.tools);
        for (at, call) in self.context.pending().take(now).enumerate() {
            let raw = known.get(at).and_then(Option::as_ref);
            self.request_call(call, unredacted::original(raw, call.args.as_str())).await?;
        }
        self.reports.end_turn().await
    }

    /// Requests a tool call, with its question if one is needed.
    async fn request_call(&self, call: &PendingCall, args: SentValue<String>) -> Result<(), SessionClosed> {
        let tool = call.tool.as_str();
        let args = match args {
            SentValue::Known(args) => args,
            SentValue::Lost => {
                return self.reports.refuse_call(tool, call.args.as_str().to_owned(), secret_lost()).await;
            }
        };
        let question = if tool == inquiry::ASK_USER {
            inquiry::parse_question(&args).map(Some)
        } else {
            self.question(tool, &args).await
        };
        match question {
            Ok(question) => self.reports.request_call(tool, args, Purpose::Work, question).await,
            // The call must not run without its question, even if it could succeed a moment later.
            Err(error) => self.reports.refuse_call(tool, args, error).await,
        }
    }

    /// Returns the question before a call, `None` if the call is allowed, or why it cannot succeed.
    async fn question(&self, tool: &str, args: &str) -> Result<Option<Question>, ToolError> {
        let request = self.input.services.tools.parse(tool, args)?;
        self.call_policy.question(&request, &self.tool_context).await
    }

    /// Returns whether the runs of today have reached the limit of the day, or why that is unknown.
    async fn exceeded_daily_limit(&self, turn: &TurnRequest) -> Result<Option<ExceededLimit>, FinishReport> {
        let Some(limit) = self.run_config.settings.limits.max_daily_cost_micro_usd else { return Ok(None) };
        let services = &self.input.services;
        let spent = services.daily_spend.today(&services.journal, services.clock.now()).await.map_err(|error| {
            let message = format!("the cost of today is limited, and what was spent cannot be read: {error}");
            FinishReport::permanent_failure("INTERNAL_ERROR", message)
        })?;
        Ok(ExceededLimit::find_daily(limit, spent, &turn.spent))
    }

    async fn ask_for_budget(&self, exceeded: &ExceededLimit) -> Result<(), SessionClosed> {
        let title = match exceeded.kind {
            BudgetResource::DailyCost => "The limit of the day is reached",
            BudgetResource::Cost | BudgetResource::Turns | BudgetResource::Tokens => "The budget of the run is used up",
        };
        let title = title.to_owned();
        let plain = Question::plain(gate::BUDGET, title, exceeded.summary(), exceeded.details());
        let policy_comment = format!("{}; {RAISE_REMEDY}", exceeded.summary());
        let budget = Some(exceeded.kind);
        let question = Question { choices: gate::budget_choices(), budget, policy_comment, ..plain };
        self.reports.request_call(RAISE_BUDGET, exceeded.details(), Purpose::Work, Some(question)).await?;
        self.reports.end_turn().await
    }

    async fn base_request(&self, handle: &ModelHandle) -> Request {
        let instructions =
            instructions::read(&self.input.services.files, &self.tool_context.workspace, self.reports.redactor()).await;
        let around = PromptContext {
            cwd: &self.input.tool_context.cwd.to_string_lossy(),
            branch: self.input.branch.as_deref(),
            instructions: instructions.as_deref(),
        };
        Request {
            model: handle.model().to_owned(),
            system: self.reports.redactor().redact(&prompt::system_prompt(&around)).into_owned(),
            entries: Vec::new(),
            tools: self.tool_specs(),
            max_tokens: None,
            thinking: self.thinking(handle),
        }
    }

    /// Returns the thinking level: the session's, else the provider's default.
    fn thinking(&self, handle: &ModelHandle) -> Thinking {
        let chosen = self.input.model_choice.thinking.as_deref().and_then(Thinking::parse);
        chosen.unwrap_or_else(|| handle.thinking())
    }

    fn tool_specs(&self) -> Vec<ToolSpec> {
        let spec = |tool: &dyn AnyTool| ToolSpec {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            schema: tool.schema(),
        };
        let offered = self.input.services.tools.available(self.tool_context.network);
        offered.map(spec).chain([inquiry::tool()]).collect()
    }
}

/// The number of consecutive denials by the policy after which the run ends.
const MAX_DENIALS: usize = 10;

/// Estimates the tokens that every request contains.
fn fixed_tokens(request: &Request) -> u64 {
    price::estimate_tokens(request.system.len()).saturating_add(tools_tokens(&request.tools))
}

fn tools_tokens(tools: &[ToolSpec]) -> u64 {
    let length = |tool: &ToolSpec| tool.name.len() + tool.description.len() + tool.schema.to_string().len();
    price::estimate_tokens(tools.iter().map(length).sum())
}

const ENVIRONMENT_LOST: &str = "the daemon was restarted, and the client's environment, which is not stored, set the model's \
                         server; the run continues when a client attaches, for instance with `push attach`";

const RAISE_REMEDY: &str = "`--max-turns`, `--max-tokens` and `--max-cost` of `push run` set the budget, and \
                            limits.max_daily_cost_usd in config.toml sets the limit of the day";

fn secret_lost() -> ToolError {
    tools::ToolError::new(
        ToolErrorKind::SecretNotPersisted,
        "the arguments held a secret, which is not stored across a restart",
    )
    .into()
}

fn price_unknown(model: &str) -> FinishReport {
    let message =
        format!("the cost is limited, but {model} has no price: add [[prices]] with model = {model:?} to config.toml");
    FinishReport::permanent_failure("PRICE_UNKNOWN", message)
}
