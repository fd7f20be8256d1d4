//! The cases of the provider suite as complete runs: each ends with the right outcome, reason and exit code.
//!
//! One daemon per dialect, several cases at a time, and one server per case, because circuits are per endpoint.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::thread;

use serde_json::{Value, json};

use crate::model_runs::fixture::{Fixture, KEY, provider, variables};
use crate::support::daemon::types;
use crate::support::model::cases::{self, breaks, breaks_off};
use crate::support::model::{Delivery, Fault, ModelServer, ReceivedRequest, Reply, ServerDialect, UnusedPort};

#[test]
fn every_case_of_ollama_ends_as_it_should() {
    run_all_cases(ServerDialect::Ollama);
}

#[test]
fn every_case_of_openai_ends_as_it_should() {
    run_all_cases(ServerDialect::OpenAi);
}

#[test]
fn every_case_of_anthropic_ends_as_it_should() {
    run_all_cases(ServerDialect::Anthropic);
}

#[test]
fn there_are_enough_cases_and_each_has_its_name() {
    for dialect in [ServerDialect::Ollama, ServerDialect::OpenAi, ServerDialect::Anthropic] {
        let names: BTreeSet<_> = all_cases(dialect).into_iter().map(|case| case.name).collect();
        assert!(names.len() >= 40, "{} cases", names.len());
        assert_eq!(names.len(), all_cases(dialect).len());
    }
}

/// A case: what the server does, and how the run ends.
struct Case {
    name: &'static str,
    script: Vec<Reply>,
    /// The reply of the server after the script.
    always: Option<Reply>,
    endpoint: TestEndpoint,
    expected: ExpectedEnd,
    /// The expected number of requests.
    requests: usize,
    /// The expected number of tool calls.
    tool_calls: usize,
}

/// The endpoint that the run is configured with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TestEndpoint {
    Server,
    /// A port without a listener.
    Unreachable,
}

/// The expected end of a run.
enum ExpectedEnd {
    /// Success, with the first line of the last text as summary.
    Success(String),
    /// Failure with this reason.
    Failure(&'static str),
}

impl Case {
    fn with_requests(mut self, requests: usize) -> Self {
        self.requests = requests;
        self
    }

    fn with_tool_calls(mut self, used: usize) -> Self {
        self.tool_calls = used;
        self
    }

    fn unreachable(mut self) -> Self {
        self.endpoint = TestEndpoint::Unreachable;
        self
    }

