//! Attempts to make a fetch reach a host without a decision about it.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pushd::agent::policy::{Call, CallContext, Decision, Policy, RuleSource, Sandbox};
use pushd::config::settings::Settings;
use pushd::sandbox::risk::PathContext;
use pushd::tools::{Limits, PinnedAddresses, Risk, ToolErrorKind};
use serde_json::json;

use crate::tools::fixture::{Fixture, Server, parse};

#[tokio::test]
async fn an_address_is_assessed_by_its_target_however_it_is_written() {
    for (url, expected) in [
        ("http://127.0.0.1/", Risk::High),
        ("http://127.1/", Risk::High),
        ("http://0x7f.1/", Risk::High),
        ("http://2130706433/", Risk::High),
        ("http://0177.0.0.1:8080/x", Risk::High),
        ("http://[::ffff:127.0.0.1]/", Risk::High),
        ("http://[::1]:80/", Risk::High),
        ("http://127.0.0.1./", Risk::High),
        ("http://LOCALHOST/", Risk::High),
        ("http://100.64.0.1/", Risk::High),
        ("http://[64:ff9b::10.0.0.1]/", Risk::High),
        ("http://0/", Risk::High),
        ("http://169.254.169.254/latest/meta-data", Risk::Critical),
        ("http://0xa9fea9fe/", Risk::Critical),
        ("http://[::ffff:169.254.169.254]/", Risk::Critical),
        ("http://[fd00:ec2::254]/", Risk::Critical),
        ("http://100.100.100.200/", Risk::Critical),
        ("http://Metadata.Google.Internal/", Risk::Critical),
        ("https://93.184.216.34/", Risk::Medium),
        ("https://example.org/", Risk::Medium),
    ] {
        assert_eq!(risk("sandbox_fetch", json!({"url": url}), &[]), expected, "{url}");
    }
    for (found, expected) in [
        (&["93.184.216.34"][..], Risk::Medium),
        (&["93.184.216.34", "10.0.0.1"], Risk::High),
        (&["::1"], Risk::High),
        (&["169.254.169.254"], Risk::Critical),
        (&["93.184.216.34", "64:ff9b::a9fe:a9fe"], Risk::Critical),
    ] {
        let risk = risk("sandbox_fetch", json!({"url": "https://example.org/"}), found);
        assert_eq!(risk, expected, "{found:?}");
    }
}

#[tokio::test]
async fn a_command_that_requests_instance_credentials_is_critical() {
    for command in [
        "curl http://169.254.169.254/latest/meta-data/iam",
        "curl -s http://0xa9fea9fe/",
        "wget -qO- http://2852039166/x",
        "curl 'http://[::ffff:169.254.169.254]/'",
        "curl http://metadata.google.internal/computeMetadata/v1/",
        "curl http://good@169.254.169.254/",
    ] {
        assert_eq!(risk("sandbox_exec", json!({"command": command}), &[]), Risk::Critical, "{command}");
    }
    assert_eq!(risk("sandbox_exec", json!({"command": "curl http://127.1/"}), &[]), Risk::High);
}

#[tokio::test]
async fn a_rule_for_a_name_or_an_address_holds_however_it_is_written() {
    let decide = |rule: &str, url: &str, found: &[&str]| {
        let policy = Policy::from_settings(&Settings::default()).with_rules(RuleSource::User, &[rule.parse().unwrap()]);
        let request = parse("sandbox_fetch", &json!({"url": url}).to_string()).unwrap();
        let path_context = PathContext::new(Path::new("/w"), None).with_addresses(ips(found));
        let context = CallContext { sandbox: Sandbox::Full, path_context };
        policy.decide(&Call { request: &request, escalation: request.escalation() }, &context).decision
    };
    let (allowed, denied) = ("allow: network(docs.example.org)", "deny: network(127.0.0.1)");
    assert_eq!(decide(allowed, "https://docs.example.org/", &["93.184.216.34"]), Decision::Allow);
    // Permission for a name does not cover an address of this machine.
    for found in ["127.0.0.1", "10.0.0.1", "::1", "169.254.169.254", "::ffff:10.0.0.1"] {
        assert_eq!(decide(allowed, "https://docs.example.org/", &[found]), Decision::Ask, "{found}");
    }
    for url in ["http://127.1/", "http://0x7f000001/", "http://[::ffff:7f00:1]/", "http://127.0.0.1./"] {
        assert_eq!(decide(denied, url, &[]), Decision::Deny, "{url}");
    }
    assert_eq!(decide(denied, "https://rebound.example.org/", &["127.0.0.1"]), Decision::Deny);
}

