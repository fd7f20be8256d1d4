//! A model's part of a run: one turn, from the journal to what it wants done.
//!
//! A turn knows nothing but what is journaled: the conversation is folded from the session's events, so that a daemon that
//! comes back asks the same. Whatever comes of it is reported to the session, which keeps it before anybody sees it.

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

/// Who is asked, and where it works.
pub(super) struct Asking {
    pub(super) world: Arc<World>,
    pub(super) session: SessionId,
    /// Who answers, and how.
    pub(super) voice: Voice,
    pub(super) branch: Option<String>,
    pub(super) place: Place,
    /// Who runs its commands.
    pub(super) sandbox: SandboxChoice,
    /// What holds for the run.
    pub(super) rules: RulesOfRun,
    /// Where it is heard that a client has brought its environment.
    pub(super) brought: watch::Receiver<Option<Arc<Environment>>>,
    /// The arguments of the calls that waited when the last turn was taken, where they must not be kept.
    pub(super) waiting: Vec<Option<String>>,
    /// What the session hides.
    pub(super) hidden: Hidden,
    /// How it is told to wait no longer.
    pub(super) halts: Arc<Halts>,
    /// How the run stands with the circuit breaker of the server.
    pub(super) admission: Arc<RunAdmission>,
}

/// What holds for a run: what held when it began, and after a restart what holds then.
pub(super) struct RulesOfRun {
    /// What its first turn has found.
    pub(super) known: Arc<OnceLock<Rules>>,
    /// What was read for this turn, or why it cannot be used.
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

/// Takes one turn.
pub(super) async fn take_turn(asking: Asking, turn: Turn, reports: Reports) -> Result<(), Gone> {
    match Table::laid(asking, &turn, reports).await {
        Ok(mut table) => table.take_turn(&turn).await,
        Err((finish, reports)) => reports.finish(finish).await,
    }
}

/// Everything that a turn needs.
struct Table {
    asking: Asking,
    rules: Rules,
    context: Context,
    bench: Bench,
    judge: Judge,
    reports: Reports,
    /// How many tokens the last question has, about.
    told: u64,
    /// How many tokens may be told at most in this turn, where the server takes less than it says.
    ceiling: Option<u64>,
    /// How often the server was asked again, while it has not answered.
    retrying: Option<u32>,
    /// How many messages that were said into the run the model is told of.
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
            let summary = format!("the model tried nothing but what was denied, {denied} times in a row");
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
        // Existing clients show what a run is busy with, and expect to hear of each turn.
        let (source, phase) = ("orchestrator".to_owned(), "Asking model...".to_owned());
        let detail = Some(ready.model().to_owned());
        self.reports.send(Report::Status { source, phase, detail }).await?;
        self.converse(turn, &ready).await
    }

    /// Finds who is to be asked, or says what is missing.
    ///
    /// Where the server is and what its key is may be known to the client's shell alone. A daemon that came back waits until a
    /// client brings that again: what the file says is for another server, to which this conversation was not to go.
    async fn ready(&mut self, turn: &Turn) -> Result<Result<Ready, ModelError>, Gone> {
        let models = self.asking.world.house.models(&self.rules.settings);
        loop {
            let brought = self.asking.brought.borrow_and_update().clone();
            let environment = self.asking.place.environment.clone().or(brought);
            if environment.is_some() || !turn.needs_environment {
                let nothing = BTreeMap::new();
                let variables = environment.as_ref().map_or(&nothing, |environment| environment.variables());
                let Voice { provider, model, .. } = &self.asking.voice;
                let ready = models.resolve(provider, model.as_deref(), variables).await;
                return Ok(ready.map(|ready| ready.for_run(Arc::clone(&self.asking.admission))));
            }
            self.reports.warn("ENVIRONMENT_MISSING", RESTARTED, None).await?;
            self.asking.brought.changed().await.map_err(|_| Gone)?;
            self.asking.place.environment = self.asking.brought.borrow().clone();
            self.lay_bench_anew();
        }
    }

    /// Has everything of the session hide a key that no environment brought: a model, or a tool, may show it.
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

    /// Wants those of the calls used that waited and can begin now.
    async fn go_on_with_calls(&self) -> Result<(), Gone> {
        let left = self.context.pending().count();
        // A turn that was taken before a restart has left nothing but what is kept.
        let known =
            self.asking.waiting.get(self.asking.waiting.len().saturating_sub(left)..).unwrap_or_default();
        let now = grouping::together(self.context.pending());
        for (at, call) in self.context.pending().take(now).enumerate() {
            let raw = known.get(at).and_then(Option::as_ref);
            self.want(call, memory::whole(raw, call.args.as_str())).await?;
        }
        self.reports.turn_done().await
    }

    /// Wants a tool used, with the question that comes before.
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
            // It must not be tried unasked: what cannot succeed now might in the next moment.
            Err(fault) => self.reports.refuse(tool, args, fault).await,
        }
    }

    /// Says what is to be asked before a call, nothing for one that goes ahead, or why it cannot succeed.
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

    /// How much the model is to think: as the session says, else as its provider is set.
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

/// After how many denials in a row by the policy of its run a model is asked no more.
const MOST_DENIALS: usize = 10;

/// Estimates what is told with every request.
fn fixed_tokens(request: &Request) -> u64 {
    price::tokens_of(request.system.len()).saturating_add(tools_tokens(&request.tools))
}

fn tools_tokens(tools: &[ToolSpec]) -> u64 {
    let length = |tool: &ToolSpec| tool.name.len() + tool.description.len() + tool.schema.to_string().len();
    price::tokens_of(tools.iter().map(length).sum())
}

const RESTARTED: &str = "the daemon was restarted, and the environment of the client said whom to ask, which is not kept; the run \
                         goes on when a client attaches, for instance with `push attach`";

const RAISE_REMEDY: &str = "`--max-turns`, `--max-tokens` and `--max-cost` of `push run` set the budget";

fn forgotten() -> Fault {
    tools::Fault::new(FaultKind::SecretNotKept, "it held a secret, which is not kept over a restart").into()
}

fn no_price(model: &str) -> Finish {
    let message = format!(
        "the cost of the run is limited, and nobody knows what {model} costs: add [[prices]] with model = {model:?} to config.toml"
    );
    Finish::for_good("PRICE_UNKNOWN", message)
}
