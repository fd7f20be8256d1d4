//! Parsing and validation of the configuration file.

use std::fs;

use super::*;
use crate::config::settings::{Preset, Price, RunLimits, Switch, TEST_KINDS, ThinkingLevel};

const EVERYTHING: &str = r#"
provider = "openrouter"
model = "qwen3-coder"

[providers.openai]
base_url = "https://api.example.com/v1"
model = "gpt-x"
headers = { "X-Title" = "push" }
context_window = 128000
thinking = "low"

[providers.openrouter]
kind = "openai"
base_url = "https://router.example.com/api/v1"

[[prices]]
model = "gpt-x"
input = 1.25
output = 10
cache_read = 0.125
cache_write = 1.5

[[prices]]
model = "other"
input = 2
output = 4

[approvals]
preset = "strict"
rules = [
  "allow: exec(cargo test*)",
  "deny: write(.env*)",
]

[limits]
max_turns = 20
max_tokens = 100_000
max_cost_usd = 1.5
max_daily_cost_usd = 5
compact_at = 0.75

[tools]
fetch = true
"#;

#[test]
fn every_setting_is_parsed() {
    let file = parse(EVERYTHING, Path::new("c.toml"), &TEST_KINDS).unwrap();
    let settings = file.settings;
    assert_eq!(settings.provider.as_deref(), Some("openrouter"));
    assert_eq!(settings.model.as_deref(), Some("qwen3-coder"));
    let openai = &settings.providers["openai"];
    assert_eq!(openai.kind, TEST_KINDS[1]);
    assert_eq!(openai.base_url.as_deref(), Some("https://api.example.com/v1"));
    assert_eq!((openai.model.as_deref(), openai.context_window), (Some("gpt-x"), Some(128_000)));
    assert_eq!(openai.headers["X-Title"], "push");
    assert_eq!(openai.thinking, ThinkingLevel::Low);
    assert_eq!(settings.providers["openrouter"].thinking, ThinkingLevel::Usual);
    assert_eq!(settings.providers["openrouter"].kind, TEST_KINDS[1]);
    let price = |model: &str, [input, output, cache_read, cache_write]: [u64; 4]| Price {
        model: model.to_owned(),
        input,
        output,
        cache_read,
        cache_write,
    };
    assert_eq!(
        settings.prices,
        [
            price("gpt-x", [1_250_000, 10_000_000, 125_000, 1_500_000]),
            price("other", [2_000_000, 4_000_000, 2_000_000, 2_000_000])
        ]
    );
    assert_eq!(settings.approvals, Preset::Strict);
    let rules: Vec<String> = settings.rules.user.iter().map(ToString::to_string).collect();
    assert_eq!(rules, ["allow: exec(cargo test*)", "deny: write(.env*)"]);
    assert_eq!(file.lines.get("approvals.rules.2"), Some(&32));
    let limits = RunLimits {
        max_turns: Some(20),
        max_tokens: Some(100_000),
        max_cost_micro_usd: Some(1_500_000),
        max_daily_cost_micro_usd: Some(5_000_000),
        compact_at_permille: 750,
    };
    assert_eq!(settings.limits, limits);
    assert_eq!(settings.tools.fetch, Switch::On);
    for (key, line) in [("provider", 2), ("providers.openai.headers.X-Title", 8), ("prices.2.model", 24)] {
        assert_eq!(file.lines.get(key), Some(&line), "{key}");
    }
}

#[test]
fn an_empty_file_gives_the_defaults() {
    assert_eq!(parse("", Path::new("c"), &TEST_KINDS).unwrap(), ConfigFile::default());
    assert_eq!(parse("# only words\n[limits]\n", Path::new("c"), &TEST_KINDS).unwrap(), ConfigFile::default());
}

