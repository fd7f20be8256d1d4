//! The transports in `server_ready`.

use serde_json::json;

use crate::pi::line::{Connection, Transport};
use crate::support::daemon::Daemon;

#[test]
fn a_daemon_without_the_port_offers_only_standard_input_and_output() {
    let daemon = Daemon::start();
    let mut line = Connection::connect(Transport::Stdio, &daemon, "");
    assert_eq!(line.log[0]["data"]["transports"], json!(["stdio"]));
    line.finish();
}

transcripts! {
    a_daemon_with_the_port_offers_both => r#"
        < {"type":"server_ready","data":{"transports":["websocket","stdio"]}}
    "#
}
