//! Edits the text of a configuration file and preserves everything else in it, comments included.

use toml_edit::{DocumentMut, Item, Table, TomlError, value};

/// The values to set; `None` keeps the current value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigEdit {
    /// The default provider.
    pub provider: String,
    /// The default model.
    pub model: Option<String>,
    /// The base URL of the provider.
    pub base_url: Option<String>,
}

/// Returns the text with the edit applied.
pub fn apply(text: &str, change: &ConfigEdit) -> Result<String, TomlError> {
    let mut document: DocumentMut = text.parse()?;
    set(document.as_table_mut(), "provider", &change.provider);
    if let Some(model) = &change.model {
        set(document.as_table_mut(), "model", model);
    }
    if let Some(base_url) = &change.base_url {
        let providers = document.entry("providers").or_insert_with(|| {
            let mut table = Table::new();
            // Only its sections have a header.
            table.set_implicit(true);
            Item::Table(table)
        });
        providers[&change.provider]["base_url"] = value(base_url);
        if let Some(table) = providers[&change.provider].as_inline_table().cloned() {
            providers[&change.provider] = Item::Table(table.into_table());
        }
    }
    Ok(document.to_string())
}

/// Sets one value, and keeps the whitespace and comments around the previous one.
fn set(table: &mut Table, key: &str, text: &str) {
    let mut new = toml_edit::Value::from(text);
    match table.get_mut(key) {
        Some(item) => {
            if let Some(old) = item.as_value() {
                *new.decor_mut() = old.decor().clone();
            }
            *item = Item::Value(new);
        }
        None => {
            table.insert(key, Item::Value(new));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::file::parse;
    use crate::config::settings::TEST_KINDS;

    #[test]
    fn untouched_parts_of_the_file_stay_unchanged() {
        let text = "# mine\nprovider = 'openai' # for now\n\n[limits]\nmax_turns = 3 # few\n";
        let change = ConfigEdit { provider: "ollama".into(), model: Some("qwen".into()), base_url: None };
        assert_eq!(
            apply(text, &change).unwrap(),
            "# mine\nprovider = \"ollama\" # for now\nmodel = \"qwen\"\n\n[limits]\nmax_turns = 3 # few\n"
        );
    }

    #[test]
    fn a_new_file_is_created_from_empty_text() {
        let change = ConfigEdit { provider: "playbook".into(), model: None, base_url: None };
        assert_eq!(apply("", &change).unwrap(), "provider = \"playbook\"\n");
    }

    #[test]
    fn a_base_url_creates_a_provider_section_or_extends_the_existing_one() {
        let change =
            ConfigEdit { provider: "openai".into(), model: Some("m".into()), base_url: Some("http://h/v1".into()) };
        for text in [
            "",
            "[providers.openai]\nmodel = 'x'\n",
            "[providers.ollama]\nmodel = 'x'\n",
            "providers = { openai = { model = 'x' } }\n",
            "[limits]\nmax_turns = 1\n",
        ] {
            let new = apply(text, &change).unwrap();
            let settings =
                parse(&new, Path::new("c"), &TEST_KINDS).unwrap_or_else(|error| panic!("{error}: {new}")).settings;
            assert_eq!(settings.provider.as_deref(), Some("openai"), "{new}");
            assert_eq!(settings.providers["openai"].base_url.as_deref(), Some("http://h/v1"), "{new}");
            let old = parse(text, Path::new("c"), &TEST_KINDS).unwrap().settings;
            assert_eq!(settings.limits, old.limits, "{new}");
            if let Some(before) = old.providers.get("openai") {
                assert_eq!(settings.providers["openai"].model, before.model, "{new}");
            }
        }
    }

    #[test]
    fn invalid_toml_is_refused() {
        let change = ConfigEdit { provider: "ollama".into(), model: None, base_url: None };
        assert!(apply("provider = ", &change).is_err());
    }
}
