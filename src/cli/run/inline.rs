//! Follows one run in the inline view.

use super::follow::{automatic_decision, reattach_hint};
use crate::cli::approval::ApprovalPolicies;
use crate::cli::context::Context;
use crate::cli::exit::{CliError, Exit};
use crate::cli::ids;
use crate::cli::report::{Progress, Report};
use crate::cli::sanitize::sanitize_line;
use crate::client::{Access, Client};
use crate::tui::{self, Options, StartPosition, ViewExit};

/// Shows a run that has started until it ends or the user leaves; returns its report and the exit code.
pub(super) async fn follow(
    client: Client,
    mut report: Report,
    policies: ApprovalPolicies,
    context: &mut Context,
) -> (Report, Result<Exit, CliError>) {
    let (session, run) = report.ids();
    let (session, run) = (session.to_owned(), run.to_owned());
    let options = Options {
        handle: sanitize_line(&ids::handle(&session)),
        session: session.clone(),
        theme: context.theme(),
        start: StartPosition::Run(run),
        access: Access::Full,
        first_message: None,
        draft: None,
        can_switch: false,
        auto_decision: Some(Box::new(move |pending| automatic_decision(policies, pending))),
    };
    let notices = context.route_notices();
    let hint = reattach_hint(&client, &session);
    let left = tui::run(client, options, notices, &mut |event| {
        if report.includes(event) {
            report.follow(event);
        }
        report.progress() != Progress::Running
    })
    .await;
    let outcome = match left {
        Err(error) => Err(error.into()),
        Ok(ViewExit::Interrupted { .. }) => Ok(Exit::CANCELLED),
        Ok(ViewExit::Detached { .. } | ViewExit::Signalled { .. }) => {
            context.console.note(&hint);
            Ok(Exit::SUCCESS)
        }
        Ok(ViewExit::Unwritable | ViewExit::Switch { .. }) => Ok(Exit::SUCCESS),
        Ok(ViewExit::Finished) => match report.progress() {
            Progress::Finished(exit) => Ok(exit),
            Progress::Running | Progress::Unknown => Err(CliError::OutcomeLost),
        },
    };
    (report, outcome)
}
