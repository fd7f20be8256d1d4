//! Tests of the access policy, on requests in memory.

use super::*;

#[test]
fn the_loopback_names_and_configured_ones_are_ours_with_any_port() {
    for host in ["localhost", "LocalHost:3141", "127.0.0.1:80", "[::1]", "[::1]:3141", "box.lan:3141"] {
        assert_eq!(door().admits(&with(&[("host", host)])), Ok(()), "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "evil.localhost",
        "127.0.0.1.evil.example:3141",
        "127.0.0.2",
        "localhost:3141.evil.example",
        "localhost:",
        "localhost:31 41",
        "[::1].evil.example",
        "[::1",
        "::1",
        "user@localhost",
        "localhost.",
        "",
    ] {
        assert_eq!(door().admits(&with(&[("host", host)])), Err(Refusal::Host), "{host}");
    }
    assert_eq!(door().admits(&with(&[])), Err(Refusal::Host));
    assert_eq!(
        door().admits(&with(&[("host", "localhost"), ("host", "evil.example")])),
        Err(Refusal::Host),
        "twice"
    );
}

#[test]
fn a_target_that_names_another_host_is_refused() {
    for (target, admitted) in [("http://evil.example/pi", false), ("http://localhost:3141/pi", true)] {
        let request = Request::builder().uri(target).header("host", "localhost").body(()).unwrap();
        assert_eq!(door().admits(&request).is_ok(), admitted, "{target}");
    }
}

#[test]
fn an_origin_is_allowed_by_name_alone() {
    let admits = |origin: &str| door().admits(&with(&[("host", "localhost"), ("origin", origin)]));
    assert_eq!(admits("https://app.example"), Ok(()));
    for origin in [
        "null",
        "http://app.example",
        "https://app.example.evil",
        "https://app.example:444",
        "http://localhost:3141",
        "",
    ] {
        assert_eq!(admits(origin), Err(Refusal::Origin), "{origin}");
    }
    let two =
        with(&[("host", "localhost"), ("origin", "https://app.example"), ("origin", "https://app.example")]);
    assert_eq!(door().admits(&two), Err(Refusal::Origin));
}

#[test]
fn the_key_is_answered_as_the_protocol_says() {
    let granted = door().grants(&with(&GOOD)).unwrap();
    // The example of RFC 6455.
    assert_eq!(granted, Grant { accept: "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".into(), protocol: None });
}

#[test]
fn the_subprotocol_is_spoken_if_it_is_offered_and_a_token_is_never_repeated() {
    let mut offering = GOOD.to_vec();
    offering.push(("sec-websocket-protocol", "chat, pi"));
    offering.push(("sec-websocket-protocol", "bearer.secret"));
    let request = with(&offering);
    assert_eq!(door().grants(&request).unwrap().protocol, Some("pi"));
    assert_eq!(token(&request).as_deref(), Some("secret"));
}

#[test]
fn a_token_comes_in_a_header_and_never_in_the_address() {
    let of = |name: &'static str, value: &'static str| token(&with(&[(name, value)]));
    assert_eq!(of("authorization", "Bearer abc").as_deref(), Some("abc"));
    assert_eq!(of("authorization", "bearer  abc ").as_deref(), Some("abc"));
    assert_eq!(of("authorization", "Basic abc"), None);
    assert_eq!(of("authorization", "abc"), None);
    let request = Request::builder().uri("/pi?token=abc").body(()).unwrap();
    assert_eq!(token(&request), None);
    let twice = with(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]);
    assert_eq!(token(&twice), None);
}

#[test]
fn everything_but_a_websocket_is_refused_for_its_reason() {
    let changed = |name: &'static str, value: &'static str| {
        let mut headers = GOOD.to_vec();
        headers.retain(|(known, _)| *known != name);
        headers.push((name, value));
        door().grants(&with(&headers)).unwrap_err()
    };
    assert_eq!(changed("upgrade", "h2c"), Refusal::NotAWebSocket);
    assert_eq!(changed("connection", "keep-alive"), Refusal::NotAWebSocket);
    assert_eq!(changed("sec-websocket-version", "8"), Refusal::OtherVersion);
    for key in ["", "short", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZSBpcyB0b28gbG9uZw=="] {
        assert_eq!(changed("sec-websocket-key", key), Refusal::Key, "{key}");
    }
    let to = |method: &str, target: &str| {
        let request = Request::builder().method(method).uri(target).header("host", "localhost");
        door().grants(&request.body(()).unwrap()).unwrap_err()
    };
    assert_eq!(to("POST", "/pi"), Refusal::Method);
    assert_eq!(to("OPTIONS", "/"), Refusal::Method);
    assert_eq!(to("GET", "/pi/"), Refusal::Path);
    assert_eq!(to("GET", "/"), Refusal::NotAWebSocket);
    let old = Request::builder().version(Version::HTTP_10).header("upgrade", "websocket");
    let old = old.header("connection", "upgrade").body(()).unwrap();
    assert_eq!(door().grants(&old), Err(Refusal::NotAWebSocket));
}

const GOOD: [(&str, &str); 4] = [
    ("upgrade", "WebSocket"),
    ("connection", "keep-alive, Upgrade"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

fn door() -> Door {
    let (hosts, origins) = (vec!["box.lan".into()], vec!["https://app.example".into()]);
    Door { hosts, origins, paths: &["/", "/pi"], protocol: "pi" }
}

fn with(headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().uri("/pi");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}
