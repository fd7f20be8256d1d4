//! `push approve` and `push deny`: decide a pending approval.

use super::approval::{Decision, PendingApproval, Scope};
use super::context::Context;
use super::exit::{CliError, Exit};
use super::ids::{self, NameError};
use super::sanitize::sanitize_line;
use crate::client::{ListedApproval, Request};

/// Approve a pending approval
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  push approve                      the only pending approval\n  push approve appr_01H --comment 'looks good'\n  push approve appr_01H --choice skip\n  push approve appr_01H --for session   and do not ask again in this session\n  push approve appr_01H --for always --rule 'allow: exec(cargo *)'\n  push approve appr_01H --answer blue   answer a question of the model"
)]
pub(crate) struct ApproveArgs {
    /// The approval; optional if only one is pending
    id: Option<String>,
    /// A comment
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// One of its choices, if it offers more than approve and deny
    #[arg(long, value_name = "CHOICE")]
    choice: Option<String>,
    /// How long the same request is approved without asking again
    #[arg(long = "for", value_name = "SCOPE", conflicts_with = "choice")]
    scope: Option<Scope>,
    /// The rule to remember instead of the offered one; it must cover the request
    #[arg(long, value_name = "RULE", requires = "scope")]
    rule: Option<String>,
    /// The answer to a question of the model: an option, yes or no, text, or a JSON object with the fields
    #[arg(long, value_name = "TEXT|JSON", conflicts_with_all = ["choice", "scope"])]
    answer: Option<String>,
}

/// Deny a pending approval
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  push deny                         the only pending approval\n  push deny appr_01H --comment 'not on a Friday'"
)]
pub(crate) struct DenyArgs {
    /// The approval; optional if only one is pending
    id: Option<String>,
    /// The reason; the model reads it and the run continues, without a reason the run ends
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

/// Approves.
pub(crate) async fn approve(args: ApproveArgs, context: &mut Context) -> Result<Exit, CliError> {
    submit(args.id, args.comment, args.rule, context, |pending| match (&args.choice, args.scope) {
        _ if args.answer.is_some() || pending.form.is_some() => parse_form_answer(pending, args.answer.as_deref()),
        (None, None | Some(Scope::Once)) => Ok(Decision::Approve(None)),
        (None, Some(scope)) if pending.can_be_remembered() => Ok(Decision::ApproveForScope(scope)),
        (None, Some(_)) => Err(CliError::Usage("this request can only be approved once; leave out --for".to_owned())),
        (Some(choice), _) => pending.parse_choice(choice).ok_or_else(|| no_such_choice(pending, choice)),
    })
    .await
}

/// Denies.
pub(crate) async fn deny(args: DenyArgs, context: &mut Context) -> Result<Exit, CliError> {
    submit(args.id, args.comment, None, context, |_| Ok(Decision::Deny(None))).await
}

async fn submit(
    typed: Option<String>,
    comment: Option<String>,
    rule: Option<String>,
    context: &mut Context,
    verdict: impl FnOnce(&PendingApproval) -> Result<Decision, CliError>,
) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let reply = client.request(Request::list_approvals(None)).await?;
    let pending = find(&reply.approvals, typed.as_deref())?;
    let verdict = verdict(&pending)?;
    let word = match &verdict {
        Decision::Approve(_) | Decision::ApproveForScope(_) => "approved",
        Decision::Answer(_) => "answered",
        Decision::Deny(_) | Decision::DenyWithReason(_) => "denied",
    };
    let request = pending.decision_request(verdict, comment, client.environment()).with_some("rule", rule);
    client.request(request).await?;
    context.console.line(&format!("{word} {}", sanitize_line(pending.id())))?;
    Ok(Exit::SUCCESS)
}

fn find(approvals: &[ListedApproval], typed: Option<&str>) -> Result<PendingApproval, CliError> {
    let known: Vec<String> = approvals.iter().map(|approval| approval.question.gate.to_string()).collect();
    let id = match typed {
        Some(typed) => ids::resolve("pending approval", "appr_", typed, &known)?,
        None => ids::only("pending approval", &known)?,
    };
    let found = approvals.iter().find(|approval| approval.question.gate.as_str() == id);
    let found = found.ok_or(NameError::None { what: "pending approval" })?;
    Ok(PendingApproval::new(&found.session, found.run.as_deref(), &found.question))
}

/// Parses the answer to a form.
fn parse_form_answer(pending: &PendingApproval, answer: Option<&str>) -> Result<Decision, CliError> {
    match (&pending.form, answer) {
        (Some(form), Some(answer)) => form.parse_argument(answer).map(Decision::Answer).map_err(CliError::Usage),
        (Some(_), None) => Err(CliError::Usage(
            "this approval is a question: answer it with --answer, or dismiss it with `push deny`".to_owned(),
        )),
        (None, _) => Err(CliError::Usage("this approval is not a question: leave out --answer".to_owned())),
    }
}

fn no_such_choice(pending: &PendingApproval, choice: &str) -> CliError {
    let choices = sanitize_line(&pending.question.choices.join(", "));
    CliError::Usage(if choices.is_empty() {
        format!("this approval has no choices: leave out --choice {choice:?}")
    } else {
        format!("{choice:?} is not a choice; choose one of {choices}")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::test_events::question;

    #[test]
    fn only_a_form_accepts_an_answer() {
        let form = json!({"method": "confirm", "title": "Sure?"});
        let approval =
            PendingApproval::new("s", None, &question(json!({"approvalId": "a", "details": {}, "form": form})));
        assert_eq!(parse_form_answer(&approval, Some("no")).unwrap(), Decision::Answer(json!(false)));
        assert!(parse_form_answer(&approval, None).is_err());
        assert!(parse_form_answer(&approval, Some("perhaps")).is_err());
        let plain = PendingApproval::new("s", None, &question(json!({"approvalId": "a", "details": {}})));
        assert!(parse_form_answer(&plain, Some("yes")).is_err());
    }

    #[test]
    fn an_approval_is_found_by_a_unique_prefix_or_if_it_is_the_only_one() {
        let approval = |session: &str, run: &str, payload| ListedApproval {
            session: session.into(),
            run: Some(run.into()),
            question: question(payload),
        };
        let two = [
            approval("s1", "r1", json!({"approvalId": "appr_01A", "summary": "a", "details": {}})),
            approval("s2", "r2", json!({"approvalId": "appr_01B", "summary": "b", "details": {"choices": ["x", "y"]}})),
        ];
        let found = find(&two, Some("01B")).unwrap();
        assert_eq!((found.session.as_str(), found.run.as_deref()), ("s2", Some("r2")));
        assert_eq!(found.question.choices, ["x", "y"]);
        assert!(find(&two, None).is_err());
        assert!(find(&two, Some("appr_01")).is_err());
        assert!(find(&[], None).is_err());
        assert_eq!(find(&two[..1], None).unwrap().id(), "appr_01A");
    }
}
