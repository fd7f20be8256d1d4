//! The serde types of the file; they are private to this module.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::listener::{OpenedBy, RawListener};
use super::sandbox::RawSandbox;
use super::{ContentError, LocatedError};
use crate::config::listener::{HTTP_PORT, PI_PORT};
use crate::config::settings::rule::Rule;
use crate::config::settings::{
    ApprovalRules, NO_MODEL, NotifySettings, OptionalTools, Preset, Price, ProviderKind, ProviderSettings, RunLimits,
    Settings, Switch, ThinkingLevel,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    provider: Option<Spanned<String>>,
    model: Option<Spanned<String>>,
    #[serde(default)]
    providers: BTreeMap<Spanned<String>, RawProvider>,
    #[serde(default)]
    prices: Vec<RawPrice>,
    #[serde(default)]
    approvals: RawApprovals,
    #[serde(default)]
    limits: RawLimits,
    #[serde(default)]
    tools: RawTools,
    #[serde(default)]
    sandbox: RawSandbox,
    #[serde(default)]
    pi: RawListener,
    #[serde(default)]
    http: RawListener,
    #[serde(default)]
    environment: RawEnvironment,
    #[serde(default)]
    notify: RawNotify,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNotify {
    approval: Option<Spanned<String>>,
    run_complete: Option<Spanned<String>>,
    run_failed: Option<Spanned<String>>,
    #[serde(default)]
    desktop: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEnvironment {
    #[serde(default)]
    keep: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawProvider {
    kind: Option<Spanned<String>>,
    base_url: Option<Spanned<String>>,
    model: Option<Spanned<String>>,
    #[serde(default)]
    headers: BTreeMap<Spanned<String>, Spanned<String>>,
    context_window: Option<Spanned<u32>>,
    thinking: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPrice {
    model: Spanned<String>,
    input: Spanned<f64>,
    output: Spanned<f64>,
    cache_read: Option<Spanned<f64>>,
    cache_write: Option<Spanned<f64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawApprovals {
    preset: Option<Spanned<String>>,
    #[serde(default)]
    rules: Vec<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimits {
    max_turns: Option<Spanned<u32>>,
    max_tokens: Option<Spanned<u64>>,
    max_cost_usd: Option<Spanned<f64>>,
    max_daily_cost_usd: Option<Spanned<f64>>,
    compact_at: Option<Spanned<f64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTools {
    #[serde(default)]
    fetch: bool,
}

impl RawConfig {
    pub(super) fn into_settings(self, kinds: &[ProviderKind]) -> Result<Settings, LocatedError> {
        let mut providers = BTreeMap::new();
        for (name, written) in self.providers {
            let provider = written.into_settings(&name, kinds)?;
            providers.insert(name.into_inner(), provider);
        }
        if let Some(provider) = &self.provider {
            check_provider_name(provider, &providers, kinds)?;
        }
        Ok(Settings {
            provider: self.provider.map(Spanned::into_inner),
            model: self.model.map(|model| non_empty("model", model)).transpose()?,
            providers,
            prices: parse_prices(self.prices)?,
            approvals: self.approvals.preset.map_or(Ok(Preset::default()), parse_preset)?,
            rules: ApprovalRules { user: parse_rules(self.approvals.rules)?, projects: Vec::new() },
            limits: self.limits.into_limits()?,
            tools: OptionalTools { fetch: if self.tools.fetch { Switch::On } else { Switch::Off } },
            sandbox: self.sandbox.into_settings()?,
            pi: self.pi.into_settings("pi", PI_PORT, OpenedBy::Switch)?,
            http: self.http.into_settings("http", HTTP_PORT, OpenedBy::Address)?,
            notify: self.notify.into_settings()?,
            login_secrets: check_variable_names("environment.keep", self.environment.keep)?,
        })
    }
}

impl RawProvider {
    fn into_settings(self, name: &Spanned<String>, kinds: &[ProviderKind]) -> Result<ProviderSettings, LocatedError> {
        let text = name.get_ref();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        if text == NO_MODEL || text.is_empty() || !text.chars().all(plain) {
            let expected = "a name of letters, digits, - and _; the playbook has no settings";
            return Err(invalid_value(name, &format!("providers.{text}"), expected));
        }
        let key = |field: &str| format!("providers.{text}.{field}");
        let context_window = self.context_window.map(|window| positive(&key("context_window"), window));
        Ok(ProviderSettings {
            kind: provider_kind(name, self.kind, kinds)?,
            base_url: self.base_url.map(|url| check_url(&key("base_url"), url)).transpose()?,
            model: self.model.map(|model| non_empty(&key("model"), model)).transpose()?,
            headers: check_headers(&key("headers"), self.headers)?,
            context_window: context_window.transpose()?,
            thinking: self
                .thinking
                .map_or(Ok(ThinkingLevel::default()), |level| parse_thinking(&key("thinking"), level))?,
        })
    }
}

impl RawLimits {
    fn into_limits(self) -> Result<RunLimits, LocatedError> {
        let compact = match self.compact_at {
            None => RunLimits::default().compact_at_permille,
            Some(share) => permille_of_window(&share)?,
        };
        let turns = self.max_turns.map(|turns| positive("limits.max_turns", turns)).transpose()?;
        let tokens = self.max_tokens.map(|tokens| positive("limits.max_tokens", tokens)).transpose()?;
        let cost = |key: &str, cost: Spanned<f64>| match micro_usd(key, &cost)? {
            0 => Err(invalid_value(&cost, key, "more than nothing")),
            cost => Ok(cost),
        };
        let per_run = self.max_cost_usd.map(|amount| cost("limits.max_cost_usd", amount));
        let per_day = self.max_daily_cost_usd.map(|amount| cost("limits.max_daily_cost_usd", amount));
        Ok(RunLimits {
            max_turns: turns,
            max_tokens: tokens,
            max_cost_micro_usd: per_run.transpose()?,
            max_daily_cost_micro_usd: per_day.transpose()?,
            compact_at_permille: compact,
        })
    }
}

impl RawNotify {
    fn into_settings(self) -> Result<NotifySettings, LocatedError> {
        let command = |key: &str, text: Option<Spanned<String>>| match text {
            Some(text) if text.get_ref().trim().is_empty() || text.get_ref().contains('\0') => {
                Err(invalid_value(&text, key, "a command"))
            }
            text => Ok(text.map(Spanned::into_inner)),
        };
        Ok(NotifySettings {
            approval: command("notify.approval", self.approval)?,
            run_complete: command("notify.run_complete", self.run_complete)?,
            run_failed: command("notify.run_failed", self.run_failed)?,
            desktop: if self.desktop { Switch::On } else { Switch::Off },
        })
    }
}

fn check_variable_names(key: &str, written: Vec<Spanned<String>>) -> Result<Vec<String>, LocatedError> {
    let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0']) && name.trim() == name;
    let name = |name: Spanned<String>| {
        if is_name(name.get_ref()) {
            Ok(name.into_inner())
        } else {
            Err(invalid_value(&name, key, "names of variables"))
        }
    };
    written.into_iter().map(name).collect()
}

fn check_provider_name(
    provider: &Spanned<String>,
    providers: &BTreeMap<String, ProviderSettings>,
    kinds: &[ProviderKind],
) -> Result<(), LocatedError> {
    let name = provider.get_ref();
    if name == NO_MODEL || providers.contains_key(name) || ProviderKind::find(kinds, name).is_some() {
        return Ok(());
    }
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    let expected = format!("{NO_MODEL}, {}, or a name with a section [providers.NAME]", names.join(", "));
    Err(invalid_value(provider, "provider", &expected))
}

fn provider_kind(
    name: &Spanned<String>,
    written: Option<Spanned<String>>,
    kinds: &[ProviderKind],
) -> Result<ProviderKind, LocatedError> {
    let key = format!("providers.{}.kind", name.get_ref());
    let own = ProviderKind::find(kinds, name.get_ref());
    let known = || one_of(&kinds.iter().map(|kind| (kind.name, ())).collect::<Vec<_>>());
    match (own, written) {
        (Some(own), None) => Ok(own),
        (None, None) => Err(invalid_value(name, &key, &known())),
        (own, Some(written)) => match ProviderKind::find(kinds, written.get_ref()) {
            Some(kind) if own.is_none_or(|own| own == kind) => Ok(kind),
            Some(_) => {
                let expected = format!("\"{0}\": another kind of server needs another name", name.get_ref());
                Err(invalid_value(&written, &key, &expected))
            }
            None => Err(invalid_value(&written, &key, &known())),
        },
    }
}

fn parse_thinking(key: &str, written: Spanned<String>) -> Result<ThinkingLevel, LocatedError> {
    let expected = || invalid_value(&written, key, &one_of(ThinkingLevel::ALL));
    ThinkingLevel::parse(written.get_ref()).ok_or_else(expected)
}

fn parse_preset(written: Spanned<String>) -> Result<Preset, LocatedError> {
    let expected = || invalid_value(&written, "approvals.preset", &one_of(Preset::ALL));
    Preset::parse(written.get_ref()).ok_or_else(expected)
}

fn parse_rules(written: Vec<Spanned<String>>) -> Result<Vec<Rule>, LocatedError> {
    if let Some(surplus) = written.get(MOST_RULES) {
        return Err(invalid_value(surplus, "approvals.rules", &format!("at most {MOST_RULES} rules")));
    }
    let read =
        |rule: Spanned<String>| rule.get_ref().parse().map_err(|error| (rule.span().start, ContentError::Rule(error)));
    written.into_iter().map(read).collect()
}

fn parse_prices(written: Vec<RawPrice>) -> Result<Vec<Price>, LocatedError> {
    let mut prices: Vec<Price> = Vec::new();
    for price in written {
        let amount = |field: &str, dollars: &Spanned<f64>| micro_usd(&format!("prices.{field}"), dollars);
        let input = amount("input", &price.input)?;
        let output = amount("output", &price.output)?;
        let cache_read = price.cache_read.map_or(Ok(input), |dollars| amount("cache_read", &dollars))?;
        let cache_write = price.cache_write.map_or(Ok(input), |dollars| amount("cache_write", &dollars))?;
        if prices.iter().any(|other| other.model == *price.model.get_ref()) {
            return Err(invalid_value(&price.model, "prices.model", "a model that has no price yet"));
        }
        let model = non_empty("prices.model", price.model)?;
        prices.push(Price { model, input, output, cache_read, cache_write });
    }
    Ok(prices)
}

fn check_headers(
    key: &str,
    written: BTreeMap<Spanned<String>, Spanned<String>>,
) -> Result<BTreeMap<String, String>, LocatedError> {
    let mut headers = BTreeMap::new();
    for (name, text) in written {
        let key = format!("{key}.{}", name.get_ref());
        let token = |letter: char| letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter);
        if name.get_ref().is_empty() || !name.get_ref().chars().all(token) {
            return Err(invalid_value(&name, &key, "named as a header of HTTP"));
        }
        if !text.get_ref().chars().all(|letter| (' '..='~').contains(&letter)) {
            return Err(invalid_value(&text, &key, "one line of plain ASCII"));
        }
        headers.insert(name.into_inner(), text.into_inner());
    }
    Ok(headers)
}

fn check_url(key: &str, url: Spanned<String>) -> Result<String, LocatedError> {
    let rest = url.get_ref().strip_prefix("http://").or_else(|| url.get_ref().strip_prefix("https://"));
    let plain = |rest: &str| {
        let host = rest.split('/').next().unwrap_or_default();
        !host.is_empty() && !rest.contains(|letter: char| matches!(letter, '?' | '#') || !letter.is_ascii_graphic())
    };
    if !rest.is_some_and(plain) {
        let expected = "an address that begins with http:// or https:// and has neither ? nor #";
        return Err(invalid_value(&url, key, expected));
    }
    Ok(url.into_inner())
}

fn non_empty(key: &str, text: Spanned<String>) -> Result<String, LocatedError> {
    if text.get_ref().trim().is_empty() || text.get_ref().contains(char::is_control) {
        return Err(invalid_value(&text, key, "a name"));
    }
    Ok(text.into_inner())
}

pub(super) fn positive<T: Copy + Default + PartialEq>(key: &str, number: Spanned<T>) -> Result<T, LocatedError> {
    if *number.get_ref() == T::default() {
        return Err(invalid_value(&number, key, "at least 1"));
    }
    Ok(number.into_inner())
}

fn permille_of_window(share: &Spanned<f64>) -> Result<u16, LocatedError> {
    let number = *share.get_ref();
    if !(0.1..=1.0).contains(&number) {
        return Err(invalid_value(share, "limits.compact_at", "a share of the context window between 0.1 and 1.0"));
    }
    // The range was checked, so the cast is lossless.
    Ok((number * 1000.0).round() as u16)
}

/// Returns an amount in millionths of a dollar; more than a billion dollars is taken for a typing error.
fn micro_usd(key: &str, dollars: &Spanned<f64>) -> Result<u64, LocatedError> {
    let number = *dollars.get_ref();
    if !(0.0..=1e9).contains(&number) {
        return Err(invalid_value(dollars, key, "an amount of US dollars, not negative"));
    }
    // The range was checked, so the cast is lossless.
    Ok((number * 1e6).round() as u64)
}

/// The maximum number of rules.
const MOST_RULES: usize = 200;

pub(super) fn one_of<T>(words: &[(&str, T)]) -> String {
    let words: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
    format!("one of {}", words.join(", "))
}

pub(super) fn invalid_value<T>(spanned: &Spanned<T>, key: &str, expected: &str) -> LocatedError {
    (spanned.span().start, ContentError::Value { key: key.to_owned(), expected: expected.to_owned() })
}
