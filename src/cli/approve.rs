//! `push approve` and `push deny`: decide a pending approval.

use serde_json::Value;

use super::approval::{Pending, Scope, Verdict};
use super::context::Context;
use super::exit::{CliError, Exit};
use super::ids;
use super::phrase::field;
use super::plain::plain_line;
use crate::client::Request;

/// Approve a pending approval
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  push approve                      the only pending approval\n  push approve appr_01H --comment 'looks good'\n  push approve appr_01H --choice skip\n  push approve appr_01H --for session   and do not ask again in this session\n  push approve appr_01H --answer blue   answer a question of the model"
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
    settle(args.id, args.comment, context, |pending| match (&args.choice, args.scope) {
        _ if args.answer.is_some() || pending.form.is_some() => answered(pending, args.answer.as_deref()),
        (None, None | Some(Scope::Once)) => Ok(Verdict::Approve(None)),
        (None, Some(scope)) if pending.can_last => Ok(Verdict::ApproveFor(scope)),
        (None, Some(_)) => {
            Err(CliError::Usage("this request can only be approved once; leave out --for".to_owned()))
        }
        (Some(choice), _) => pending.choice(choice).ok_or_else(|| no_such_choice(pending, choice)),
    })
    .await
}

/// Denies.
pub(crate) async fn deny(args: DenyArgs, context: &mut Context) -> Result<Exit, CliError> {
    settle(args.id, args.comment, context, |_| Ok(Verdict::Deny(None))).await
}

async fn settle(
    typed: Option<String>,
    comment: Option<String>,
    context: &mut Context,
    verdict: impl FnOnce(&Pending) -> Result<Verdict, CliError>,
) -> Result<Exit, CliError> {
    let mut client = context.client().await?;
    let answer = client.ask(Request::list_approvals(None)).await?;
    let pending = find(&answer["approvals"], typed.as_deref())?;
    let verdict = verdict(&pending)?;
    let word = match &verdict {
        Verdict::Approve(_) | Verdict::ApproveFor(_) => "approved",
        Verdict::Answer(_) => "answered",
        Verdict::Deny(_) | Verdict::DenyBecause(_) => "denied",
    };
    let request = pending.settle(verdict, comment, client.environment());
    client.ask(request).await?;
    context.console.line(&format!("{word} {}", plain_line(&pending.id)))?;
    Ok(Exit::SUCCESS)
}

fn find(approvals: &Value, typed: Option<&str>) -> Result<Pending, CliError> {
    let known = ids::column(approvals, "approvalId");
    let id = match typed {
        Some(typed) => ids::choose("pending approval", "appr_", typed, &known)?,
        None => ids::only("pending approval", &known)?,
    };
    let items = approvals.as_array().map(Vec::as_slice).unwrap_or_default();
    let found = items.iter().find(|item| field(item, "approvalId") == id).unwrap_or(&Value::Null);
    let run = found.get("runId").and_then(Value::as_str);
    Ok(Pending::read(&field(found, "sessionId"), run, found))
}

/// Parses the answer to a form.
fn answered(pending: &Pending, answer: Option<&str>) -> Result<Verdict, CliError> {
    match (&pending.form, answer) {
        (Some(form), Some(answer)) => form.given(answer).map(Verdict::Answer).map_err(CliError::Usage),
        (Some(_), None) => Err(CliError::Usage(
            "this approval is a question: answer it with --answer, or dismiss it with `push deny`".to_owned(),
        )),
        (None, _) => Err(CliError::Usage("this approval is not a question: leave out --answer".to_owned())),
    }
}

fn no_such_choice(pending: &Pending, choice: &str) -> CliError {
    let choices = plain_line(&pending.choices.join(", "));
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

    #[test]
    fn a_question_takes_an_answer_and_an_approval_takes_none() {
        let form = json!({"method": "confirm", "title": "Sure?"});
        let asked = Pending::read("s", None, &json!({"approvalId": "a", "details": {}, "form": form}));
        assert_eq!(answered(&asked, Some("no")).unwrap(), Verdict::Answer(json!(false)));
        assert!(answered(&asked, None).is_err());
        assert!(answered(&asked, Some("perhaps")).is_err());
        let plain = Pending::read("s", None, &json!({"approvalId": "a", "details": {}}));
        assert!(answered(&plain, Some("yes")).is_err());
    }

    #[test]
    fn an_approval_is_found_by_its_beginning_or_by_being_alone() {
        let two = json!([
            {"sessionId": "s1", "runId": "r1", "approvalId": "appr_01A", "summary": "a", "details": {}},
            {"sessionId": "s2", "runId": "r2", "approvalId": "appr_01B", "summary": "b", "details": {"choices": ["x", "y"]}},
        ]);
        let found = find(&two, Some("01B")).unwrap();
        assert_eq!((found.session.as_str(), found.run.as_deref()), ("s2", Some("r2")));
        assert_eq!(found.choices, ["x", "y"]);
        assert!(find(&two, None).is_err());
        assert!(find(&two, Some("appr_01")).is_err());
        assert!(find(&json!([]), None).is_err());
        let one = json!([two[0]]);
        assert_eq!(find(&one, None).unwrap().id, "appr_01A");
    }
}