#[test]
fn a_mistake_is_named_with_its_line_and_what_was_expected() {
    for (text, expected) in [
        ("provider = 'ollama'\nmodle = 'x'\n", "line 2: unknown field `modle`, expected one of `provider`, `model`"),
        ("\n\nmodel = 3\n", "line 3: invalid type: integer `3`, expected a string"),
        ("model = 'x\n", "line 1: invalid literal string"),
        ("model = 'x'\nmodel = 'y'\n", "line 2: duplicate key"),
        ("provider = 'opnai'\n", "line 1: `provider` must be playbook, ollama, openai, anthropic, or a name with"),
        (
            "[providers.mine]\nbase_url = 'http://x'\n",
            "line 1: `providers.mine.kind` must be one of \"ollama\", \"openai\"",
        ),
        ("[providers.mine]\nkind = 'open'\n", "line 2: `providers.mine.kind` must be one of \"ollama\""),
        ("[providers.openai]\nkind = 'ollama'\n", "line 2: `providers.openai.kind` must be \"openai\""),
        ("[providers.playbook]\nmodel = 'x'\n", "line 1: `providers.playbook` must be a name of letters"),
        ("[providers.'a b']\nkind = 'ollama'\n", "line 1: `providers.a b` must be a name of letters"),
        (
            "[providers.openai]\n\nbase_url = 'api.example.com'\n",
            "line 3: `providers.openai.base_url` must be an address",
        ),
        (
            "[providers.openai]\nbase_url = 'https://a/v1?x=1'\n",
            "line 2: `providers.openai.base_url` must be an address",
        ),
        ("[providers.openai]\ncontext_window = 0\n", "line 2: `providers.openai.context_window` must be at least 1"),
        (
            "[providers.openai]\nthinking = 'hard'\n",
            "line 2: `providers.openai.thinking` must be one of \"usual\", \"off\", \"low\", \"medium\", \"high\"",
        ),
        (
            "[providers.openai.headers]\n'X Y' = 'z'\n",
            "line 2: `providers.openai.headers.X Y` must be named as a header",
        ),
        ("[providers.openai.headers]\nX = \"a\\nb\"\n", "line 2: `providers.openai.headers.X` must be one line"),
        ("[[prices]]\nmodel = 'm'\ninput = -1\noutput = 1\n", "line 3: `prices.input` must be an amount of US dollars"),
        ("[[prices]]\nmodel = 'm'\ninput = 1\n", "line 1: missing field `output`"),
        (
            "[[prices]]\nmodel='m'\ninput=1\noutput=1\n[[prices]]\nmodel='m'\ninput=1\noutput=1\n",
            "line 6: `prices.model` must be",
        ),
        (
            "[approvals]\npreset = 'lax'\n",
            "line 2: `approvals.preset` must be one of \"strict\", \"standard\", \"trusted\"",
        ),
        (
            "[approvals]\nrules = [\n  'allow: exec(ls)',\n  'deny: exce(rm)',\n]\n",
            "line 4: `deny: exce(rm)` is not a rule: at character 7, a category (read, write, exec, git, network)",
        ),
        ("[approvals]\nrules = ['rm']\n", "line 2: `rm` is not a rule: at character 1, `allow:`, `ask:` or `deny:`"),
        ("[approvals]\nrules = 'deny: exec'\n", "line 2: invalid type: string"),
        ("[limits]\nmax_turns = 0\n", "line 2: `limits.max_turns` must be at least 1"),
        ("[limits]\nmax_turns = -2\n", "line 2: invalid value: integer `-2`, expected u32"),
        ("[limits]\nmax_cost_usd = 0\n", "line 2: `limits.max_cost_usd` must be more than nothing"),
        ("[limits]\nmax_cost_usd = nan\n", "line 2: `limits.max_cost_usd` must be an amount"),
        ("[limits]\ncompact_at = 80\n", "line 2: `limits.compact_at` must be a share"),
        ("[tools]\nfetch = 'yes'\n", "line 2: invalid type: string \"yes\", expected a boolean"),
        ("model = ' '\n", "line 1: `model` must be a name"),
    ] {
        let error = parse(text, Path::new("/c.toml"), &TEST_KINDS).unwrap_err().to_string();
        assert!(error.starts_with(&format!("/c.toml, {expected}")), "{text:?} gave {error}");
        assert!(!error.contains('\n'), "{error:?}");
    }
}

