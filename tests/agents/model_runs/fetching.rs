//! The approval of a fetch shows the addresses that its host resolves to.

use std::fs;

use serde_json::{Value, json};

use crate::model_runs::fixture::{Fixture, turn_with_call};
use crate::support::model::{Reply, ServerDialect};

#[test]
fn a_fetch_shows_the_addresses_that_its_host_resolves_to() {
    let fixture = Fixture::new();
    let config = fixture.config();
    fs::create_dir_all(config.parent().expect("a folder")).expect("a directory");
    fs::write(&config, "[tools]\nfetch = true\n").expect("a file");
    let place = fixture.server.base_url(ServerDialect::OpenAi);
    let port = place.trim_end_matches("/v1").rsplit(':').next().expect("a port").trim_end_matches('/');
    let near = format!("http://0x7f.1:{port}/nothing");
    fixture.server.script([
        turn_with_call("Fetch.", "sandbox_fetch", json!({"url": near})),
        turn_with_call("Fetch.", "sandbox_fetch", json!({"url": "http://[::ffff:169.254.169.254]/latest"})),
        Reply::says("Done."),
    ]);
    let (mut client, _) = fixture.start_run("go");
    let approval = client.event_of("approval_required");
    let details = &approval["payload"]["details"];
    assert_eq!((&details["addresses"], &details["risk"]), (&json!(["127.0.0.1"]), &json!("high")), "{approval}");
    let listed = fixture.daemon.command("push").args(["approvals", "--whole"]).output().expect("push");
    let screen = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(screen.contains("  at 127.0.0.1\n"), "{screen}");
    client.decide(&approval, "approve");
    let result = client.event_of("tool_result");
    assert_eq!(result["payload"]["structuredError"]["code"], "HTTP_STATUS", "it was reached: {result}");
    let approval = client.event_of("approval_required");
    let details = &approval["payload"]["details"];
    assert_eq!((&details["risk"], &approval["payload"]["remember"]), (&json!("critical"), &Value::Null), "{approval}");
    assert_eq!(details["addresses"], json!(["169.254.169.254"]));
    client.decide(&approval, "deny");
    client.event_of("run_complete");
}
