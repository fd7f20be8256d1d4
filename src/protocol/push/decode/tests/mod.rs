//! Every request as clients send it, and every error.

mod read;
mod refuse;

use super::*;
use crate::protocol::intent::*;

fn read(line: &str) -> Result<Request, MalformedRequest> {
    decode(line.as_bytes(), &DecodeLimits::default())
}

fn decode_body(kind: &str, payload: &str) -> Intent {
    read(&request("", kind, payload)).unwrap().intent
}

fn decode_session_body(kind: &str, fields: &str) -> SessionIntent {
    let intent = decode_body(kind, &format!(r#"{{"sessionId":"s"{fields}}}"#));
    let Intent::Session { id, body } = intent else { panic!("a request to the daemon: {intent:?}") };
    assert_eq!(id.as_str(), "s");
    body
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

const fn working_dir() -> &'static str {
    if cfg!(windows) { "C:\\work" } else { "/srv/project" }
}
