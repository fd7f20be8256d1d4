//! Lists every value of a file with its key and its position.

use toml::de::{DeTable, DeValue};

/// One value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConfigValue {
    /// Its dotted key; items of a list are numbered from 1.
    pub(super) key: String,
    /// The last component of the key.
    pub(super) name: String,
    /// The value, if it is a string.
    pub(super) text: Option<String>,
    /// Whether it is a boolean, which is never a credential.
    pub(super) is_switch: bool,
    /// The byte offset of the key.
    pub(super) offset: usize,
}

/// Returns every value that is not a table or a list of tables.
pub(super) fn collect(table: &DeTable<'_>) -> Vec<ConfigValue> {
    let mut values = Vec::new();
    collect_table(table, "", &mut values);
    values
}

fn collect_table(table: &DeTable<'_>, prefix: &str, values: &mut Vec<ConfigValue>) {
    for (name, value) in table {
        let name_text: &str = name.get_ref();
        let key = if prefix.is_empty() { name_text.to_owned() } else { format!("{prefix}.{name_text}") };
        collect_value(value.get_ref(), &key, name_text, name.span().start, values);
    }
}

fn collect_value(value: &DeValue<'_>, key: &str, name: &str, at: usize, values: &mut Vec<ConfigValue>) {
    if let Some(table) = value.as_table() {
        collect_table(table, key, values);
        return;
    }
    if let Some(list) = value.as_array() {
        for (index, item) in list.iter().enumerate() {
            collect_value(item.get_ref(), &format!("{key}.{}", index + 1), name, item.span().start, values);
        }
        return;
    }
    let text = value.as_str().map(str::to_owned);
    let is_switch = value.as_bool().is_some();
    values.push(ConfigValue { key: key.to_owned(), name: name.to_owned(), text, is_switch, offset: at });
}
