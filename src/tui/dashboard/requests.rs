//! The task that sends requests, so that the dashboard never waits for the daemon.

use serde_json::value::RawValue;
use tokio::sync::mpsc::{Sender, UnboundedReceiver};

use super::model::Input;
use super::pane::Answer;
use crate::client::{Client, Request, RequestError};
use crate::tui::client_task::call_error;

/// What a task reports.
#[derive(Debug)]
pub(crate) enum Report {
    /// Something happened.
    Input(Input),
    /// The daemon cannot be reached any more.
    Lost(RequestError),
}

/// Sends requests in order until the dashboard ends or the daemon is lost.
pub(crate) async fn serve(
    mut client: Client,
    mut requests: UnboundedReceiver<(u64, Request<Box<RawValue>>)>,
    reports: Sender<Report>,
) {
    client.stay();
    while let Some((number, request)) = requests.recv().await {
        let report = match client.request(request).await {
            Err(error @ RequestError::Unreachable(_)) => Report::Lost(error),
            reply => {
                let result = reply.map(|json| json.get().to_owned()).map_err(|error| call_error(&error));
                Report::Input(Input::Answer(Answer { number, result }))
            }
        };
        let is_lost = matches!(report, Report::Lost(_));
        if reports.send(report).await.is_err() || is_lost {
            return;
        }
    }
}
