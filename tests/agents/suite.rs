//! The cases of the provider suite as complete runs: each ends with the right outcome, reason and exit code.
//!
//! One daemon per dialect, several cases at a time, and one server per case, because circuits are per endpoint.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;

use serde_json::{Value, json};

use crate::bench::{Bench, KEY, provider, variables};
use crate::daemon::types;
use crate::model::cases::{self, breaks, breaks_off};
use crate::model::{Delivery, Fault, ModelServer, Nobody, Reply, Seen, Speaks};

#[test]
fn every_case_of_ollama_ends_as_it_should() {
    pass(Speaks::Ollama);
}

#[test]
fn every_case_of_openai_ends_as_it_should() {
    pass(Speaks::OpenAi);
}

#[test]
fn every_case_of_anthropic_ends_as_it_should() {
    pass(Speaks::Anthropic);
}

#[test]
fn there_are_enough_cases_and_each_has_its_name() {
    for speaks in [Speaks::Ollama, Speaks::OpenAi, Speaks::Anthropic] {
        let names: BTreeSet<_> = all(speaks).into_iter().map(|case| case.name).collect();
        assert!(names.len() >= 40, "{} cases", names.len());
        assert_eq!(names.len(), all(speaks).len());
    }
}

/// A case: what the server does, and how the run ends.
struct Case {
    name: &'static str,
    script: Vec<Reply>,
    /// The reply of the server after the script.
    always: Option<Reply>,
    place: Place,
    ends: Ends,
    /// The expected number of requests.
    asked: usize,
    /// The expected number of tool calls.
    used: usize,
}

/// The endpoint that the run is configured with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Server,
    /// A port without a listener.
    Nowhere,
}

/// The expected end of a run.
enum Ends {
    /// Success, with the first line of the last text as summary.
    Well(String),
    /// Failure with this reason.
    Badly(&'static str),
}

impl Case {
    fn after(mut self, asked: usize) -> Self {
        self.asked = asked;
        self
    }

    fn using(mut self, used: usize) -> Self {
        self.used = used;
        self
    }

    fn nowhere(mut self) -> Self {
        self.place = Place::Nowhere;
        self
    }