    /// Executes the run in its own session with its own client.
    fn run(self, fixture: &Fixture, dialect: ServerDialect) {
        let server = ModelServer::start();
        server.script(self.script);
        if let Some(reply) = self.always {
            server.usually(reply);
        }
        let nobody = UnusedPort::new();
        let endpoint = match self.endpoint {
            TestEndpoint::Server => server.base_url(dialect),
            TestEndpoint::Unreachable => format!("http://{}", nobody.address()),
        };
        let mut client = fixture.daemon.connect();
        let start = json!({"cwd": fixture.cwd(), "provider": provider(dialect), "model": "test-model",
            "environment": variables(dialect, &endpoint)});
        let session = client.get("start_session", start)["sessionId"].as_str().unwrap().to_owned();
        client.prompt(&session, "hi");
        let events = client.events_until("run_complete");
        self.expected.check(&events);
        let used = events.iter().filter(|event| event["type"] == "tool_result").count();
        // Requests for the context window are not turns.
        let is_turn = |seen: &&ReceivedRequest| seen.method == "POST" && !seen.path.ends_with("/api/show");
        let sent_requests = server.seen().iter().filter(is_turn).count();
        assert_eq!((sent_requests, used), (self.requests, self.tool_calls), "asked and used: {:?}", types(&events));
        assert!(!json!(events).to_string().contains(KEY), "the key is shown");
    }
}

impl ExpectedEnd {
    fn check(self, events: &[Value]) {
        let over = &events.last().unwrap()["payload"];
        let code = &over["headless"]["exitCodeHint"];
        let errors: Vec<_> = events.iter().filter(|event| event["type"] == "error").collect();
        match self {
            Self::Success(summary) => {
                assert_eq!((&over["outcome"], code), (&json!("success"), &json!(0)), "{over}");
                assert_eq!((&over["summary"], &over["reason"]), (&json!(summary), &Value::Null), "{over}");
                assert!(errors.is_empty(), "{errors:?}");
            }
            Self::Failure(reason) => {
                assert_eq!((&over["outcome"], code), (&json!("failed"), &json!(1)), "{over}");
                assert_eq!(over["reason"], reason, "{over}");
                let codes: Vec<_> = errors.iter().map(|error| &error["payload"]["code"]).collect();
                assert_eq!(codes, [&json!(reason.to_uppercase())]);
            }
        }
    }
}

/// Runs all cases, several at a time, and reports the failed ones.
fn run_all_cases(dialect: ServerDialect) {
    let fixture = Fixture::with(dialect, &[("PUSH_MODEL_SILENCE_SECONDS", "5"), ("PUSH_MODEL_ATTEMPTS", "3")]);
    let waiting = Mutex::new(all_cases(dialect));
    let wrong = Mutex::new(Vec::new());
    let take_cases = || {
        loop {
            let Some(case) = waiting.lock().unwrap().pop() else { return };
            let name = case.name;
            let ended = thread::scope(|scope| {
                let named = thread::Builder::new().name(name.to_owned());
                named.spawn_scoped(scope, || case.run(&fixture, dialect)).unwrap().join()
            });
            if ended.is_err() {
                wrong.lock().unwrap().push(name);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..CONCURRENT_CASES {
            scope.spawn(take_cases);
        }
    });
    assert_eq!(wrong.into_inner().unwrap(), Vec::<&str>::new(), "these cases went wrong with {dialect:?}");
}

fn all_cases(dialect: ServerDialect) -> Vec<Case> {
    [answers(dialect), refusals(), interruptions(), waits(), retries()].into_iter().flatten().collect()
}

fn answers(dialect: ServerDialect) -> Vec<Case> {
    let declined = match dialect {
        // Ollama has no such stop reason.
        ServerDialect::Ollama => "model_stopped",
        ServerDialect::OpenAi | ServerDialect::Anthropic => "model_refused",
    };
    let then = |reply| [reply, Reply::says("Done.")];
    vec![
        succeeds("a text", [Reply::says("Hello!")], "Hello!"),
        succeeds("a token a number", [cases::counts()], &summary_of(cases::numbers().concat())),
        succeeds("nothing, and then something", then(cases::says_nothing()), "Done.").with_requests(2),
        succeeds("blanks, and then something", then(Reply::says(" \n\n")), "Done.").with_requests(2),
        succeeds("any characters", [Reply::says(cases::ANY_TEXT)], "tabs\tand"),
        succeeds("a long text", [Reply::says(&cases::long_text())], &summary_of(cases::long_text())),
        succeeds("thinking", [cases::thinks_first()], "Yes."),
        succeeds("a call", then(cases::calls_once()), "Done.").with_requests(2).with_tool_calls(1),
        succeeds("several calls", then(cases::calls_thrice()), "Done.").with_requests(2).with_tool_calls(3),
        succeeds("arguments in bytes", then(cases::calls_in_bytes()), "Done.").with_requests(2).with_tool_calls(2),
        succeeds("a call without arguments", then(cases::calls_without_arguments(dialect)), "Done.")
            .with_requests(2)
            .with_tool_calls(1),
        succeeds("arguments that are none", then(cases::calls_with_nonsense()), "Done.")
            .with_requests(2)
            .with_tool_calls(2),
        succeeds("a call that is announced", then(cases::announces_a_call()), "Done.")
            .with_requests(2)
            .with_tool_calls(1),
        succeeds("a turn with its cost", [Reply::says("Hello!").spends(cases::SPENT)], "Hello!"),
        succeeds("everything in bytes", then(cases::everything(Delivery::Bytes)), "Done.")
            .with_requests(2)
            .with_tool_calls(1),
        succeeds("everything at once", then(cases::everything(Delivery::Fast)), "Done.")
            .with_requests(2)
            .with_tool_calls(1),
        succeeds("a body without an end", [cases::says_until_it_hangs_up()], "Hello!"),
        succeeds("many tokens", [cases::hurries(20_000)], &summary_of("token ".repeat(40))),
        fails("a turn that gets too long", cases::gets_too_long(), "model_length"),
        fails("a model that declines", cases::declines(), declined),
        fails("nothing, ever", cases::says_nothing(), "provider_invalid_response").with_requests(4),
    ]
}

fn refusals() -> Vec<Case> {
    vec![
        fails("a wrong key", cases::wrong_key(), "provider_unauthorized"),
        fails("a key that is repeated", cases::repeats_the_key(KEY), "provider_unauthorized"),
        fails("a forbidden model", cases::forbidden(), "provider_unauthorized"),
        fails("a missing model", cases::no_such_model(), "model_not_found"),
        fails("a wrong path", cases::no_such_path(), "provider_refused"),
        fails("a refused request", cases::refuses(), "provider_refused"),
        fails("a conversation that is too long", cases::prompt_too_long(), "context_too_long"),
        fails("an empty account", cases::no_credit(), "provider_out_of_credit"),
        fails("a redirect", cases::redirects(), "provider_refused"),
        fails("a web page", cases::web_page(), "provider_invalid_response"),
        fails("another file", cases::another_file(), "provider_invalid_response"),
        fails("no HTTP", Reply::NotHttp, "provider_invalid_response"),
        fails("garbage in the middle", cases::garbles(), "provider_invalid_response"),
        fails("garbage at once", breaks(Fault::Garbage), "provider_invalid_response"),
        fails("a huge line", cases::says_too_long_a_line(9 * 1024 * 1024), "provider_invalid_response"),
        fails("too many calls", cases::calls_too_often(129), "provider_invalid_response"),
        fails("too long arguments", cases::calls_at_length(9 * 1024 * 1024), "provider_invalid_response"),
    ]
}

fn interruptions() -> Vec<Case> {
    let again = |name, reply| succeeds(name, [reply, Reply::says("The whole.")], "The whole.").with_requests(2);
    let split = breaks_off("été", Fault::CutInsideCharacter);
    vec![
        again("a cut in the middle", breaks_off("one", Fault::Cut)),
        again("a cut inside a character", split.clone()),
        again("a cut inside a character of an unframed body", split.delivered(Delivery::UntilClose)),
        again("a reset in the middle", breaks_off("one", Fault::Reset)),
        again("an end that is missing", breaks_off("one", Fault::EndEarly)),
        again("an error in the middle", breaks_off("one", cases::overloaded_midway())),
        again("silence in the middle", breaks_off("one", Fault::Stall)),
        fails("a cut every time", breaks_off("one", Fault::Cut), "provider_interrupted").with_requests(4),
    ]
}

fn waits() -> Vec<Case> {
    let never = "provider_timeout";
    vec![
        fails("silence", Reply::Never, never),
        fails("silence after the head", Reply::HeadOnly, never),
        succeeds("a rate limit", then_success([cases::limited(), cases::limited()]), FINAL_TEXT).with_requests(3),
        succeeds("a rate limit with its time", then_success([cases::limited_for("0.2")]), FINAL_TEXT).with_requests(2),
        fails("a rate limit for hours", cases::limited_for("3600"), "provider_rate_limited"),
        fails("a rate limit that lasts", cases::limited(), "provider_rate_limited").with_requests(3),
    ]
}

fn retries() -> Vec<Case> {
    let broken = Reply::status(500, r#"{"error":{"message":"out of order"}}"#);
    vec![
        succeeds("a server that fails twice", then_success(cases::fails()), FINAL_TEXT).with_requests(3),
        succeeds("a server with too much to do", then_success(cases::has_too_much_to_do()), FINAL_TEXT)
            .with_requests(3),
        succeeds("a server that is too slow", then_success(cases::too_slow_then_in_conflict()), FINAL_TEXT)
            .with_requests(3),
        succeeds("a connection that is closed", then_success([Reply::HangUp]), FINAL_TEXT).with_requests(2),
        succeeds("a connection that is reset", then_success([Reply::Reset]), FINAL_TEXT).with_requests(2),
        succeeds("a cut before anything", then_success(cases::cut_before_anything()), FINAL_TEXT).with_requests(3),
        succeeds("an error before anything", then_success([breaks(cases::overloaded_midway())]), FINAL_TEXT)
            .with_requests(2),
        fails("a server that stays overloaded", cases::overloaded(), "provider_overloaded").with_requests(3),
        fails("a server that is broken", broken, "provider_failed").with_requests(3),
        fails("a server that always hangs up", Reply::HangUp, "provider_interrupted").with_requests(3),
        fails("nobody", Reply::Never, "provider_unreachable").unreachable().with_requests(0),
    ]
}

fn succeeds(name: &'static str, script: impl Into<Vec<Reply>>, summary: &str) -> Case {
    let (script, expected) = (script.into(), ExpectedEnd::Success(summary.to_owned()));
    Case { name, script, always: None, endpoint: TestEndpoint::Server, expected, requests: 1, tool_calls: 0 }
}

fn fails(name: &'static str, always: Reply, reason: &'static str) -> Case {
    let (always, expected) = (Some(always), ExpectedEnd::Failure(reason));
    Case { name, script: Vec::new(), always, endpoint: TestEndpoint::Server, expected, requests: 1, tool_calls: 0 }
}

fn then_success<const N: usize>(failures: [Reply; N]) -> Vec<Reply> {
    failures.into_iter().chain([Reply::says(FINAL_TEXT)]).collect()
}

/// The part of a text that a summary contains.
fn summary_of(text: String) -> String {
    text.chars().take(200).collect::<String>().trim().to_owned()
}

/// The answer after the failures.
const FINAL_TEXT: &str = "at last";
const CONCURRENT_CASES: usize = 6;
