//! `push playbook`: runs the steps of a file, independently of the configured provider.

use super::context::Context;
use super::exit::{CliError, Exit};
use super::message;
use super::run::{RunFlags, RunPlan, execute};
use crate::provider::playbook;

/// Run the steps of a playbook, without a model
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A playbook is Markdown. A line that begins with `$ ` is a step, and so is a fenced block marked sh, bash, shell or console; \
`?$ ` asks for approval first. Everything else is prose. The first step that fails ends the run. \
Exit codes are those of `push run`.

Examples:
  push playbook release.md
  push playbook --headless --report junit=push.xml checks.md
  generate-steps | push playbook -")]
pub(crate) struct PlaybookArgs {
    /// The playbook; `-` reads standard input
    file: String,
    #[command(flatten)]
    flags: RunFlags,
}

/// Runs a playbook.
pub(crate) async fn run(args: PlaybookArgs, context: &mut Context) -> Result<Exit, CliError> {
    let mut interrupts = args.flags.interrupts()?;
    let message = tokio::select! {
        biased;
        _ = interrupts.next() => return Ok(Exit::CANCELLED),
        message = message::read_playbook(&args.file) => message?,
    };
    let plan = RunPlan { message, provider: Some(playbook::NAME.to_owned()), model: None, is_playbook: true };
    execute(plan, args.flags, interrupts, context).await
}
