//! One turn of a model: from the journaled conversation to the requested tool calls.
//!
//! A turn uses journaled data only: the conversation is folded from the session's events, so that a restarted daemon
//! sends the same request. Every result is reported to the session, which stores it before it is published.

mod fitting;
mod hearing;
mod instructions;
mod manual;
mod summary;
mod weighing;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use super::aside::Halts;
use super::conversation;
use super::deciding::Judge;
use super::memory::{self, Hidden, Whole};
use super::place::Place;
use crate::agent::price;
use crate::agent::prompt::{self, Surroundings};
use crate::agent::taking::{self, gave_up, success};
use crate::agent::{Breach, Context, RAISE_BUDGET, grouping, inquiry};
use crate::config::sandbox::SandboxChoice;
use crate::kernel::effect::{Finish, Report, Turn, Voice};
use crate::kernel::event::{Fault, Purpose, Wanted};
use crate::kernel::gate;
use crate::kernel::id::SessionId;
use crate::protocol::push::decode::Environment;
use crate::provider::error::ModelError;
use crate::provider::model::{Request, Thinking, ToolSpec};
use crate::provider::registry::Ready;
use crate::provider::{Gone, Question, Reports, RunAdmission};
use crate::runtime::models::Rules;
use crate::runtime::world::World;
use crate::tools::{self, Bench, FaultKind};
pub(super) use manual::compact;

/// The input of a model turn.
pub(super) struct Asking {
    pub(super) world: Arc<World>,
    pub(super) session: SessionId,
    /// The model and its settings.
    pub(super) voice: Voice,
    pub(super) branch: Option<String>,
    pub(super) place: Place,
    /// The sandbox of its commands.
    pub(super) sandbox: SandboxChoice,
    /// The configuration of the run.
    pub(super) rules: RulesOfRun,
    /// The environment that clients sent. It may set the server and its key, which the environment of tools may not.
    pub(super) environment: Option<Arc<Environment>>,
    /// Receives environments that clients send.
    pub(super) brought: watch::Receiver<Option<Arc<Environment>>>,
    /// The original arguments of the calls that were pending after the last turn, where they were redacted.
    pub(super) waiting: Vec<Option<String>>,
    /// The secrets of the session.
    pub(super) hidden: Hidden,
    /// Interrupts its waits.
    pub(super) halts: Arc<Halts>,
    /// The state of the run at the circuit breaker of the server.
    pub(super) admission: Arc<RunAdmission>,
}

/// The configuration of a run: the one at its start, and after a restart the current one.
pub(super) struct RulesOfRun {
    /// The configuration that the first turn has used.
    pub(super) known: Arc<OnceLock<Rules>>,
    /// The configuration that was loaded for this turn, or why it is invalid.
    pub(super) read: Result<Rules, String>,
}

impl RulesOfRun {
    fn get(&self) -> Result<Rules, String> {
        match (self.known.get(), &self.read) {
            (Some(rules), _) => Ok(rules.clone()),
            (None, Ok(rules)) => Ok(self.known.get_or_init(|| rules.clone()).clone()),
            (None, Err(why)) => Err(why.clone()),
        }
    }
}

/// Runs one turn.
pub(super) async fn take_turn(asking: Asking, turn: Turn, reports: Reports) -> Result<(), Gone> {
    match Table::laid(asking, &turn, reports).await {
        Ok(mut table) => table.take_turn(&turn).await,
        Err((finish, reports)) => reports.finish(finish).await,
    }
}

/// A model turn in progress.
struct Table {
    asking: Asking,
    rules: Rules,
    context: Context,
    bench: Bench,
    judge: Judge,
    reports: Reports,
    /// The estimated tokens of the last request.
    told: u64,
    /// The maximum tokens of a request in this turn, if the server accepts fewer than it declares.
    ceiling: Option<u64>,
    /// The number of retries, while the server has not responded.
    retrying: Option<u32>,
    /// The number of steering messages that the request contains.
    steers: usize,
}

