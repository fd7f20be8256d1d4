//! The `ask_user` tool: it has no effect and only returns the user's answer.
//!
//! A question has a form, which a client displays. The completed form is the result of the call, as JSON. A
//! question that the user dismisses, or that times out, fails with that reason.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::kernel::event::{DenialEffect, ToolError};
use crate::kernel::id::Json;
use crate::provider::Question;
use crate::provider::model::ToolSpec;
use crate::tools::{self, ToolErrorKind};

/// The name of the tool.
pub const ASK_USER: &str = "ask_user";

/// The kind of these questions, for programs.
pub const KIND: &str = "question";

const DESCRIPTION: &str = "Ask the user something that only they can know or decide, and wait for the answer. Use it \
    rarely: not for what can be found out, and not for approval of a step, which is asked for by itself. `select` takes \
    `options`, `confirm` is a yes or no, `input` is one line, `editor` several, `interview` takes `fields`. The answer \
    comes back as JSON: a string, true or false, or an object with a string a field. The user may dismiss the question.";

/// The arguments.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Args {
    /// How it is answered: select, confirm, input, editor or interview.
    method: Method,
    /// The question, in one line.
    title: String,
    /// What the user should know to answer it.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// For select: what there is to choose from, at least two.
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Vec<String>>,
    /// For interview: what is to be filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<Field>>,
    /// For input: what the answer might look like.
    #[serde(skip_serializing_if = "Option::is_none")]
    placeholder: Option<String>,
    /// For editor: the text to begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefill: Option<String>,
    /// After how many seconds the question is withdrawn; a day when left out.
    #[serde(skip_serializing)]
    timeout_seconds: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Method {
    Select,
    Confirm,
    Input,
    Editor,
    Interview,
}

#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Field {
    /// The name under which it is answered.
    name: String,
    /// What it asks, where the name does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    /// What there is to choose from; anything when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Vec<String>>,
}

/// Returns the description of the tool for models.
pub fn tool() -> ToolSpec {
    let (name, description) = (ASK_USER.to_owned(), DESCRIPTION.to_owned());
    ToolSpec { name, description, schema: tools::schema::<Args>() }
}

/// Parses the arguments of a call; the error is the result for the model.
pub fn parse_question(args: &str) -> Result<Question, ToolError> {
    let args: Args = serde_json::from_str(args)
        .map_err(|error| invalid_arguments(format!("the arguments do not fit {ASK_USER}: {error}")))?;
    args.check().map_err(|problem| invalid_arguments(problem.to_owned()))?;
    // Serializing these plain types cannot fail.
    let form = serde_json::to_string(&args).unwrap_or_default();
    let summary = match &args.message {
        Some(message) => format!("{}\n{message}", args.title),
        None => args.title.clone(),
    };
    let plain = Question::plain(KIND, "The model asks".to_owned(), summary, "{}".to_owned());
    let millis = args.timeout_seconds.map(|seconds| seconds.saturating_mul(1_000).min(MAX_TIMEOUT_MILLIS));
    let policy_comment = "this run cannot prompt the user; `--approve ask` waits for an answer".to_owned();
    Ok(Question { form: Some(form), timeout_millis: millis, denial: DenialEffect::Dismiss, policy_comment, ..plain })
}

/// Returns whether an answer fits a form.
///
/// A form with an unknown method accepts any answer.
pub fn answer_fits_form(form: &Json, answer: &Json) -> bool {
    let Ok(answer) = serde_json::from_str::<Value>(answer.as_str()) else { return false };
    let Ok(form) = serde_json::from_str::<Value>(form.as_str()) else { return true };
    let among = |options: &Value| match options.as_array() {
        Some(options) => options.contains(&answer),
        None => answer.is_string(),
    };
    match form["method"].as_str() {
        Some("select") => among(&form["options"]),
        Some("confirm") => answer.is_boolean(),
        Some("input" | "editor") => answer.is_string(),
        Some("interview") => answer.as_object().is_some_and(|answers| interview_answers_fit(&form, answers)),
        Some(_) | None => true,
    }
}

fn interview_answers_fit(form: &Value, answers: &Map<String, Value>) -> bool {
    let Some(fields) = form["fields"].as_array() else { return true };
    answers.iter().all(|(name, answer)| {
        let field = fields.iter().find(|field| field["name"] == name.as_str());
        field.is_some_and(|field| match field["options"].as_array() {
            Some(options) => options.contains(answer),
            None => answer.is_string(),
        })
    })
}

