//! The effective configuration, value by value, with the origin of each.
//!
//! A variable overrides the file, and a project's restrictions apply to both. Credentials and header values are not
//! included.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::file::ConfigFile;
use super::listener::{self, ListenerSettings};
use super::project::{ProjectConfig, tighten};
use super::settings::{NO_MODEL, Price, ProviderKind, ProviderSettings, Settings, Switch, base_url_variable};

/// One value and its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigRow {
    /// Its dotted key.
    pub key: String,
    /// The value; null if there is none.
    pub value: Value,
    /// Where it comes from.
    pub origin: ValueOrigin,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueOrigin {
    /// The user's file.
    File {
        /// The line.
        line: usize,
    },
    /// A project's file, which made the value stricter.
    Project {
        /// The project's file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// An environment variable.
    Variable(String),
    /// The built-in default.
    Default,
}

/// Looks up an environment variable.
pub type EnvironmentLookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Returns every effective value for sessions in a project; `projects` are the project files that apply, and `kinds`
/// the known kinds of providers.
pub fn effective_values(
    file: &ConfigFile,
    projects: &[ProjectConfig],
    variables: EnvironmentLookup<'_>,
    kinds: &[ProviderKind],
) -> Vec<ConfigRow> {
    let mut rows = vec![
        variable_or_file_row(
            file,
            variables,
            "provider",
            "PUSH_PROVIDER",
            file.settings.provider.as_deref().or(Some(NO_MODEL)),
        ),
        variable_or_file_row(file, variables, "model", "PUSH_MODEL", file.settings.model.as_deref()),
    ];
    rows.extend(provider_rows(file, variables, kinds));
    rows.extend(file.settings.prices.iter().enumerate().map(|(index, price)| price_row(file, index, price)));
    let mut settings = Settings { limits: file.settings.limits.with_defaults(), ..file.settings.clone() };
    let mut bounded = bounded_rows(&settings, file);
    for project in projects {
        settings = tighten(settings, project.tightening());
        let tighter = bounded_rows(&settings, &project.file);
        for (row, tight) in bounded.iter_mut().zip(tighter).filter(|(row, tight)| row.value != tight.value) {
            let line = project.file.lines.get(&row.key).copied().unwrap_or(1);
            *row = ConfigRow { origin: ValueOrigin::Project { path: project.path.clone(), line }, ..tight };
        }
    }
    rows.extend(bounded);
    rows.extend(rule_rows(file, projects));
    rows.extend(http_rows(file));
    rows.extend(pi_rows(file, variables));
    rows.extend(notify_rows(file));
    rows
}

/// The approval rules: the user's, then those of projects.
fn rule_rows(file: &ConfigFile, projects: &[ProjectConfig]) -> Vec<ConfigRow> {
    let line = |file: &ConfigFile, index: usize| {
        file.lines.get(&format!("approvals.rules.{}", index + 1)).copied().unwrap_or(1)
    };
    let own = file.settings.rules.user.iter().enumerate();
    let mut found: Vec<(String, ValueOrigin)> =
        own.map(|(index, rule)| (rule.to_string(), ValueOrigin::File { line: line(file, index) })).collect();
    for project in projects {
        for (index, rule) in project.tightening().rules.iter().enumerate() {
            let origin = ValueOrigin::Project { path: project.path.clone(), line: line(&project.file, index) };
            found.push((rule.to_string(), origin));
        }
    }
    let numbered = found.into_iter().enumerate();
    numbered
        .map(|(index, (rule, origin))| ConfigRow {
            key: format!("approvals.rules.{}", index + 1),
            value: json!(rule),
            origin,
        })
        .collect()
}

/// The notifications, which a project cannot configure.
fn notify_rows(file: &ConfigFile) -> Vec<ConfigRow> {
    let notify = &file.settings.notify;
    vec![
        file_row(file, "notify.approval", json!(notify.approval)),
        file_row(file, "notify.run_complete", json!(notify.run_complete)),
        file_row(file, "notify.run_failed", json!(notify.run_failed)),
        file_row(file, "notify.desktop", json!(notify.desktop == Switch::On)),
    ]
}

/// The Pi endpoint, which a project cannot configure.
fn pi_rows(file: &ConfigFile, variables: EnvironmentLookup<'_>) -> Vec<ConfigRow> {
    let pi = &file.settings.pi;
    let mut listen = file_row(file, "pi.listen", json!(pi.listen.to_string()));
    if let Ok(Some(port)) = listener::port_from_environment(variables) {
        let value = json!(SocketAddr::new(pi.listen.ip(), port).to_string());
        listen = ConfigRow { value, origin: ValueOrigin::Variable(listener::PORT_VARIABLE.to_owned()), ..listen };
    }
    listener_rows(file, "pi", pi, listen)
}

/// The port for all protocols, which a project cannot configure.
fn http_rows(file: &ConfigFile) -> Vec<ConfigRow> {
    let http = &file.settings.http;
    let listen = file_row(file, "http.listen", json!(http.listen.to_string()));
    listener_rows(file, "http", http, listen)
}

fn listener_rows(file: &ConfigFile, section: &str, set: &ListenerSettings, listen: ConfigRow) -> Vec<ConfigRow> {
    let row = |name: &str, value| file_row(file, &format!("{section}.{name}"), value);
    vec![
        row("enabled", json!(set.enabled == Switch::On)),
        listen,
        row("origins", json!(set.origins)),
        row("hosts", json!(set.hosts)),
        row("require_token", json!(set.require_token == Switch::On)),
    ]
}

fn variable_or_file_row(
    file: &ConfigFile,
    variables: EnvironmentLookup<'_>,
    key: &str,
    variable: &str,
    otherwise: Option<&str>,
) -> ConfigRow {
    match variables(variable).filter(|value| !value.is_empty()) {
        Some(value) => ConfigRow {
            key: key.to_owned(),
            value: json!(value.to_string_lossy()),
            origin: ValueOrigin::Variable(variable.to_owned()),
        },
        None => file_row(file, key, json!(otherwise)),
    }
}

/// The providers in the file, and those whose base URL is set by a variable.
fn provider_rows(file: &ConfigFile, variables: EnvironmentLookup<'_>, kinds: &[ProviderKind]) -> Vec<ConfigRow> {
    let mut providers = file.settings.providers.clone();
    for kind in kinds {
        if variables(&base_url_variable(kind.name, kinds)).is_some_and(|value| !value.is_empty()) {
            providers.entry(kind.name.to_owned()).or_insert_with(|| ProviderSettings::new(*kind));
        }
    }
    let fields = |(name, provider): (&String, &ProviderSettings)| {
        provider_fields(file, variables, &base_url_variable(name, kinds), name, provider)
    };
    providers.iter().flat_map(fields).collect()
}

fn provider_fields(
    file: &ConfigFile,
    variables: EnvironmentLookup<'_>,
    url_variable: &str,
    name: &str,
    provider: &ProviderSettings,
) -> Vec<ConfigRow> {
    let key = |field: &str| format!("providers.{name}.{field}");
    let mut rows = vec![file_row(file, &key("kind"), json!(provider.kind.name))];
    rows.push(variable_or_file_row(file, variables, &key("base_url"), url_variable, provider.base_url.as_deref()));
    rows.push(file_row(file, &key("model"), json!(provider.model)));
    rows.extend(provider.headers.keys().map(|header| file_row(file, &key(&format!("headers.{header}")), json!("set"))));
    rows.push(file_row(
        file,
        &key("context_window"),
        json!(provider.context_window.unwrap_or(provider.kind.default_context_window)),
    ));
    rows.push(file_row(file, &key("thinking"), json!(provider.thinking.word())));
    rows
}

fn price_row(file: &ConfigFile, index: usize, price: &Price) -> ConfigRow {
    let line = file.lines.get(&format!("prices.{}.model", index + 1)).copied().unwrap_or(1);
    let value = json!({
        "input": dollars(price.input),
        "output": dollars(price.output),
        "cache_read": dollars(price.cache_read),
        "cache_write": dollars(price.cache_write),
    });
    ConfigRow { key: format!("prices.{}", price.model), value, origin: ValueOrigin::File { line } }
}

/// The values that a project may restrict, always in the same order, and those next to them.
fn bounded_rows(settings: &Settings, file: &ConfigFile) -> Vec<ConfigRow> {
    let (limits, sandbox) = (&settings.limits, &settings.sandbox);
    vec![
        file_row(file, "approvals.preset", json!(settings.approvals.word())),
        file_row(file, "limits.max_turns", json!(limits.max_turns)),
        file_row(file, "limits.max_tokens", json!(limits.max_tokens)),
        file_row(file, "limits.max_cost_usd", json!(limits.max_cost_micro_usd.map(dollars))),
        file_row(file, "limits.max_daily_cost_usd", json!(limits.max_daily_cost_micro_usd.map(dollars))),
        file_row(file, "limits.compact_at", json!(f64::from(limits.compact_at_permille) / 1000.0)),
        file_row(file, "tools.fetch", json!(settings.tools.fetch == Switch::On)),
        file_row(file, "sandbox.provider", json!(sandbox.provider.as_str())),
        file_row(file, "sandbox.mechanism", json!(sandbox.mechanism.as_str())),
        file_row(file, "sandbox.network", json!(sandbox.network == Switch::On)),
        file_row(file, "sandbox.unix_sockets", json!(sandbox.unix_sockets == Switch::On)),
        file_row(file, "sandbox.hide", json!(sandbox.hide)),
        file_row(file, "sandbox.writable", json!(sandbox.writable)),
        file_row(file, "sandbox.readable", json!(sandbox.readable)),
        file_row(file, "sandbox.memory_mb", json!(sandbox.memory.map(|bytes| bytes / (1024 * 1024)))),
        file_row(file, "sandbox.processes", json!(sandbox.processes)),
    ]
}

fn file_row(file: &ConfigFile, key: &str, value: Value) -> ConfigRow {
    // A list has the line of its first item.
    let line = file.lines.get(key).or_else(|| file.lines.get(&format!("{key}.1")));
    let origin = line.map_or(ValueOrigin::Default, |line| ValueOrigin::File { line: *line });
    ConfigRow { key: key.to_owned(), value, origin }
}

fn dollars(millionths: u64) -> f64 {
    millionths as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::file::parse;
    use crate::config::settings::TEST_KINDS;

    #[test]
    fn without_configuration_every_value_is_the_default() {
        let rows = effective_values(&ConfigFile::default(), &[], &|_| None, &TEST_KINDS);
        assert!(rows.iter().all(|row| row.origin == ValueOrigin::Default), "{rows:?}");
        assert_eq!(value(&rows, "provider"), &json!("playbook"));
        assert_eq!(value(&rows, "limits.compact_at"), &json!(0.8));
        assert_eq!(value(&rows, "limits.max_turns"), &json!(200));
        assert_eq!(value(&rows, "tools.fetch"), &json!(false));
    }

    #[test]
    fn a_variable_overrides_the_file() {
        let file = file("provider = 'ollama'\nmodel = 'qwen'\n[providers.openai]\nbase_url = 'http://a/v1'\n");
        let variables = |name: &str| match name {
            "PUSH_PROVIDER" => Some("openai".into()),
            "PUSH_MODEL" => Some("".into()),
            "OPENAI_BASE_URL" => Some("http://b/v1".into()),
            "OLLAMA_HOST" => Some("10.0.0.1".into()),
            "PI_SERVER_PORT" => Some("4242".into()),
            _ => None,
        };
        let rows = effective_values(&file, &[], &variables, &TEST_KINDS);
        for (key, text, origin) in [
            ("provider", "openai", ValueOrigin::Variable("PUSH_PROVIDER".into())),
            ("model", "qwen", ValueOrigin::File { line: 2 }),
            ("providers.openai.base_url", "http://b/v1", ValueOrigin::Variable("OPENAI_BASE_URL".into())),
            ("providers.ollama.base_url", "10.0.0.1", ValueOrigin::Variable("OLLAMA_HOST".into())),
            ("pi.listen", "127.0.0.1:4242", ValueOrigin::Variable("PI_SERVER_PORT".into())),
        ] {
            let row = rows.iter().find(|row| row.key == key).unwrap();
            assert_eq!((&row.value, &row.origin), (&json!(text), &origin), "{key}");
        }
    }

    #[test]
    fn a_project_is_the_origin_of_what_it_made_stricter_and_of_nothing_else() {
        let file = file("[approvals]\npreset = 'trusted'\n[limits]\nmax_turns = 3\n");
        let path = Path::new("/p/.push/config.toml");
        let text = "\n[approvals]\npreset = 'strict'\n[limits]\nmax_turns = 9\n";
        let project = ProjectConfig::new(path.to_owned(), parse(text, path, &TEST_KINDS).unwrap()).unwrap();
        let rows = effective_values(&file, &[project], &|_| None, &TEST_KINDS);
        let preset = rows.iter().find(|row| row.key == "approvals.preset").unwrap();
        assert_eq!(preset.value, json!("strict"));
        assert_eq!(preset.origin, ValueOrigin::Project { path: path.to_owned(), line: 3 });
        let turns = rows.iter().find(|row| row.key == "limits.max_turns").unwrap();
        assert_eq!((&turns.value, &turns.origin), (&json!(3), &ValueOrigin::File { line: 4 }));
    }

    #[test]
    fn a_project_cannot_raise_a_default_limit() {
        let path = Path::new("/p/.push/config.toml");
        for (text, turns) in [("[limits]\nmax_turns = 900\n", 200), ("[limits]\nmax_turns = 9\n", 9)] {
            let project = ProjectConfig::new(path.to_owned(), parse(text, path, &TEST_KINDS).unwrap()).unwrap();
            let rows = effective_values(&ConfigFile::default(), &[project], &|_| None, &TEST_KINDS);
            assert_eq!(value(&rows, "limits.max_turns"), &json!(turns));
        }
    }

    #[test]
    fn every_rule_is_shown_with_its_origin() {
        let file = file("[approvals]\nrules = [\n'allow: exec(ls)',\n'ask: git']\n");
        let path = Path::new("/p/.push/config.toml");
        let text = "[approvals]\nrules = ['deny: read(.env*)']\n";
        let project = ProjectConfig::new(path.to_owned(), parse(text, path, &TEST_KINDS).unwrap()).unwrap();
        let rows = effective_values(&file, &[project], &|_| None, &TEST_KINDS);
        for (key, rule, origin) in [
            ("approvals.rules.1", "allow: exec(ls)", ValueOrigin::File { line: 3 }),
            ("approvals.rules.2", "ask: git", ValueOrigin::File { line: 4 }),
            ("approvals.rules.3", "deny: read(.env*)", ValueOrigin::Project { path: path.to_owned(), line: 2 }),
        ] {
            let row = rows.iter().find(|row| row.key == key).unwrap();
            assert_eq!((&row.value, &row.origin), (&json!(rule), &origin));
        }
    }

    #[test]
    fn prices_are_in_dollars_and_header_values_are_not_shown() {
        let file = file(
            "[providers.openai]\nheaders = { 'X-Title' = 'hunter2' }\n[[prices]]\nmodel = 'm'\ninput = 1.25\noutput = 10\n",
        );
        let rows = effective_values(&file, &[], &|_| None, &TEST_KINDS);
        assert_eq!(value(&rows, "providers.openai.headers.X-Title"), &json!("set"));
        assert!(!format!("{rows:?}").contains("hunter2"));
        let price = json!({"input": 1.25, "output": 10.0, "cache_read": 1.25, "cache_write": 1.25});
        let row = rows.iter().find(|row| row.key == "prices.m").unwrap();
        assert_eq!((&row.value, &row.origin), (&price, &ValueOrigin::File { line: 4 }));
    }

    fn value<'a>(rows: &'a [ConfigRow], key: &str) -> &'a Value {
        &rows.iter().find(|row| row.key == key).unwrap().value
    }

    fn file(text: &str) -> ConfigFile {
        parse(text, Path::new("config.toml"), &TEST_KINDS).unwrap()
    }
}