#[tokio::test]
async fn the_decided_address_is_connected_to_under_the_original_name() {
    let (fixture, server, hosts) = fixture_with_addresses(&["127.0.0.1", "127.0.0.2"]);
    let url = server.url("/").replace("127.0.0.1", "page.example");
    let page = fixture.run("sandbox_fetch", json!({"url": url})).await;
    assert!(page.text.ends_with("]\nhello"), "{page:?}");
    assert_eq!(hosts.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_name_rebound_after_the_decision_does_not_reach_this_machine() {
    // Public at the decision, this machine at the fetch.
    let (mut fixture, server, hosts) = fixture_with_addresses(&["192.0.2.1", "127.0.0.1"]);
    fixture.context.limits = Limits { fetch_timeout: Duration::from_millis(500), ..Limits::default() };
    let url = server.url("/").replace("127.0.0.1", "page.example");
    let outcome = fixture.run("sandbox_fetch", json!({"url": url})).await;
    assert!(outcome.error.is_some(), "{outcome:?}");
    assert_eq!(*hosts.lock().unwrap(), Vec::<String>::new(), "the server of this machine was not asked");
}

#[tokio::test]
async fn a_fetch_without_a_decision_reaches_no_private_address() {
    let (fixture, server, paths) = fixture_with_addresses(&["127.0.0.1"]);
    let port = server.url("");
    let port = port.rsplit(':').next().unwrap();
    for host in ["127.0.0.1", "127.1", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "page.example"] {
        let url = format!("http://{host}:{port}/");
        let outcome = fixture.run_undecided("sandbox_fetch", json!({"url": url})).await;
        assert_eq!(outcome.error.map(|fault| fault.kind), Some(ToolErrorKind::ApprovalStale), "{url}");
    }
    assert_eq!(*paths.lock().unwrap(), Vec::<String>::new());
    // After a decision it is reached.
    let page = fixture.run("sandbox_fetch", json!({"url": format!("http://127.1:{port}/")})).await;
    assert!(page.text.ends_with("]\nhello"), "{page:?}");
}

#[tokio::test]
async fn an_approval_of_a_public_page_is_none_of_a_private_one() {
    let (mut fixture, server, paths) = fixture_with_addresses(&["93.184.216.34"]);
    let url = server.url("/").replace("127.0.0.1", "page.example");
    let approval = fixture.approval_question("sandbox_fetch", json!({"url": url})).await.unwrap();
    assert_eq!(approval.details["addresses"], json!(["93.184.216.34"]));
    assert_eq!(approval.risk, Risk::Medium);
    // After a restart of the daemon the name resolves to another address.
    fixture.context.addresses = Arc::new(resolving_to(&["127.0.0.1"]));
    fixture.context.approved_digest = Some(approval.digest);
    let outcome = fixture.run_undecided("sandbox_fetch", json!({"url": url})).await;
    assert_eq!(outcome.error.map(|fault| fault.kind), Some(ToolErrorKind::ApprovalStale));
    assert_eq!(*paths.lock().unwrap(), Vec::<String>::new());
    // An approval of the private address is valid.
    fixture.context.approved_digest = None;
    let approval = fixture.approval_question("sandbox_fetch", json!({"url": url})).await.unwrap();
    assert_eq!((approval.risk, &approval.details["addresses"]), (Risk::High, &json!(["127.0.0.1"])));
    fixture.context.approved_digest = Some(approval.digest);
    let page = fixture.run_undecided("sandbox_fetch", json!({"url": url})).await;
    assert!(page.text.ends_with("]\nhello"), "{page:?}");
}

#[tokio::test]
async fn a_redirect_reaches_no_other_host_and_no_other_spelling_of_one() {
    let near = Arc::new(Mutex::new(Vec::new()));
    let chunks = Arc::clone(&near);
    let target = Server::start(move |path| {
        chunks.lock().unwrap().push(path.to_owned());
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nno".into()
    });
    let port = target.url("").rsplit(':').next().unwrap().to_owned();
    let server = Server::start(move |path| {
        let host = path.trim_start_matches('/');
        format!("HTTP/1.1 302 Found\r\nlocation: http://{host}:{port}/\r\ncontent-length: 0\r\n\r\n")
    });
    let mut fixture = Fixture::new();
    fixture.context.addresses = Arc::new(resolving_to(&["127.0.0.1"]));
    for host in ["127.0.0.1", "localhost", "127.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254"] {
        let url = server.url(&format!("/{host}")).replace("127.0.0.1:", "page.example:");
        let outcome = fixture.run("sandbox_fetch", json!({"url": url})).await;
        assert_eq!(outcome.error.map(|fault| fault.kind), Some(ToolErrorKind::RedirectedAway), "{host}");
    }
    assert_eq!(*near.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_host_with_a_secret_in_it_is_not_looked_up() {
    let mut fixture = Fixture::new();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let chunks = Arc::clone(&requests);
    fixture.context.addresses = Arc::new(PinnedAddresses::new(Box::new(move |host| {
        chunks.lock().unwrap().push(host);
        Box::pin(async { Ok(ips(&["93.184.216.34"])) })
    })));
    fixture.context.redact = Arc::new(|text| text.replace("hunter2hunter2", "[redacted]"));
    let url = "https://hunter2hunter2.example.org/";
    let fault = fixture.approval_question("sandbox_fetch", json!({"url": url})).await.unwrap_err();
    assert_eq!(fault.kind, ToolErrorKind::BadArguments);
    assert_eq!(*requests.lock().unwrap(), Vec::<String>::new());
}

/// A workspace in which every name resolves to these addresses in turn, a server, and the paths requested from it.
fn fixture_with_addresses(found: &[&'static str]) -> (Fixture, Server, Arc<Mutex<Vec<String>>>) {
    let paths = Arc::new(Mutex::new(Vec::new()));
    let chunks = Arc::clone(&paths);
    let server = Server::start(move |path| {
        chunks.lock().unwrap().push(path.to_owned());
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello".into()
    });
    let mut fixture = Fixture::new();
    fixture.context.addresses = Arc::new(resolving_to(found));
    (fixture, server, paths)
}

/// Resolves to these addresses in turn, then always to the last.
fn resolving_to(found: &[&str]) -> PinnedAddresses {
    let left = Mutex::new(ips(found));
    PinnedAddresses::new(Box::new(move |_| {
        let mut left = left.lock().unwrap();
        let next = if left.len() > 1 { left.remove(0) } else { left[0] };
        Box::pin(async move { Ok(vec![next]) })
    }))
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn risk(tool: &str, args: serde_json::Value, found: &[&str]) -> Risk {
    let request = parse(tool, &args.to_string()).unwrap();
    request.assess_risk(request.escalation(), &PathContext::new(Path::new("/w"), None).with_addresses(ips(found))).risk
}
