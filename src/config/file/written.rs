//! The serde types of the file; they are private to this module.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::pi::WrittenPi;
use super::sandbox::WrittenSandbox;
use super::{Misplaced, Mistake};
use crate::config::settings::rule::Rule;
use crate::config::settings::{
    NO_MODEL, Preset, Price, ProviderKind, ProviderSettings, Rules, RunLimits, Settings, Switch,
    ThinkingLevel, Tools,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    provider: Option<Spanned<String>>,
    model: Option<Spanned<String>>,
    #[serde(default)]
    providers: BTreeMap<Spanned<String>, WrittenProvider>,
    #[serde(default)]
    prices: Vec<WrittenPrice>,
    #[serde(default)]
    approvals: WrittenApprovals,
    #[serde(default)]
    limits: WrittenLimits,
    #[serde(default)]
    tools: WrittenTools,
    #[serde(default)]
    sandbox: WrittenSandbox,
    #[serde(default)]
    pi: WrittenPi,
    #[serde(default)]
    environment: WrittenEnvironment,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEnvironment {
    #[serde(default)]
    keep: Vec<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenProvider {
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
struct WrittenPrice {
    model: Spanned<String>,
    input: Spanned<f64>,
    output: Spanned<f64>,
    cache_read: Option<Spanned<f64>>,
    cache_write: Option<Spanned<f64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenApprovals {
    preset: Option<Spanned<String>>,
    #[serde(default)]
    rules: Vec<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLimits {
    max_turns: Option<Spanned<u32>>,
    max_tokens: Option<Spanned<u64>>,
    max_cost_usd: Option<Spanned<f64>>,
    compact_at: Option<Spanned<f64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTools {
    #[serde(default)]
    fetch: bool,
}

impl Written {
    pub(super) fn into_settings(self) -> Result<Settings, Misplaced> {
        let mut providers = BTreeMap::new();
        for (name, written) in self.providers {
            let provider = written.into_settings(&name)?;
            providers.insert(name.into_inner(), provider);
        }
        if let Some(provider) = &self.provider {
            check_known(provider, &providers)?;
        }
        Ok(Settings {
            provider: self.provider.map(Spanned::into_inner),
            model: self.model.map(|model| filled("model", model)).transpose()?,
            providers,
            prices: prices(self.prices)?,
            approvals: self.approvals.preset.map_or(Ok(Preset::default()), preset)?,
            rules: Rules { own: rules(self.approvals.rules)?, projects: Vec::new() },
            limits: self.limits.into_limits()?,
            tools: Tools { fetch: if self.tools.fetch { Switch::On } else { Switch::Off } },
            sandbox: self.sandbox.into_settings()?,
            pi: self.pi.into_settings()?,
            login_secrets: variables("environment.keep", self.environment.keep)?,
        })
    }
}

impl WrittenProvider {
    fn into_settings(self, name: &Spanned<String>) -> Result<ProviderSettings, Misplaced> {
        let text = name.get_ref();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        if text == NO_MODEL || text.is_empty() || !text.chars().all(plain) {
            let expected = "a name of letters, digits, - and _; the playbook has no settings";
            return Err(value(name, &format!("providers.{text}"), expected));
        }
        let key = |field: &str| format!("providers.{text}.{field}");
        let context_window = self.context_window.map(|window| positive(&key("context_window"), window));
        Ok(ProviderSettings {
            kind: kind(name, self.kind)?,
            base_url: self.base_url.map(|url| address(&key("base_url"), url)).transpose()?,
            model: self.model.map(|model| filled(&key("model"), model)).transpose()?,
            headers: headers(&key("headers"), self.headers)?,
            context_window: context_window.transpose()?,
            thinking: self
                .thinking
                .map_or(Ok(ThinkingLevel::default()), |level| thinking(&key("thinking"), level))?,
        })
    }
}

impl WrittenLimits {
    fn into_limits(self) -> Result<RunLimits, Misplaced> {
        let compact = match self.compact_at {
            None => RunLimits::default().compact_at_permille,
            Some(share) => share_of_window(&share)?,
        };
        let turns = self.max_turns.map(|turns| positive("limits.max_turns", turns)).transpose()?;
        let tokens = self.max_tokens.map(|tokens| positive("limits.max_tokens", tokens)).transpose()?;
        let cost = self.max_cost_usd.map(|cost| match millionths("limits.max_cost_usd", &cost)? {
            0 => Err(value(&cost, "limits.max_cost_usd", "more than nothing")),
            cost => Ok(cost),
        });
        Ok(RunLimits {
            max_turns: turns,
            max_tokens: tokens,
            max_cost_micro_usd: cost.transpose()?,
            compact_at_permille: compact,
        })
    }
}

fn variables(key: &str, written: Vec<Spanned<String>>) -> Result<Vec<String>, Misplaced> {
    let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0']) && name.trim() == name;
    let name = |name: Spanned<String>| {
        if is_name(name.get_ref()) {
            Ok(name.into_inner())
        } else {
            Err(value(&name, key, "names of variables"))
        }
    };
    written.into_iter().map(name).collect()
}

fn check_known(
    provider: &Spanned<String>,
    providers: &BTreeMap<String, ProviderSettings>,
) -> Result<(), Misplaced> {
    let name = provider.get_ref();
    if name == NO_MODEL || providers.contains_key(name) || ProviderKind::parse(name).is_some() {
        return Ok(());
    }
    let kinds: Vec<&str> = ProviderKind::ALL.iter().map(|(word, _)| *word).collect();
    let expected = format!("{NO_MODEL}, {}, or a name with a section [providers.NAME]", kinds.join(", "));
    Err(value(provider, "provider", &expected))
}

fn kind(name: &Spanned<String>, said: Option<Spanned<String>>) -> Result<ProviderKind, Misplaced> {
    let key = format!("providers.{}.kind", name.get_ref());
    let own = ProviderKind::parse(name.get_ref());
    match (own, said) {
        (Some(own), None) => Ok(own),
        (None, None) => Err(value(name, &key, &one_of(ProviderKind::ALL))),
        (own, Some(said)) => match ProviderKind::parse(said.get_ref()) {
            Some(kind) if own.is_none_or(|own| own == kind) => Ok(kind),
            Some(_) => {
                let expected = format!("\"{0}\": another kind of server needs another name", name.get_ref());
                Err(value(&said, &key, &expected))
            }
            None => Err(value(&said, &key, &one_of(ProviderKind::ALL))),
        },
    }
}

fn thinking(key: &str, said: Spanned<String>) -> Result<ThinkingLevel, Misplaced> {
    let expected = || value(&said, key, &one_of(ThinkingLevel::ALL));
    ThinkingLevel::parse(said.get_ref()).ok_or_else(expected)
}

fn preset(said: Spanned<String>) -> Result<Preset, Misplaced> {
    let expected = || value(&said, "approvals.preset", &one_of(Preset::ALL));
    Preset::parse(said.get_ref()).ok_or_else(expected)
}

fn rules(written: Vec<Spanned<String>>) -> Result<Vec<Rule>, Misplaced> {
    if let Some(surplus) = written.get(MOST_RULES) {
        return Err(value(surplus, "approvals.rules", &format!("at most {MOST_RULES} rules")));
    }
    let read = |rule: Spanned<String>| {
        rule.get_ref().parse().map_err(|error| (rule.span().start, Mistake::Rule(error)))
    };
    written.into_iter().map(read).collect()
}

fn prices(written: Vec<WrittenPrice>) -> Result<Vec<Price>, Misplaced> {
    let mut prices: Vec<Price> = Vec::new();
    for price in written {
        let amount = |field: &str, dollars: &Spanned<f64>| millionths(&format!("prices.{field}"), dollars);
        let input = amount("input", &price.input)?;
        let output = amount("output", &price.output)?;
        let cache_read = price.cache_read.map_or(Ok(input), |dollars| amount("cache_read", &dollars))?;
        let cache_write = price.cache_write.map_or(Ok(input), |dollars| amount("cache_write", &dollars))?;
        if prices.iter().any(|other| other.model == *price.model.get_ref()) {
            return Err(value(&price.model, "prices.model", "a model that has no price yet"));
        }
        let model = filled("prices.model", price.model)?;
        prices.push(Price { model, input, output, cache_read, cache_write });
    }
    Ok(prices)
}

fn headers(
    key: &str,
    written: BTreeMap<Spanned<String>, Spanned<String>>,
) -> Result<BTreeMap<String, String>, Misplaced> {
    let mut headers = BTreeMap::new();
    for (name, text) in written {
        let key = format!("{key}.{}", name.get_ref());
        let token = |letter: char| letter.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(letter);
        if name.get_ref().is_empty() || !name.get_ref().chars().all(token) {
            return Err(value(&name, &key, "named as a header of HTTP"));
        }
        if !text.get_ref().chars().all(|letter| (' '..='~').contains(&letter)) {
            return Err(value(&text, &key, "one line of plain ASCII"));
        }
        headers.insert(name.into_inner(), text.into_inner());
    }
    Ok(headers)
}

fn address(key: &str, url: Spanned<String>) -> Result<String, Misplaced> {
    let rest = url.get_ref().strip_prefix("http://").or_else(|| url.get_ref().strip_prefix("https://"));
    let plain = |rest: &str| {
        let host = rest.split('/').next().unwrap_or_default();
        !host.is_empty()
            && !rest.contains(|letter: char| matches!(letter, '?' | '#') || !letter.is_ascii_graphic())
    };
    if !rest.is_some_and(plain) {
        let expected = "an address that begins with http:// or https:// and has neither ? nor #";
        return Err(value(&url, key, expected));
    }
    Ok(url.into_inner())
}

fn filled(key: &str, text: Spanned<String>) -> Result<String, Misplaced> {
    if text.get_ref().trim().is_empty() || text.get_ref().contains(char::is_control) {
        return Err(value(&text, key, "a name"));
    }
    Ok(text.into_inner())
}

pub(super) fn positive<T: Copy + Default + PartialEq>(key: &str, number: Spanned<T>) -> Result<T, Misplaced> {
    if *number.get_ref() == T::default() {
        return Err(value(&number, key, "at least 1"));
    }
    Ok(number.into_inner())
}

fn share_of_window(share: &Spanned<f64>) -> Result<u16, Misplaced> {
    let number = *share.get_ref();
    if !(0.1..=1.0).contains(&number) {
        return Err(value(share, "limits.compact_at", "a share of the context window between 0.1 and 1.0"));
    }
    // The range was checked, so the cast is lossless.
    Ok((number * 1000.0).round() as u16)
}

/// Returns an amount in millionths of a dollar; more than a billion dollars is taken for a typing error.
fn millionths(key: &str, dollars: &Spanned<f64>) -> Result<u64, Misplaced> {
    let number = *dollars.get_ref();
    if !(0.0..=1e9).contains(&number) {
        return Err(value(dollars, key, "an amount of US dollars, not negative"));
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

pub(super) fn value<T>(place: &Spanned<T>, key: &str, expected: &str) -> Misplaced {
    (place.span().start, Mistake::Value { key: key.to_owned(), expected: expected.to_owned() })
}