impl Table {
    async fn laid(asking: Asking, turn: &Turn, reports: Reports) -> Result<Self, (Finish, Reports)> {
        let rules = match asking.rules.get() {
            Ok(rules) => rules,
            Err(why) => return Err((Finish::for_good("INVALID_CONFIGURATION", why), reports)),
        };
        let context = match conversation::read(&asking.world.journal, &asking.session, turn).await {
            Ok(context) => context,
            Err(message) => return Err((Finish::for_good("INTERNAL_ERROR", message), reports)),
        };
        let bench = match asking.place.bench(reports.redactor()) {
            Ok(bench) => bench,
            Err(fault) => {
                let fault: Fault = fault.into();
                return Err((Finish::for_good(&fault.kind, fault.message), reports));
            }
        };
        let judge = Judge::of(&asking.world, &rules, turn, asking.sandbox, &bench).await;
        let (told, ceiling, retrying, steers) = (0, None, None, turn.steers.len());
        Ok(Self { asking, rules, context, bench, judge, reports, told, ceiling, retrying, steers })
    }

    async fn take_turn(&mut self, turn: &Turn) -> Result<(), Gone> {
        if turn.checking {
            return self.reports.finish(success(self.context.last_said())).await;
        }
        let budget = self.rules.budget(&turn.budget);
        if let Some(breach) = Breach::find(&budget, &turn.spent) {
            return self.ask_for_more(&breach).await;
        }
        if self.context.pending().next().is_some() {
            return self.go_on_with_calls().await;
        }
        let denied = self.context.policy_denials();
        if denied >= MOST_DENIALS {
            let summary = format!("{denied} calls of the model in a row were denied");
            return self.reports.finish(taking::denied(summary)).await;
        }
        let ready = match self.ready(turn).await? {
            Ok(ready) => ready,
            Err(error) => return self.reports.finish(gave_up(error)).await,
        };
        self.hide_key(&ready);
        if budget.cost.is_some() && self.price(&ready).is_none() {
            return self.reports.finish(no_price(ready.model())).await;
        }
        // Existing clients show the current phase, and expect one status event per turn.
        let (source, phase) = ("orchestrator".to_owned(), "Asking model...".to_owned());
        let detail = Some(ready.model().to_owned());
        self.reports.send(Report::Status { source, phase, detail }).await?;
        self.converse(turn, &ready).await
    }

    /// Resolves the model, or returns what is missing.
    ///
    /// The URL and the key of the server may be in the client's environment alone. A restarted daemon waits until a
    /// client sends it again, because the configured server is a different one, which must not receive this
    /// conversation.
    async fn ready(&mut self, turn: &Turn) -> Result<Result<Ready, ModelError>, Gone> {
        let models = self.asking.world.house.models(&self.rules.settings);
        loop {
            let brought = self.asking.brought.borrow_and_update().clone();
            let environment = self.asking.environment.clone().or(brought);
            if environment.is_some() || !turn.needs_environment {
                let nothing = BTreeMap::new();
                let variables = environment.as_ref().map_or(&nothing, |environment| environment.variables());
                let Voice { provider, model, .. } = &self.asking.voice;
                let ready = models.resolve(provider, model.as_deref(), variables).await;
                return Ok(ready.map(|ready| ready.for_run(Arc::clone(&self.asking.admission))));
            }
            self.reports.warn("ENVIRONMENT_MISSING", RESTARTED, None).await?;
            self.asking.brought.changed().await.map_err(|_| Gone)?;
            self.asking.environment = self.asking.brought.borrow().clone();
            self.asking.place.environment = self.asking.environment.clone();
            self.lay_bench_anew();
        }
    }

    /// Adds a key that is in no client environment to the secrets: a model or a tool may print it.
    fn hide_key(&mut self, ready: &Ready) {
        if let Some(key) = ready.secret().filter(|key| !self.asking.hidden.hides(key)) {
            self.asking.hidden.learn(vec![key.to_owned()]);
            self.lay_bench_anew();
        }
    }

    fn lay_bench_anew(&mut self) {
        self.reports.hide_with(self.asking.hidden.redactor());
        if let Ok(bench) = self.asking.place.bench(self.reports.redactor()) {
            self.bench = bench;
        }
    }

    /// Requests the pending calls that can start now.
    async fn go_on_with_calls(&self) -> Result<(), Gone> {
        let left = self.context.pending().count();
        // After a restart only the stored, redacted arguments of pending calls are left.
        let known =
            self.asking.waiting.get(self.asking.waiting.len().saturating_sub(left)..).unwrap_or_default();
        let now = grouping::together(self.context.pending());
        for (at, call) in self.context.pending().take(now).enumerate() {
            let raw = known.get(at).and_then(Option::as_ref);
            self.want(call, memory::whole(raw, call.args.as_str())).await?;
        }
        self.reports.turn_done().await
    }

