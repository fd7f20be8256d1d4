//! `push config`: its path, the effective values, and errors in it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::home::{Home, ProgramOutput, Running};

#[test]
fn the_file_is_in_the_platform_directory_or_where_a_variable_says() {
    let home = Home::new();
    let usual = home.path().join(".config/push/config.toml");
    assert_eq!(home.ok(&["config", "path"]), format!("{}\n", usual.display()));
    let output = with(&home, &["config", "path"], &[("PUSH_CONFIG", "/elsewhere/push.toml")]);
    assert_eq!((output.code, output.out.as_str()), (Some(0), "/elsewhere/push.toml\n"));
    let output = with(&home, &["config", "path"], &[("XDG_CONFIG_HOME", "/conf")]);
    assert_eq!(output.out, "/conf/push/config.toml\n");
    let output = with(&home, &["config", "path"], &[("PUSH_CONFIG", "push.toml")]);
    assert_eq!((output.code, output.out.as_str()), (Some(69), ""), "{output:?}");
    assert!(!home.push_path("").exists(), "a daemon was started for nothing");
}

#[test]
fn without_a_file_the_defaults_apply() {
    let home = Home::new();
    let shown = home.json(&["config", "show", "--json"]);
    assert_eq!(shown["exists"], false);
    for (key, value) in [("provider", json!("playbook")), ("model", Value::Null), ("tools.fetch", json!(false))] {
        assert_eq!(row(&shown, key), json!({"key": key, "value": value, "origin": "default"}));
    }
    let out = home.ok(&["config", "show"]);
    assert!(out.contains("(does not exist)\n") && out.contains("approvals.preset"), "{out}");
    assert!(home.ok(&["config", "check"]).ends_with("config.toml: does not exist; the defaults apply\n"));
}

#[test]
fn each_value_is_shown_with_its_origin_and_a_key_never() {
    let home = configured("provider = 'openai'\nmodel = 'gpt'\n[providers.openai]\nheaders = { X-T = 'planted' }\n");
    let variables = [("PUSH_MODEL", "other"), ("OPENAI_API_KEY", "sk-planted-0123456789")];
    let output = with(&home, &["config", "show", "--json"], &variables);
    let shown = output.json();
    assert_eq!(row(&shown, "provider"), json!({"key": "provider", "value": "openai", "origin": "file", "line": 1}));
    assert_eq!(
        row(&shown, "model"),
        json!({"key": "model", "value": "other", "origin": "variable", "variable": "PUSH_MODEL"})
    );
    assert!(!output.out.contains("planted"), "{output:?}");
    let output = with(&home, &["config", "show"], &variables);
    assert!(output.out.contains("file, line 1\n") && output.out.contains("PUSH_MODEL\n"), "{output:?}");
    assert!(!output.out.contains("planted"), "{output:?}");
}

#[test]
fn a_mistake_is_named_with_its_file_and_line() {
    let home = configured("provider = 'openai'\n\n[limits]\nmax_trns = 3\n");
    for words in [&["config", "check"][..], &["config", "show"]] {
        let output = home.push(words);
        assert_eq!((output.code, output.out.as_str()), (Some(1), ""), "{output:?}");
        let place = format!("push: {}, line 4: unknown field `max_trns`", config(&home).display());
        assert!(output.err.starts_with(&place) && output.err.contains("`max_turns`"), "{output:?}");
    }
    home.write("other.toml", "model = 5\n");
    let output = home.push(&["config", "check", "other.toml"]);
    assert!(output.code == Some(1) && output.err.contains("other.toml, line 1: "), "{output:?}");
    home.write("other.toml", "model = 'm'\n");
    assert_eq!(home.ok(&["config", "check", "other.toml"]), "other.toml: ok\n");
    assert_eq!(home.push(&["config", "check", "none.toml"]).code, Some(1));
}