    /// Executes the run in its own session with its own client.
    fn run(self, bench: &Bench, speaks: Speaks) {
        let server = ModelServer::start();
        server.script(self.script);
        if let Some(reply) = self.always {
            server.usually(reply);
        }
        let nobody = Nobody::new();
        let place = match self.place {
            Place::Server => server.base_url(speaks),
            Place::Nowhere => format!("http://{}", nobody.address()),
        };
        let mut client = bench.daemon.connect();
        let start = json!({"cwd": bench.cwd(), "provider": provider(speaks), "model": "test-model",
            "environment": variables(speaks, &place)});
        let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
        client.prompt(&session, "hi");
        let events = client.events_until("run_complete");
        self.ends.check(&events);
        let used = events.iter().filter(|event| event["type"] == "tool_result").count();
        // Requests for the context window are not turns.
        let is_turn = |seen: &&Seen| seen.method == "POST" && !seen.path.ends_with("/api/show");
        let asked = server.seen().iter().filter(is_turn).count();
        assert_eq!((asked, used), (self.asked, self.used), "asked and used: {:?}", types(&events));
        assert!(!json!(events).to_string().contains(KEY), "the key is shown");
    }
}

impl Ends {
    fn check(self, events: &[Value]) {
        let over = &events.last().unwrap()["payload"];
        let code = &over["headless"]["exitCodeHint"];
        let errors: Vec<_> = events.iter().filter(|event| event["type"] == "error").collect();
        match self {
            Self::Well(summary) => {
                assert_eq!((&over["outcome"], code), (&json!("success"), &json!(0)), "{over}");
                assert_eq!((&over["summary"], &over["reason"]), (&json!(summary), &Value::Null), "{over}");
                assert!(errors.is_empty(), "{errors:?}");
            }
            Self::Badly(reason) => {
                assert_eq!((&over["outcome"], code), (&json!("failed"), &json!(1)), "{over}");
                assert_eq!(over["reason"], reason, "{over}");
                let codes: Vec<_> = errors.iter().map(|error| &error["payload"]["code"]).collect();
                assert_eq!(codes, [&json!(reason.to_uppercase())]);
            }
        }
    }
}

/// Runs all cases, several at a time, and reports the failed ones.
fn pass(speaks: Speaks) {
    let bench = Bench::with(speaks, &[("PUSH_MODEL_SILENCE_SECONDS", "5"), ("PUSH_MODEL_ATTEMPTS", "3")]);
    let waiting = Mutex::new(all(speaks));
    let wrong = Mutex::new(Vec::new());
    let take_cases = || {
        loop {
            let Some(case) = waiting.lock().unwrap().pop() else { return };
            let name = case.name;
            let ended = thread::scope(|scope| {
                let named = thread::Builder::new().name(name.to_owned());
                named.spawn_scoped(scope, || case.run(&bench, speaks)).unwrap().join()
            });
            if ended.is_err() {
                wrong.lock().unwrap().push(name);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(take_cases);
        }
    });
    assert_eq!(wrong.into_inner().unwrap(), Vec::<&str>::new(), "these cases went wrong with {speaks:?}");
}

fn all(speaks: Speaks) -> Vec<Case> {
    [answers(speaks), refusals(), interruptions(), waits(), retries()].into_iter().flatten().collect()
}

fn answers(speaks: Speaks) -> Vec<Case> {
    let declined = match speaks {
        // Ollama has no such stop reason.
        Speaks::Ollama => "model_stopped",
        Speaks::OpenAi | Speaks::Anthropic => "model_refused",
    };
    let then = |reply| [reply, Reply::says("Done.")];
    vec![
        well("a text", [Reply::says("Hello!")], "Hello!"),
        well("a token a number", [cases::counts()], &start_of(cases::numbers().concat())),
        well("nothing, and then something", then(cases::says_nothing()), "Done.").after(2),
        well("blanks, and then something", then(Reply::says(" \n\n")), "Done.").after(2),
        well("any characters", [Reply::says(cases::ANY_TEXT)], "tabs\tand"),
        well("a long text", [Reply::says(&cases::long_text())], &start_of(cases::long_text())),
        well("thinking", [cases::thinks_first()], "Yes."),
        well("a call", then(cases::calls_once()), "Done.").after(2).using(1),
        well("several calls", then(cases::calls_thrice()), "Done.").after(2).using(3),
        well("arguments in bytes", then(cases::calls_in_bytes()), "Done.").after(2).using(2),
        well("a call without arguments", then(cases::calls_without_arguments(speaks)), "Done.")
            .after(2)
            .using(1),
        well("arguments that are none", then(cases::calls_with_nonsense()), "Done.").after(2).using(2),
        well("a call that is announced", then(cases::announces_a_call()), "Done.").after(2).using(1),
        well("a turn with its cost", [Reply::says("Hello!").spends(cases::SPENT)], "Hello!"),
        well("everything in bytes", then(cases::everything(Delivery::Bytes)), "Done.").after(2).using(1),
        well("everything at once", then(cases::everything(Delivery::Fast)), "Done.").after(2).using(1),
        well("a body without an end", [cases::says_until_it_hangs_up()], "Hello!"),
        well("many tokens", [cases::hurries(20_000)], &start_of("token ".repeat(40))),
        badly("a turn that gets too long", cases::gets_too_long(), "model_length"),
        badly("a model that declines", cases::declines(), declined),
        badly("nothing, ever", cases::says_nothing(), "provider_garbage").after(4),
    ]
}

fn refusals() -> Vec<Case> {
    vec![
        badly("a wrong key", cases::wrong_key(), "provider_unauthorized"),
        badly("a key that is repeated", cases::repeats_the_key(KEY), "provider_unauthorized"),
        badly("a forbidden model", cases::forbidden(), "provider_unauthorized"),
        badly("a missing model", cases::no_such_model(), "model_not_found"),
        badly("a wrong path", cases::no_such_path(), "provider_refused"),
        badly("a refused request", cases::refuses(), "provider_refused"),
        badly("a conversation that is too long", cases::prompt_too_long(), "context_too_long"),
        badly("an empty account", cases::no_credit(), "provider_out_of_credit"),
        badly("a redirect", cases::redirects(), "provider_refused"),
        badly("a web page", cases::web_page(), "provider_garbage"),
        badly("another file", cases::another_file(), "provider_garbage"),
        badly("no HTTP", Reply::NotHttp, "provider_garbage"),
        badly("garbage in the middle", cases::garbles(), "provider_garbage"),
        badly("garbage at once", breaks(Fault::Garbage), "provider_garbage"),
        badly("a huge line", cases::says_too_long_a_line(9 * 1024 * 1024), "provider_garbage"),
        badly("too many calls", cases::calls_too_often(129), "provider_garbage"),
        badly("too long arguments", cases::calls_at_length(9 * 1024 * 1024), "provider_garbage"),
    ]
}

fn interruptions() -> Vec<Case> {
    let again = |name, reply| well(name, [reply, Reply::says("The whole.")], "The whole.").after(2);
    let split = breaks_off("été", Fault::CutInsideCharacter);
    vec![
        again("a cut in the middle", breaks_off("one", Fault::Cut)),
        again("a cut inside a character", split.clone()),
        again("a cut inside a character of an unframed body", split.delivered(Delivery::UntilClose)),
        again("a reset in the middle", breaks_off("one", Fault::Reset)),
        again("an end that is missing", breaks_off("one", Fault::EndEarly)),
        again("an error in the middle", breaks_off("one", cases::overloaded_midway())),
        again("silence in the middle", breaks_off("one", Fault::Stall)),
        badly("a cut every time", breaks_off("one", Fault::Cut), "provider_cut").after(4),
    ]
}

fn waits() -> Vec<Case> {
    let never = "provider_silent";
    vec![
        badly("silence", Reply::Never, never),
        badly("silence after the head", Reply::HeadOnly, never),
        well("a rate limit", at_last([cases::limited(), cases::limited()]), LAST).after(3),
        well("a rate limit with its time", at_last([cases::limited_for("0.2")]), LAST).after(2),
        badly("a rate limit for hours", cases::limited_for("3600"), "provider_rate_limited"),
        badly("a rate limit that lasts", cases::limited(), "provider_rate_limited").after(3),
    ]
}

fn retries() -> Vec<Case> {
    let broken = Reply::status(500, r#"{"error":{"message":"out of order"}}"#);
    vec![
        well("a server that fails twice", at_last(cases::fails()), LAST).after(3),
        well("a server with too much to do", at_last(cases::has_too_much_to_do()), LAST).after(3),
        well("a server that is too slow", at_last(cases::too_slow_then_in_conflict()), LAST).after(3),
        well("a connection that is closed", at_last([Reply::HangUp]), LAST).after(2),
        well("a connection that is reset", at_last([Reply::Reset]), LAST).after(2),
        well("a cut before anything", at_last(cases::cut_before_anything()), LAST).after(3),
        well("an error before anything", at_last([breaks(cases::overloaded_midway())]), LAST).after(2),
        badly("a server that stays overloaded", cases::overloaded(), "provider_overloaded").after(3),
        badly("a server that is broken", broken, "provider_failed").after(3),
        badly("a server that always hangs up", Reply::HangUp, "provider_cut").after(3),
        badly("nobody", Reply::Never, "provider_unreachable").nowhere().after(0),
    ]
}

fn well(name: &'static str, script: impl Into<Vec<Reply>>, summary: &str) -> Case {
    let (script, ends) = (script.into(), Ends::Well(summary.to_owned()));
    Case { name, script, always: None, place: Place::Server, ends, asked: 1, used: 0 }
}

fn badly(name: &'static str, always: Reply, reason: &'static str) -> Case {
    let (always, ends) = (Some(always), Ends::Badly(reason));
    Case { name, script: Vec::new(), always, place: Place::Server, ends, asked: 1, used: 0 }
}

fn at_last<const N: usize>(failures: [Reply; N]) -> Vec<Reply> {
    failures.into_iter().chain([Reply::says(LAST)]).collect()
}

/// The part of a text that a summary contains.
fn start_of(text: String) -> String {
    text.chars().take(200).collect::<String>().trim().to_owned()
}

/// The answer after the failures.
const LAST: &str = "at last";
const AT_A_TIME: usize = 6;
