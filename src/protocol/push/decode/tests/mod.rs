//! Every request as clients send it, and every error.

mod read;
mod refuse;

use super::*;

fn read(line: &str) -> Result<Request, Malformed> {
    decode(line.as_bytes(), &DecodeLimits::default())
}

fn ask(kind: &str, payload: &str) -> Ask {
    read(&request("", kind, payload)).unwrap().ask
}

fn of_session(kind: &str, fields: &str) -> SessionAsk {
    let ask = ask(kind, &format!(r#"{{"sessionId":"s"{fields}}}"#));
    let Ask::Session { id, ask } = ask else { panic!("asks the daemon: {ask:?}") };
    assert_eq!(id.as_str(), "s");
    ask
}

fn request(envelope: &str, kind: &str, payload: &str) -> String {
    format!(
        r#"{{"v":"push.runtime.v1","kind":"request","requestId":"q","type":"{kind}",{envelope}"payload":{payload}}}"#
    )
}

fn message(field: &str, value: &str) -> String {
    format!(r#"{{"sessionId":"s","text":"t","{field}":{value}}}"#)
}

fn approval(fields: &str) -> String {
    format!(r#"{{"sessionId":"s","approvalId":"a",{fields}}}"#)
}

const fn here() -> &'static str {
    if cfg!(windows) { "C:\\work" } else { "/srv/project" }
}