impl Args {
    fn check(&self) -> Result<(), &'static str> {
        let few = |options: &Vec<String>| (2..=MAX_OPTIONS).contains(&options.len());
        let fields = self.fields.as_deref().unwrap_or_default();
        let names = |field: &Field| fields.iter().filter(|other| other.name == field.name).count();
        match self.method {
            _ if self.title.trim().is_empty() => Err("a question needs a title"),
            Method::Select if !self.options.as_ref().is_some_and(few) => Err("select needs between 2 and 50 options"),
            Method::Interview if fields.is_empty() || fields.len() > MAX_OPTIONS => {
                Err("interview needs between 1 and 50 fields")
            }
            Method::Interview if fields.iter().any(|field| names(field) > 1 || field.name.is_empty()) => {
                Err("each field of an interview needs a name of its own")
            }
            Method::Select | Method::Confirm | Method::Input | Method::Editor | Method::Interview => Ok(()),
        }
    }
}

fn invalid_arguments(message: String) -> ToolError {
    tools::ToolError::new(ToolErrorKind::BadArguments, message).into()
}

/// The maximum number of options or fields of a question.
const MAX_OPTIONS: usize = 50;
/// The maximum timeout of a question in milliseconds.
const MAX_TIMEOUT_MILLIS: u64 = 24 * 60 * 60 * 1_000;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_question_has_a_form_and_a_timeout() {
        let args = json!({"method": "select", "title": "Which colour?", "message": "of the door",
            "options": ["red", "blue"], "timeoutSeconds": 30});
        let question = parse_question(&args.to_string()).unwrap();
        assert_eq!(question.summary, "Which colour?\nof the door");
        assert_eq!((question.timeout_millis, question.denial), (Some(30_000), DenialEffect::Dismiss));
        let form: Value = serde_json::from_str(&question.form.unwrap()).unwrap();
        assert_eq!(
            form,
            json!({"method": "select", "title": "Which colour?", "message": "of the door", "options": ["red", "blue"]})
        );
    }

    #[test]
    fn an_invalid_question_is_rejected_with_its_reason() {
        for (args, problem) in [
            (json!({"method": "select", "title": "?", "options": ["one"]}), "between 2 and 50"),
            (json!({"method": "select", "title": "?"}), "between 2 and 50"),
            (json!({"method": "interview", "title": "?"}), "between 1 and 50"),
            (json!({"method": "interview", "title": "?", "fields": [{"name": "a"}, {"name": "a"}]}), "name of its own"),
            (json!({"method": "confirm", "title": " "}), "a title"),
            (json!({"method": "guess", "title": "?"}), "unknown variant"),
            (json!({"method": "input", "title": "?", "surprise": 1}), "surprise"),
        ] {
            let error = parse_question(&args.to_string()).unwrap_err();
            assert_eq!(error.kind, "BAD_ARGUMENTS");
            assert!(error.message.contains(problem), "{}", error.message);
        }
    }

    #[test]
    fn an_answer_must_fit_its_form() {
        let select = json!({"method": "select", "options": ["red", "blue"]});
        let interview = json!({"method": "interview", "fields": [{"name": "a"}, {"name": "b", "options": ["x"]}]});
        for (form, answer, expected) in [
            (&select, json!("red"), true),
            (&select, json!("green"), false),
            (&select, json!(0), false),
            (&json!({"method": "confirm"}), json!(false), true),
            (&json!({"method": "confirm"}), json!("yes"), false),
            (&json!({"method": "input"}), json!(""), true),
            (&json!({"method": "editor"}), json!(["a"]), false),
            (&interview, json!({"a": "anything", "b": "x"}), true),
            (&interview, json!({"a": "left out is fine"}), true),
            (&interview, json!({"b": "y"}), false),
            (&interview, json!({"c": "x"}), false),
            (&interview, json!("x"), false),
            (&json!({"method": "of_tomorrow"}), json!([1]), true),
        ] {
            let json = |value: &Value| Json::new(value.to_string());
            assert_eq!(answer_fits_form(&json(form), &json(&answer)), expected, "{form} {answer}");
        }
    }

    #[test]
    fn the_tool_schema_describes_every_argument() {
        let ToolSpec { name, description, schema } = tool();
        assert_eq!((name.as_str(), schema["required"].clone()), (ASK_USER, json!(["method", "title"])));
        assert!(description.len() < 700);
        for (name, property) in schema["properties"].as_object().unwrap() {
            assert!(property["description"].is_string(), "{name}: {property}");
        }
        let validator = jsonschema::validator_for(&schema).unwrap();
        assert!(validator.is_valid(&json!({"method": "interview", "title": "?", "fields": [{"name": "a"}]})));
        assert!(!validator.is_valid(&json!({"method": "guess", "title": "?"})));
    }
}
