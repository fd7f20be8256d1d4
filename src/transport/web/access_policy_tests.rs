//! Tests of the access policy, on requests in memory.

use std::time::Duration;

use super::*;

#[test]
fn loopback_and_configured_host_names_are_accepted_with_any_port() {
    for host in ["localhost", "LocalHost:3141", "127.0.0.1:80", "[::1]", "[::1]:3141", "box.lan:3141"] {
        assert_eq!(policy().check_origin(&with(&[("host", host)])), Ok(()), "{host}");
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
        assert_eq!(policy().check_origin(&with(&[("host", host)])), Err(AccessRefusal::Host), "{host}");
    }
    assert_eq!(policy().check_origin(&with(&[])), Err(AccessRefusal::Host));
    assert_eq!(
        policy().check_origin(&with(&[("host", "localhost"), ("host", "evil.example")])),
        Err(AccessRefusal::Host),
        "twice"
    );
}

#[test]
fn a_target_that_names_another_host_is_refused() {
    for (target, admitted) in [("http://evil.example/pi", false), ("http://localhost:3141/pi", true)] {
        let request = Request::builder().uri(target).header("host", "localhost").body(()).unwrap();
        assert_eq!(policy().check_origin(&request).is_ok(), admitted, "{target}");
    }
}

#[test]
fn only_a_listed_origin_is_allowed() {
    let admits = |origin: &str| policy().check_origin(&with(&[("host", "localhost"), ("origin", origin)]));
    assert_eq!(admits("https://app.example"), Ok(()));
    for origin in [
        "null",
        "http://app.example",
        "https://app.example.evil",
        "https://app.example:444",
        "http://localhost:3141",
        "",
    ] {
        assert_eq!(admits(origin), Err(AccessRefusal::Origin), "{origin}");
    }
    let two = with(&[("host", "localhost"), ("origin", "https://app.example"), ("origin", "https://app.example")]);
    assert_eq!(policy().check_origin(&two), Err(AccessRefusal::Origin));
}

#[test]
fn the_key_is_answered_as_the_protocol_says() {
    let (granted, _) = policy().negotiate(&with(&GOOD)).unwrap();
    // The example of RFC 6455.
    assert_eq!(granted, UpgradeReply { accept: "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".into(), protocol: None });
}

#[test]
fn the_subprotocol_is_spoken_if_it_is_offered_and_a_token_is_never_repeated() {
    let mut offering = GOOD.to_vec();
    offering.push(("sec-websocket-protocol", "chat, pi"));
    offering.push(("sec-websocket-protocol", "bearer.secret"));
    let request = with(&offering);
    assert_eq!(policy().negotiate(&request).unwrap().0.protocol, Some("pi"));
    assert_eq!(bearer_token(&request).as_deref(), Some("secret"));
}

#[test]
fn the_path_selects_the_protocol() {
    for (path, protocol) in [("/", "pi"), ("/pi", "pi"), ("/other", "other")] {
        let request =
            GOOD.iter().fold(Request::builder().uri(path), |request, (name, value)| request.header(*name, *value));
        let (_, endpoint) = policy().negotiate(&request.body(()).unwrap()).unwrap();
        assert_eq!(endpoint.protocol, protocol, "{path}");
    }
}

#[test]
fn a_token_is_read_from_a_header_and_never_from_the_url() {
    let of = |name: &'static str, value: &'static str| bearer_token(&with(&[(name, value)]));
    assert_eq!(of("authorization", "Bearer abc").as_deref(), Some("abc"));
    assert_eq!(of("authorization", "bearer  abc ").as_deref(), Some("abc"));
    assert_eq!(of("authorization", "Basic abc"), None);
    assert_eq!(of("authorization", "abc"), None);
    let request = Request::builder().uri("/pi?token=abc").body(()).unwrap();
    assert_eq!(bearer_token(&request), None);
    let twice = with(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]);
    assert_eq!(bearer_token(&twice), None);
}

#[test]
fn everything_but_a_websocket_is_refused_for_its_reason() {
    let changed = |name: &'static str, value: &'static str| {
        let mut headers = GOOD.to_vec();
        headers.retain(|(known, _)| *known != name);
        headers.push((name, value));
        policy().negotiate(&with(&headers)).unwrap_err()
    };
    assert_eq!(changed("upgrade", "h2c"), AccessRefusal::NotAWebSocket);
    assert_eq!(changed("connection", "keep-alive"), AccessRefusal::NotAWebSocket);
    assert_eq!(changed("sec-websocket-version", "8"), AccessRefusal::UnsupportedVersion);
    for key in ["", "short", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZSBpcyB0b28gbG9uZw=="] {
        assert_eq!(changed("sec-websocket-key", key), AccessRefusal::Key, "{key}");
    }
    let to = |method: &str, target: &str| {
        let request = Request::builder().method(method).uri(target).header("host", "localhost");
        policy().negotiate(&request.body(()).unwrap()).unwrap_err()
    };
    assert_eq!(to("POST", "/pi"), AccessRefusal::Method);
    assert_eq!(to("OPTIONS", "/"), AccessRefusal::Method);
    assert_eq!(to("GET", "/pi/"), AccessRefusal::Path);
    assert_eq!(to("GET", "/"), AccessRefusal::NotAWebSocket);
    let old = Request::builder().version(Version::HTTP_10).header("upgrade", "websocket");
    let old = old.header("connection", "upgrade").body(()).unwrap();
    assert_eq!(policy().negotiate(&old).unwrap_err(), AccessRefusal::NotAWebSocket);
}

const GOOD: [(&str, &str); 4] = [
    ("upgrade", "WebSocket"),
    ("connection", "keep-alive, Upgrade"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

fn policy() -> AccessPolicy {
    let (hosts, origins) = (vec!["box.lan".into()], vec!["https://app.example".into()]);
    let socket = SocketLimits { message: 1, stall_timeout: Duration::from_secs(1), has_request_id: |_| false };
    let endpoints = [("/", "pi"), ("/pi", "pi"), ("/other", "other")];
    let endpoints = endpoints.map(|(path, protocol)| WebEndpoint { path, protocol, socket }).to_vec();
    AccessPolicy { hosts, origins, endpoints }
}

fn with(headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().uri("/pi");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}
