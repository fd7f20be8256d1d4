//! Forms: questions of a model with fields to fill in. Renders them and parses typed answers.
//!
//! Pure. The daemon validates answers; this module only turns typed text into a JSON value.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::sanitize::sanitize_line;
use crate::kernel::event::GateQuestion;

/// Typed to dismiss a form.
pub(crate) const DISMISS: &str = "/dismiss";

/// A form.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Form {
    method: String,
    options: Vec<String>,
    fields: Vec<FormField>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
struct FormField {
    name: String,
    label: String,
    options: Vec<String>,
}

impl Form {
    /// Parses the form of an approval; none if it has none.
    pub(crate) fn of(question: &GateQuestion) -> Option<Self> {
        serde_json::from_str(question.form()?.as_str()).ok()
    }

    /// Returns the options to choose from.
    pub(crate) fn options(&self) -> &[String] {
        &self.options
    }

    /// Returns whether the answer is typed, and not chosen.
    pub(crate) fn needs_text(&self) -> bool {
        match self.method.as_str() {
            "select" => self.options.is_empty(),
            "confirm" => false,
            _ => true,
        }
    }

    /// Returns the prompt.
    pub(crate) fn prompt(&self) -> String {
        match self.method.as_str() {
            "select" => {
                let numbered = self.options.iter().enumerate();
                let numbered: Vec<_> =
                    numbered.map(|(at, option)| format!("{} {}", at + 1, sanitize_line(option))).collect();
                format!("choose one: [{}, or {DISMISS}]", numbered.join(", "))
            }
            "confirm" => format!("yes or no? [y/n, or {DISMISS}]"),
            "interview" => format!("your answers, as a JSON object, or {DISMISS}:"),
            _ => format!("your answer, or {DISMISS}:"),
        }
    }

    /// Returns the options and fields as lines; not sanitized.
    pub(crate) fn lines(&self) -> Vec<String> {
        let options = self.options.iter().enumerate().map(|(at, option)| format!("{}. {option}", at + 1));
        let fields = self.fields.iter().map(|entry| {
            let label = if entry.label.is_empty() { String::new() } else { format!(": {}", entry.label) };
            let among =
                if entry.options.is_empty() { String::new() } else { format!(" ({})", entry.options.join(" / ")) };
            format!("{}{label}{among}", entry.name)
        });
        options.chain(fields).collect()
    }

    /// Parses a typed line; none if it is not a valid answer.
    pub(crate) fn parse_line(&self, line: &str) -> Option<Value> {
        match self.method.as_str() {
            "select" => {
                let exact = self.options.iter().find(|option| *option == line);
                let by_number = || line.parse::<usize>().ok().and_then(|at| self.options.get(at.checked_sub(1)?));
                exact.or_else(by_number).map(|option| Value::from(option.as_str()))
            }
            "confirm" => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => Some(Value::Bool(true)),
                "n" | "no" | "false" => Some(Value::Bool(false)),
                _ => None,
            },
            "interview" => self.parse_interview(line),
            "input" | "editor" => (!line.is_empty()).then(|| Value::from(line)),
            // An unknown method: JSON if it parses, else the text.
            _ => (!line.is_empty()).then(|| serde_json::from_str(line).unwrap_or_else(|_| Value::from(line))),
        }
    }

    /// Parses an answer of the command line, or returns what a valid answer is.
    pub(crate) fn parse_argument(&self, answer: &str) -> Result<Value, String> {
        if matches!(self.method.as_str(), "input" | "editor") {
            return Ok(Value::from(answer));
        }
        self.parse_line(answer).ok_or_else(|| match self.method.as_str() {
            "select" => {
                format!("{answer:?} is not an option; choose one of {}", sanitize_line(&self.options.join(", ")))
            }
            "confirm" => format!("{answer:?} is neither yes nor no"),
            "interview" => {
                let names: Vec<_> = self.fields.iter().map(|entry| entry.name.as_str()).collect();
                format!("the answer must be a JSON object with {}", sanitize_line(&names.join(", ")))
            }
            _ => "the answer is empty".to_owned(),
        })
    }

    /// Parses the answer to an interview. One with a single field also accepts plain text.
    fn parse_interview(&self, line: &str) -> Option<Value> {
        match (serde_json::from_str::<Value>(line), self.fields.as_slice()) {
            (Ok(Value::Object(answers)), _) => Some(Value::Object(answers)),
            (_, [only]) if !line.is_empty() => {
                Some(Value::Object(Map::from_iter([(only.name.clone(), Value::from(line))])))
            }
            (_, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_method_parses_its_answers() {
        let select = json!({"method": "select", "options": ["red", "blue"]});
        let one = json!({"method": "interview", "fields": [{"name": "a", "label": "A?", "options": ["x", "y"]}]});
        for (form, typed, expected) in [
            (&select, "1", Some(json!("red"))),
            (&select, "blue", Some(json!("blue"))),
            (&select, "3", None),
            (&select, "0", None),
            (&json!({"method": "confirm"}), "Yes", Some(json!(true))),
            (&json!({"method": "confirm"}), "n", Some(json!(false))),
            (&json!({"method": "confirm"}), "maybe", None),
            (&json!({"method": "input"}), "42", Some(json!("42"))),
            (&json!({"method": "input"}), "", None),
            (&one, "x", Some(json!({"a": "x"}))),
            (&one, r#"{"a":"y"}"#, Some(json!({"a": "y"}))),
            (&json!({"method": "interview", "fields": [{"name": "a"}, {"name": "b"}]}), "x", None),
            (&json!({"method": "of_tomorrow"}), "[1]", Some(json!([1]))),
            (&json!({"method": "of_tomorrow"}), "words", Some(json!("words"))),
        ] {
            assert_eq!(read(form).parse_line(typed), expected, "{form} {typed}");
        }
        assert_eq!(read(&one).lines(), ["a: A? (x / y)"]);
        assert_eq!(read(&select).lines(), ["1. red", "2. blue"]);
    }

    #[test]
    fn the_error_of_an_invalid_answer_lists_valid_ones() {
        let form = read(&json!({"method": "select", "options": ["red", "blue"]}));
        assert_eq!(form.parse_argument("green"), Err("\"green\" is not an option; choose one of red, blue".to_owned()));
        let form = read(&json!({"method": "interview", "fields": [{"name": "a"}, {"name": "b"}]}));
        assert_eq!(form.parse_argument("x"), Err("the answer must be a JSON object with a, b".to_owned()));
        assert_eq!(read(&json!({"method": "editor"})).parse_argument(""), Ok(json!("")));
    }

    fn read(form: &Value) -> Form {
        serde_json::from_value(form.clone()).unwrap()
    }
}
