//! Converts the response to a UI request into a vote.

use serde_json::Value;

use super::ui::parse_form;
use crate::kernel::event::{Decision, GateQuestion};
use crate::kernel::id::Json;
use crate::protocol::command_protocol::Vote;
use crate::protocol::operation::UiResponse;
use crate::protocol::pi::error_text::invalid;

/// Converts a response into a vote.
///
/// # Errors
///
/// Returns the error text if the response has another method than the question, or a value that it does not offer.
pub fn vote(question: &GateQuestion, response: &UiResponse) -> Result<Vote, String> {
    if *response == UiResponse::Cancelled {
        return Ok(plain(Decision::Deny));
    }
    if let Some((method, fields)) = question.form().and_then(|form| parse_form(form.as_str())) {
        return vote_on_form(method, fields.get("options"), response);
    }
    match response {
        UiResponse::Confirm { confirmed: true } => Ok(plain(Decision::Approve)),
        UiResponse::Confirm { confirmed: false } => Ok(plain(Decision::Deny)),
        UiResponse::Select { value } if !question.choices.is_empty() => vote_on_choice(&question.choices, value),
        UiResponse::Select { .. }
        | UiResponse::Input { .. }
        | UiResponse::Editor { .. }
        | UiResponse::Interview { .. }
        | UiResponse::Cancelled => {
            let method = if question.choices.is_empty() { "confirm" } else { "select" };
            Err(method_mismatch(method))
        }
    }
}

const fn plain(decision: Decision) -> Vote {
    Vote { decision, choice: None, answer: None }
}

fn vote_on_form(method: &str, options: Option<&Value>, response: &UiResponse) -> Result<Vote, String> {
    if method != response.method() {
        return Err(method_mismatch(method));
    }
    let answer = match response {
        UiResponse::Select { value } => {
            let offered = options
                .and_then(Value::as_array)
                .is_some_and(|options| options.iter().any(|option| option_value(option) == Some(value.as_str())));
            if !offered {
                return Err(not_offered());
            }
            Value::from(value.as_str())
        }
        UiResponse::Confirm { confirmed } => Value::from(*confirmed),
        UiResponse::Input { value } | UiResponse::Editor { value } => Value::from(value.as_str()),
        UiResponse::Interview { responses } => {
            let answer = Some(responses.clone());
            return Ok(Vote { decision: Decision::Approve, choice: None, answer });
        }
        UiResponse::Cancelled => return Ok(plain(Decision::Deny)),
    };
    Ok(Vote { decision: Decision::Approve, choice: None, answer: Some(Json::new(answer.to_string())) })
}

/// Maps a choice to a vote; only the last choice denies.
fn vote_on_choice(choices: &[String], value: &str) -> Result<Vote, String> {
    if !choices.iter().any(|choice| choice == value) {
        return Err(not_offered());
    }
    let denies = choices.last().is_some_and(|last| last == value);
    let decision = if denies { Decision::Deny } else { Decision::Approve };
    Ok(Vote { decision, choice: Some(value.to_owned()), answer: None })
}

/// Returns the value of an option: a string, or an object with a `value` or a `label`.
fn option_value(option: &Value) -> Option<&str> {
    option.as_str().or_else(|| option.get("value")?.as_str()).or_else(|| option.get("label")?.as_str())
}

fn method_mismatch(method: &str) -> String {
    invalid("response.method", format_args!("must be '{method}' or 'cancelled' to match the request"))
}

fn not_offered() -> String {
    invalid("response.value", "must be one of the options")
}