#[test]
fn a_credential_is_refused_by_name_or_shape_and_not_repeated() {
    for text in [
        "[providers.openai]\napi_key = 'hunter2'\n",
        "\napiKey = 'hunter2'\n",
        "[providers.anthropic]\nauth-token = 'hunter2'\n",
        "[providers.openai]\nheaders = { Authorization = 'hunter2' }\n",
        "[providers.openai.headers]\nX-Api-Key = 'hunter2'\n",
        "[providers.openai.headers]\nX-Title = 'Bearer hunter2'\n",
        "[providers.openai]\nmodel = 'sk-proj-hunter2-0123456789'\n",
        "[providers.openai]\nheaders = 'Bearer hunter2'\n",
        "[providers.openai]\nbase_url = 'https://ann:hunter2@api.example.com/v1'\n",
        "[[prices]]\npassword = 'hunter2'\n",
    ] {
        let line = text.lines().position(|line| line.contains("hunter2")).unwrap() + 1;
        let error = parse(text, Path::new("c.toml"), &TEST_KINDS).unwrap_err().to_string();
        assert!(error.starts_with(&format!("c.toml, line {line}: ")), "{text:?} gave {error}");
        assert!(error.contains("looks like a credential") && error.contains("OPENAI_API_KEY"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn values_that_only_resemble_credentials_are_accepted() {
    let text = "model = 'sk-1'\n[providers.openai]\nbase_url = 'http://host/@scope'\n[limits]\nmax_tokens = 5\n";
    assert!(parse(text, Path::new("c"), &TEST_KINDS).is_ok());
}

#[test]
fn a_missing_file_gives_the_defaults_and_an_unreadable_one_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(read(&folder.path().join("none.toml"), &TEST_KINDS).unwrap(), ConfigFile::default());
    assert!(matches!(read(folder.path(), &TEST_KINDS), Err(ConfigError::NotAFile { .. })));
    let path = folder.path().join("c.toml");
    assert_eq!(read(&path.join("below"), &TEST_KINDS).unwrap(), ConfigFile::default());
    fs::write(&path, b"model = 'a'\n# \xff\n").unwrap();
    assert!(read(&path, &TEST_KINDS).unwrap_err().to_string().ends_with("c.toml, line 2: the file is not UTF-8"));
    fs::write(&path, vec![b'\n'; 1024 * 1024]).unwrap();
    assert!(read(&path, &TEST_KINDS).is_ok());
    fs::write(&path, vec![b'\n'; 1024 * 1024 + 1]).unwrap();
    assert!(read(&path, &TEST_KINDS).unwrap_err().to_string().contains("more than 1048576 bytes"));
}

#[test]
fn the_sandbox_section_is_parsed() {
    let text = "[sandbox]\nprovider = 'none'\nnetwork = true\nunix_sockets = true\nhide = ['~/.kube', '/srv/x']\n\
                writable = ['~/.cargo']\nreadable = ['~/notes']\nmemory_mb = 512\nprocesses = 64\nmechanism = 'landlock'\n";
    let sandbox = parse(text, Path::new("c.toml"), &TEST_KINDS).unwrap().settings.sandbox;
    assert_eq!((sandbox.provider.as_str(), sandbox.network, sandbox.unix_sockets), ("none", Switch::On, Switch::On));
    assert_eq!(sandbox.mechanism.as_str(), "landlock");
    assert_eq!((sandbox.hide, sandbox.writable), (vec!["~/.kube".into(), "/srv/x".into()], vec!["~/.cargo".into()]));
    assert_eq!((sandbox.memory, sandbox.processes), (Some(512 << 20), Some(64)));
    for (line, word) in [
        ("provider = 'docker'", "one of \"local\", \"none\""),
        ("mechanism = 'rules'", "one of \"auto\", \"namespaces\", \"bubblewrap\", \"landlock\""),
        ("hide = ['relative']", "an absolute path"),
        ("hide = ['~/a/../..']", "without .."),
        ("writable = ['/']", "an absolute path"),
        ("readable = ['~/']", "an absolute path"),
        ("readable = ['~/../x']", "without .."),
        ("processes = 0", "at least 1"),
        ("loud = true", "unknown field"),
    ] {
        let error = parse(&format!("[sandbox]\n{line}\n"), Path::new("c.toml"), &TEST_KINDS).unwrap_err().to_string();
        assert!(error.starts_with("c.toml, line 2: ") && error.contains(word), "{error}");
    }
}

#[test]
fn the_pi_section_is_parsed_and_its_mistakes_are_located() {
    let text = "[pi]\nenabled = true\nlisten = '[::1]:0'\norigins = ['https://app.example', 'http://localhost:8080']\n\
                hosts = ['box.lan', '[fe80::1]', '10.0.0.1']\nrequire_token = true\n";
    let pi = parse(text, Path::new("c"), &TEST_KINDS).unwrap().settings.pi;
    assert_eq!((pi.enabled, pi.require_token, pi.listen.to_string().as_str()), (Switch::On, Switch::On, "[::1]:0"));
    assert_eq!((pi.origins.len(), pi.hosts.len()), (2, 3));
    for (line, key) in [
        ("listen = 'box.lan:80'", "pi.listen"),
        ("listen = ''", "pi.listen"),
        ("origins = ['null']", "pi.origins"),
        ("origins = ['*']", "pi.origins"),
        ("origins = ['https://*.example']", "pi.origins"),
        ("origins = ['https://app.example/']", "pi.origins"),
        ("origins = ['https://App.example']", "pi.origins"),
        ("origins = ['app.example']", "pi.origins"),
        ("hosts = ['box.lan:80']", "pi.hosts"),
        ("hosts = ['*']", "pi.hosts"),
        ("hosts = ['']", "pi.hosts"),
        ("port = 1", "port"),
    ] {
        let wrong = parse(&format!("[pi]\n{line}\n"), Path::new("c"), &TEST_KINDS).unwrap_err().to_string();
        assert!(wrong.starts_with("c, line 2: ") && wrong.contains(key), "{line}: {wrong}");
    }
}

#[test]
fn an_address_opens_the_port_for_all_protocols_and_not_the_one_for_pi() {
    for (text, pi, http) in [
        ("", Switch::Off, Switch::Off),
        ("[pi]\nlisten = '1'\n[http]\nlisten = '2'\n", Switch::Off, Switch::On),
        ("[pi]\nenabled = true\n[http]\nenabled = false\nlisten = '2'\n", Switch::On, Switch::Off),
    ] {
        let settings = parse(text, Path::new("c"), &TEST_KINDS).unwrap().settings;
        assert_eq!((settings.pi.enabled, settings.http.enabled), (pi, http), "{text}");
        assert_ne!(settings.pi.listen, settings.http.listen, "{text}");
    }
    let wrong = parse("[http]\nlisten = 'box'\n", Path::new("c"), &TEST_KINDS).unwrap_err().to_string();
    assert!(wrong.contains("http.listen"), "{wrong}");
}