    /// Requests a tool call, with its question if one is needed.
    async fn want(&self, call: &Wanted, args: Whole<String>) -> Result<(), Gone> {
        let tool = call.tool.as_str();
        let args = match args {
            Whole::Known(args) => args,
            Whole::Forgotten => {
                return self.reports.refuse(tool, call.args.as_str().to_owned(), forgotten()).await;
            }
        };
        let question = if tool == inquiry::ASK_USER {
            inquiry::question(&args).map(Some)
        } else {
            self.question(tool, &args).await
        };
        match question {
            Ok(question) => self.reports.call(tool, args, Purpose::Work, question).await,
            // The call must not run without its question, even if it could succeed a moment later.
            Err(fault) => self.reports.refuse(tool, args, fault).await,
        }
    }

    /// Returns the question before a call, `None` if the call is allowed, or why it cannot succeed.
    async fn question(&self, tool: &str, args: &str) -> Result<Option<Question>, Fault> {
        self.judge.question(&tools::parse(tool, args)?, &self.bench).await
    }

    async fn ask_for_more(&self, breach: &Breach) -> Result<(), Gone> {
        let title = "The budget of the run is used up".to_owned();
        let plain = Question::plain(gate::BUDGET, title, breach.summary(), breach.details());
        let policy_comment = format!("{}; {RAISE_REMEDY}", breach.summary());
        let question = Question { choices: gate::budget_choices(), policy_comment, ..plain };
        self.reports.call(RAISE_BUDGET, breach.details(), Purpose::Work, Some(question)).await?;
        self.reports.turn_done().await
    }

    async fn request(&self, ready: &Ready) -> Request {
        let instructions =
            instructions::read(&self.asking.world.files, &self.bench.ground, self.reports.redactor()).await;
        let around = Surroundings {
            cwd: &self.asking.place.cwd.to_string_lossy(),
            branch: self.asking.branch.as_deref(),
            instructions: instructions.as_deref(),
        };
        Request {
            model: ready.model().to_owned(),
            system: self.reports.redactor().text(&prompt::system(&around)).into_owned(),
            entries: Vec::new(),
            tools: self.tools(),
            max_tokens: None,
            thinking: self.thinking(ready),
        }
    }

    /// Returns the thinking level: the session's, else the provider's default.
    fn thinking(&self, ready: &Ready) -> Thinking {
        let said = self.asking.voice.thinking.as_deref().and_then(Thinking::parse);
        said.unwrap_or_else(|| ready.thinking())
    }

    fn tools(&self) -> Vec<ToolSpec> {
        let spec = |tool: tools::Tool| ToolSpec {
            name: tool.name.to_owned(),
            description: tool.description.to_owned(),
            schema: tool.schema,
        };
        tools::catalogue(self.bench.network).into_iter().map(spec).chain([inquiry::tool()]).collect()
    }
}

/// The number of consecutive denials by the policy after which the run ends.
const MOST_DENIALS: usize = 10;

/// Estimates the tokens that every request contains.
fn fixed_tokens(request: &Request) -> u64 {
    price::tokens_of(request.system.len()).saturating_add(tools_tokens(&request.tools))
}

fn tools_tokens(tools: &[ToolSpec]) -> u64 {
    let length = |tool: &ToolSpec| tool.name.len() + tool.description.len() + tool.schema.to_string().len();
    price::tokens_of(tools.iter().map(length).sum())
}

const RESTARTED: &str = "the daemon was restarted, and the client's environment, which is not stored, set the model's \
                         server; the run continues when a client attaches, for instance with `push attach`";

const RAISE_REMEDY: &str = "`--max-turns`, `--max-tokens` and `--max-cost` of `push run` set the budget";

fn forgotten() -> Fault {
    tools::Fault::new(
        FaultKind::SecretNotKept,
        "the arguments held a secret, which is not stored across a restart",
    )
    .into()
}

fn no_price(model: &str) -> Finish {
    let message = format!(
        "the cost of the run is limited, but {model} has no price: add [[prices]] with model = {model:?} to config.toml"
    );
    Finish::for_good("PRICE_UNKNOWN", message)
}