#[test]
fn a_key_in_the_file_is_refused_and_not_repeated() {
    let home = configured("[providers.openai]\napi_key = 'planted'\n");
    let output = home.push(&["config", "check"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("line 2") && output.err.contains("OPENAI_API_KEY"), "{output:?}");
    assert!(!output.err.contains("planted"), "{output:?}");
}

#[test]
fn a_project_tightens_values_and_is_shown_as_their_origin() {
    let home = configured("[approvals]\npreset = 'trusted'\n[limits]\nmax_turns = 5\n");
    let project = home.path().join("project");
    fs::create_dir_all(project.join(".push")).unwrap();
    fs::create_dir_all(project.join(".git")).unwrap();
    fs::create_dir_all(project.join("src")).unwrap();
    let file = project.join(".push/config.toml");
    fs::write(&file, "[approvals]\npreset = 'strict'\n[limits]\nmax_turns = 50\n").unwrap();
    let mut command = home.command(&["config", "show", "--json"]);
    command.current_dir(project.join("src"));
    let shown = Running::start(command).wait_for_output().json();
    let preset = row(&shown, "approvals.preset");
    assert_eq!((&preset["value"], &preset["origin"]), (&json!("strict"), &json!("project")));
    assert_eq!(preset["file"], file.canonicalize().unwrap().display().to_string());
    assert_eq!(row(&shown, "limits.max_turns")["value"], 5);
    fs::write(&file, "provider = 'openai'\n").unwrap();
    let mut command = home.command(&["config", "check"]);
    command.current_dir(&project);
    let output = Running::start(command).wait_for_output();
    assert!(output.code == Some(1) && output.err.contains("line 1: `provider` is reserved for"), "{output:?}");
}

#[test]
fn the_daemons_own_directory_is_no_project() {
    let home = Home::new();
    fs::create_dir_all(home.push_path("")).unwrap();
    home.write(".push/config.toml", "nonsense");
    home.ok(&["config", "show"]);
}

#[test]
fn an_unknown_provider_is_reported() {
    let home = Home::new();
    let output = with(&home, &["config", "check"], &[("PUSH_PROVIDER", "opnai")]);
    assert!(output.code == Some(1) && output.err.contains("PUSH_PROVIDER names the provider opnai"), "{output:?}");
    assert_eq!(with(&home, &["config", "check"], &[("PUSH_PROVIDER", "openai")]).code, Some(0));
}

#[test]
fn without_a_terminal_a_set_up_says_what_to_do() {
    let home = Home::new();
    let output = home.push(&["config"]);
    assert_eq!((output.code, output.out.as_str()), (Some(64), ""), "{output:?}");
    assert!(output.err.contains("config.toml") && output.err.contains("PUSH_PROVIDER"), "{output:?}");
}

#[test]
fn a_key_is_read_from_a_pipe_and_its_store_is_shown() {
    let home = Home::new();
    let output = home.push_with_input(&["config", "key", "openai"], "sk-planted-0123456789\n");
    let file = home.path().join(".config/push/keys.toml");
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.out, format!("stored the key of openai in {}\n", file.display()));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let shown = home.json(&["config", "show", "--json"]);
    let place = json!({"provider": "openai", "from": "file", "file": file.display().to_string()});
    assert_eq!(key(&shown, "openai"), place);
    assert_eq!(key(&shown, "anthropic"), json!({"provider": "anthropic", "from": "none"}));
    let variables = [("OPENAI_API_KEY", "sk-planted-other"), ("ANTHROPIC_API_KEY", "sk-planted-third")];
    let output = with(&home, &["config", "show", "--json"], &variables);
    assert_eq!(key(&output.json(), "openai")["variable"], "OPENAI_API_KEY");
    assert_eq!(key(&output.json(), "anthropic")["from"], "variable");
    assert!(!output.out.contains("planted"), "{output:?}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let shown = key(&home.json(&["config", "show", "--json"]), "openai");
    assert!(shown["problem"].as_str().unwrap().contains("chmod 600"), "{shown}");
}

#[test]
fn a_program_of_the_path_is_not_taken_for_the_keyring() {
    let home = Home::new();
    let tools = home.path().join("tools");
    // Another process writes it, so that no child of this process holds it open for writing when it starts.
    let program = "#!/bin/sh\ntouch $HOME/ran\ncase $1 in store) cat > $HOME/ring;; lookup) echo planted;; esac";
    let write = "mkdir tools && printf '%s\\n' \"$0\" > tools/secret-tool && chmod 700 tools/secret-tool";
    let written = Running::start(home.program("/bin/sh", &["-c", write, program])).wait_for_output();
    assert_eq!(written.code, Some(0), "{written:?}");
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
    // Without a system keyring it fails; with one it does not use the program on the PATH.
    let output = home.push_with(&["config", "key", "anthropic", "--keyring"], &[("PATH", &path)], "planted-key");
    assert!(!output.err.contains("planted") && output.code != Some(101), "{output:?}");
    assert!(output.code == Some(0) || output.err.contains("secret-tool"), "{output:?}");
    let output = with(&home, &["config", "show", "--json"], &[("PATH", &path)]);
    assert!(!output.out.contains("planted"), "{output:?}");
    assert!(!home.path().join("ran").exists() && !home.path().join("ring").exists());
}

#[test]
fn invalid_keys_and_keys_of_unknown_providers_are_refused() {
    let home = Home::new();
    for (words, input, code) in [
        (&["config", "key", "openai"][..], " \n", 64),
        (&["config", "key", "openai"], "two planted words", 1),
        (&["config", "key", "opnai"], "planted", 64),
    ] {
        let output = home.push_with_input(words, input);
        assert_eq!((output.code, output.out.as_str()), (Some(code), ""), "{output:?}");
        assert!(!output.err.contains("planted"), "{output:?}");
    }
    assert!(!home.path().join(".config").exists());
    let output = home.push_with(&["config", "key", "openai"], &[("OPENAI_API_KEY", "x")], "planted");
    assert!(output.code == Some(0) && output.err.contains("OPENAI_API_KEY is set and takes precedence"), "{output:?}");
}

fn key(shown: &Value, provider: &str) -> Value {
    let keys = shown["keys"].as_array().unwrap();
    keys.iter().find(|key| key["provider"] == provider).unwrap_or_else(|| panic!("no {provider} in {shown}")).clone()
}

fn configured(text: &str) -> Home {
    let home = Home::new();
    let path = config(&home);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    home
}

fn config(home: &Home) -> std::path::PathBuf {
    home.path().join(".config/push/config.toml")
}

fn with(home: &Home, words: &[&str], variables: &[(&str, &str)]) -> ProgramOutput {
    let mut command = home.command(words);
    command.envs(variables.iter().copied());
    Running::start(command).wait_for_output()
}

fn row(shown: &Value, key: &str) -> Value {
    let rows = shown["settings"].as_array().unwrap();
    rows.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("no {key} in {shown}")).clone()
}
