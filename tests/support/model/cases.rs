//! Server behaviour, case by case, shared by the provider tests and the tests of whole runs.
//!
//! A function that returns one reply scripts one request; a function that returns several scripts a request and the
//! ones after it.

use super::ServerDialect;
use super::script::{Delivery, End, Fault, Reply, Step, TurnCost, call, fault, say, think};

/// A read-only tool that every case uses.
pub(crate) const LOOK: &str = "sandbox_list_dir";
/// Arguments with multi-byte characters and nested values.
pub(crate) const ARGS: &str = r#"{"path":"café/😀.txt","lines":[1,2,3]}"#;
/// A text that resembles the framing around it, and has every kind of character.
pub(crate) const ANY_TEXT: &str =
    "tabs\tand\nlines\r\n\"quotes\" \\back\\ \u{0} \u{7f} é € 😀 \u{2028} data: [DONE]\n\ndata: {}\n";
/// The usage of a turn.
pub(crate) const SPENT: TurnCost = TurnCost { fresh: 100, cache_read: 40, cache_write: 10, output: 7, dollars: 0.25 };

/// Numbers, one token each.
pub(crate) fn numbers() -> Vec<String> {
    (0..200).map(|number| format!("{number} ")).collect()
}

pub(crate) fn counts() -> Reply {
    Reply::turn(numbers().iter().map(|token| say(token)))
}

pub(crate) fn says_nothing() -> Reply {
    Reply::turn([])
}

/// A text of many frames.
pub(crate) fn long_text() -> String {
    "lorem € ".repeat(100_000)
}

pub(crate) fn thinks_first() -> Reply {
    Reply::turn([think("hm"), think("!"), say("Yes"), say(".")])
}

pub(crate) fn calls_once() -> Reply {
    Reply::turn([call("call_7", LOOK, r#"{"path":"the sky"}"#)])
}

pub(crate) fn calls_thrice() -> Reply {
    Reply::turn([
        call("c1", LOOK, r#"{"path":"1"}"#),
        call("c2", "sandbox_git_status", "{}"),
        call("c3", LOOK, r#"{"path":"3"}"#),
    ])
}

/// Two calls, their arguments a byte at a time.
pub(crate) fn calls_in_bytes() -> Reply {
    let step = |id: &str| Step::Call { id: id.to_owned(), tool: LOOK.to_owned(), args: ARGS.to_owned(), fragment: 1 };
    Reply::turn([step("c1"), step("c2")])
}

pub(crate) fn calls_without_arguments(dialect: ServerDialect) -> Reply {
    let args = if dialect == ServerDialect::Ollama { "{}" } else { "" };
    Reply::turn([call("c1", LOOK, args)])
}

pub(crate) fn calls_with_nonsense() -> Reply {
    Reply::turn([call("c1", LOOK, "[1,2]"), call("c2", LOOK, "{oops")])
}

pub(crate) fn announces_a_call() -> Reply {
    Reply::turn([think("hm"), say("Looking."), call("c1", LOOK, "{}")])
}

pub(crate) fn gets_too_long() -> Reply {
    Reply::says("and then").ends(End::Length)
}

pub(crate) fn declines() -> Reply {
    Reply::says("I will not.").ends(End::Refused)
}

/// Everything that a turn may contain, with the given delivery.
pub(crate) fn everything(delivery: Delivery) -> Reply {
    let steps = [think("né"), say("l'été €"), call("c1", LOOK, r#"{"path":"é"}"#)];
    Reply::turn(steps).spends(SPENT).delivered(delivery)
}

pub(crate) fn says_until_it_hangs_up() -> Reply {
    Reply::says("Hello!").delivered(Delivery::UntilClose)
}

/// This many tokens as fast as they can be sent.
pub(crate) fn hurries(tokens: usize) -> Reply {
    Reply::turn((0..tokens).map(|_| say("token "))).delivered(Delivery::Fast)
}

pub(crate) fn wrong_key() -> Reply {
    Reply::status(401, r#"{"error":{"type":"authentication_error","message":"bad key"}}"#)
}

pub(crate) fn repeats_the_key(key: &str) -> Reply {
    Reply::status(401, &format!("{{\"error\":{{\"message\":\"wrong key {key}\"}}}}"))
}

pub(crate) fn forbidden() -> Reply {
    Reply::status(403, r#"{"error":{"message":"not for you"}}"#)
}

pub(crate) fn no_such_model() -> Reply {
    Reply::status(404, r#"{"error":{"message":"model 'test-model' not found"}}"#)
}

pub(crate) fn no_such_path() -> Reply {
    Reply::status(404, "404 page not found")
}

pub(crate) fn refuses() -> Reply {
    Reply::status(400, r#"{"error":{"message":"this model does not support tools"}}"#)
}

pub(crate) fn prompt_too_long() -> Reply {
    Reply::status(400, r#"{"error":{"message":"prompt is too long"}}"#)
}

pub(crate) fn no_credit() -> Reply {
    Reply::status(402, r#"{"error":{"message":"no credits"}}"#)
}

pub(crate) fn redirects() -> Reply {
    Reply::status(307, "").header("location", "http://127.0.0.1:9/elsewhere")
}

pub(crate) fn web_page() -> Reply {
    Reply::status(200, "<html><body>Please log in</body></html>").header("content-type", "text/html")
}

pub(crate) fn another_file() -> Reply {
    Reply::status(200, "%PDF-1.7 and so on\n").header("content-type", "application/octet-stream")
}

/// Sends this text, and then fails.
pub(crate) fn breaks_off(text: &str, wrong: Fault) -> Reply {
    Reply::turn([say(text), fault(wrong)])
}

/// Fails before it sends anything.
pub(crate) fn breaks(wrong: Fault) -> Reply {
    Reply::turn([fault(wrong)])
}

pub(crate) fn garbles() -> Reply {
    Reply::turn([say("one"), fault(Fault::Garbage), say("two")])
}

pub(crate) fn says_too_long_a_line(bytes: usize) -> Reply {
    Reply::turn([say("one"), fault(Fault::HugeLine(bytes)), say("two")])
}

/// The error of an overloaded server in the middle of a response.
pub(crate) fn overloaded_midway() -> Fault {
    Fault::Error { kind: "overloaded_error".to_owned(), message: "come back later".to_owned() }
}

pub(crate) fn calls_too_often(calls: usize) -> Reply {
    Reply::turn((0..calls).map(|number| call(&format!("c{number}"), LOOK, "{}")))
}

pub(crate) fn calls_at_length(bytes: usize) -> Reply {
    Reply::turn([call("c1", LOOK, &format!("{{\"path\":\"{}\"}}", "x".repeat(bytes)))])
}

pub(crate) fn limited() -> Reply {
    Reply::status(429, r#"{"error":{"type":"rate_limit_error","message":"slow down"}}"#)
}

pub(crate) fn limited_for(seconds: &str) -> Reply {
    limited().header("retry-after", seconds)
}

pub(crate) fn fails() -> [Reply; 2] {
    [Reply::status(500, "oops"), Reply::status(502, "<html>bad gateway</html>")]
}

pub(crate) fn has_too_much_to_do() -> [Reply; 2] {
    [Reply::status(503, ""), Reply::status(529, "")]
}

pub(crate) fn overloaded() -> Reply {
    let body = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    Reply::status(529, body)
}

pub(crate) fn too_slow_then_in_conflict() -> [Reply; 2] {
    [Reply::status(408, ""), Reply::status(409, "")]
}

pub(crate) fn cut_before_anything() -> [Reply; 2] {
    [breaks(Fault::Cut), breaks(Fault::EndEarly)]
}
