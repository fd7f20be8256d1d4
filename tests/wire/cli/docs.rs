//! The commands of the documentation, as they are written there.

use crate::support::home::{Home, Running};
use crate::support::model::{ModelServer, Reply, ServerDialect};

const HEADLESS: &str = include_str!("../../../docs/headless.md");

#[test]
fn every_script_about_headless_runs_does_what_it_says() {
    let home = Home::new();
    let scripts = fences(HEADLESS, "sh");
    assert!(scripts.len() >= 8, "{scripts:?}");
    for script in scripts {
        shell(&home, &format!("set -e\n{script}"));
    }
}

#[test]
fn every_command_for_a_ci_system_works() {
    let home = Home::new();
    home.write("checks.md", "Words.\n\n$ echo built > out.txt\n");
    let mut count = 0;
    for language in ["yaml", "groovy", "make", ""] {
        for command in fences(HEADLESS, language).iter().flat_map(|fence| fence.lines()).filter_map(command) {
            shell(&home, &command);
            count += 1;
        }
    }
    assert_eq!(count, 5);
}

#[test]
fn a_task_for_a_model_needs_variables_alone() {
    let home = Home::new();
    // Not the home itself: a directory with the daemon's files cannot be the workspace of a model.
    std::fs::create_dir(home.path().join("project")).expect("a project");
    home.write("project/Makefile", "test:\n\ttrue\n");
    let server = ModelServer::start();
    server.script([Reply::says("They pass.")]);
    let scripts = fences(HEADLESS, "bash");
    assert_eq!(scripts.len(), 1, "{scripts:?}");
    let place =
        format!("cd project\nexport SECRET=the-secret OPENAI_BASE_URL={}", server.base_url(ServerDialect::OpenAi));
    shell(&home, &format!("set -e\n{place}\n{}", scripts[0]));
    let asked = server.seen().into_iter().find(|seen| seen.method == "POST").expect("the model is asked");
    assert_eq!((&asked.body["model"], &*asked.headers["authorization"]), (&"gpt-x".into(), "Bearer the-secret"));
}

/// The example contains every key of the file, and is valid.
#[test]
fn the_example_of_a_configuration_is_one() {
    let home = Home::new();
    let page = include_str!("../../../docs/configuration.md");
    home.write("example.toml", &fences(page, "toml")[0]);
    assert_eq!(home.ok(&["config", "check", "example.toml"]), "example.toml: ok\n");
}

/// The command in a line, without the syntax of the CI system.
fn command(line: &str) -> Option<String> {
    let words = &line[line.find("push run")?..];
    // cron reads a bare percent sign as a line break.
    Some(words.strip_suffix('\'').filter(|_| line.contains("sh '")).unwrap_or(words).replace("\\%", "%"))
}

fn shell(home: &Home, script: &str) {
    let mut command = home.program("/bin/sh", &["-c", script]);
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_push")).parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    for variable in ["CI_JOB_ID", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT", "BUILD_TAG"] {
        command.env(variable, format!("the-{variable}"));
    }
    let output = Running::start({
        command.env("PATH", path);
        command
    })
    .wait_for_output();
    assert_eq!(output.code, Some(0), "{script}\n{output:?}");
}

/// The texts of the code fences with this language.
fn fences(page: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(marked) = line.strip_prefix("```") {
            let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if marked == language {
                found.push(text.join("\n") + "\n");
            }
        }
    }
    found
}
