//! The commands of the README and of the guides. Blocks that cannot run in a test are listed with the reason.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rusqlite::{Connection, OpenFlags};

use super::page::{Block, Page};
use super::terminal::Terminal;
use super::walkthrough::Walkthrough;
use crate::support::model::{Reply, ServerDialect, call};
use crate::support::skip::skip;

/// Why commands of contributors are not run by a test.
const BUILDS: &str = "builds the program or runs its tests, as the test itself was built and is run";

#[test]
fn the_commands_of_the_readme_work() {
    if !Terminal::is_possible() {
        return skip("the README: tmux is missing");
    }
    let mut page = Walkthrough::open("README.md");
    page.write("test.sh", "echo passed\n");
    page.write("Makefile", "test:\n\ttrue\n");
    page.write("release.md", "Test, then tag the release.\n\n$ sh test.sh\n?$ git tag v1.0\n");
    page.write("checks.md", "$ sh test.sh\n");
    page.write("count.md", "$ for i in 1 2 3 4 5 6; do echo $i; sleep 1; done\n");
    page.shell("git add . && git commit -q -m 'Add a test'");
    page.list("cargo install --locked --path .", BUILDS);

    let commit = call("1", "sandbox_git_commit", r#"{"message":"Fix the sum","paths":["sum.sh"]}"#);
    page.write("sum.sh", "echo 5\n");
    page.model.script([Reply::turn([commit]), Reply::says("The test passes.")]);
    page.open_terminal();
    page.type_lines("push config\n", &[("provider [", ""), ("model [", "")]);
    page.script("push  ");
    page.open_terminal();
    page.transcript("$ cat release.md");
    page.model.script([Reply::says("Nothing is wrong."), Reply::says("They pass.")]);
    page.script("git diff | push run");
    page.interrupted_transcript("$ push playbook count.md", "  3", |home| home.kill_daemon());
    page.list("cargo run -- run", BUILDS);
    page.finish();
}

#[test]
fn the_commands_about_playbooks_work() {
    if !Terminal::is_possible() {
        return skip("the guide to playbooks: tmux is missing");
    }
    let mut page = Walkthrough::open("docs/playbooks.md");
    page.write("test.sh", "echo passed\n");
    page.write("release.md", "Test, then tag the release.\n\n$ sh test.sh\n?$ git tag v1.0\n");
    page.shell("git add . && git commit -q -m 'Add a test'");
    page.shell("push daemon start");
    page.open_terminal();
    page.transcript("$ cat release.md");
    page.transcript("$ push playbook --headless --approve ask --detach");
    page.finish();
}

#[test]
fn the_commands_about_headless_runs_work() {
    let mut page = Walkthrough::open("docs/headless.md");
    for variable in ["CI_JOB_ID", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT", "BUILD_TAG"] {
        page.set(variable, &format!("the-{variable}"));
    }
    page.set("SECRET", "the-secret");
    page.set("OPENAI_BASE_URL", &page.model.base_url(ServerDialect::OpenAi));
    page.write("Makefile", "test:\n\ttrue\n");
    page.model.script([Reply::says("They pass.")]);
    page.script("export PUSH_PROVIDER=openai");
    let request = page.model.seen().into_iter().find(|seen| seen.method == "POST").expect("the model is asked");
    assert_eq!((&request.body["model"], &*request.headers["authorization"]), (&"gpt-x".into(), "Bearer the-secret"));
    page.script("cat > checks.md");
    page.script("code=0");
    page.script("test \"$(push run --headless --quiet");
    page.script("printf 'one\\ntwo\\n' | push run");
    page.script("push run --headless --report junit=push.xml");
    page.script("push run --headless --timeout 10m");
    page.script("push run --headless --idempotency-key");
    page.script("push run --headless --approve ask");
    page.script("push run --detach --headless");
    for beginning in ["jobs:", "agent:\n  timeout", "pipeline {", "PATH=", "agent:\n\tpush"] {
        let block = page.next(beginning);
        let commands: Vec<String> = block.text.lines().filter_map(embedded_command).collect();
        assert_eq!(commands.len(), 1, "{}: {commands:?}", block.location);
        page.shell(&commands[0]);
    }
    page.finish();
}

#[test]
fn the_commands_about_models_work() {
    let mut page = Walkthrough::open("docs/providers.md");
    page.model.script([Reply::says("Hello!")]);
    page.script("push run --provider ollama");
    page.list("push config key openai", "asks for a key at a terminal without echo, and needs a keyring");
    page.shell("echo the-key | push config key openai && push config show | grep -q keys.toml");
    page.finish();
}

#[test]
fn the_commands_about_operations_work() {
    let mut page = Walkthrough::open("docs/operations.md");
    page.script("push daemon start");
    page.list("mkdir -p ~/.config/systemd/user", "needs the service manager of a login");
    assert!(super::page::repository().join("systemd/pushd.service").exists());
    page.script("push backup ~/push.backup");
    page.shell("push run --headless '$ true'; push run --headless --name other '$ true'");
    let deleting = page.next("push delete @last");
    // Without a terminal the commands need `--yes`.
    let text: String = deleting.text.lines().filter(|line| line.starts_with("push")).map(confirmed).collect();
    assert_eq!(text.matches("--yes").count(), 3, "{}", deleting.location);
    page.shell(&format!("set -e\n{text}"));
    page.script("push doctor ");
    page.shell("push run --headless '$ true'");
    let query = page.next("sqlite3 -readonly");
    let lines = select(&page, &query);
    assert!(lines.contains("\"run_complete\""), "{lines}");
    page.finish();
}

#[test]
fn the_commands_about_the_history_work() {
    let mut page = Walkthrough::open("docs/history.md");
    page.script("push run --headless --name disk-check");
    page.script("push export disk-check");
    page.script("push stats");
    page.script("push backup ~/push-today.backup");
    assert!(page.home.path().join("project/disk-check.html").exists());
    page.finish();
}

#[test]
fn the_commands_about_another_machine_work() {
    let mut page = Walkthrough::open("docs/remote.md");
    // The other machine is the home itself: the command line is evaluated by a shell there, as a server does it.
    let programs = page.home.path().join("bin");
    fs::create_dir(&programs).expect("a directory");
    let ssh = programs.join("ssh");
    let script = "#!/bin/sh\ncase $1 in -*) until [ \"$1\" = -- ]; do shift; done; shift;; esac\nshift\n\
                  cd && exec /bin/sh -c \"$*\"\n";
    fs::write(&ssh, script).expect("a program");
    fs::set_permissions(&ssh, PermissionsExt::from_mode(0o755)).expect("a mode");
    let push = std::path::Path::new(env!("CARGO_BIN_EXE_push")).parent().expect("a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    page.set("PATH", &format!("{}:{}:{path}", programs.display(), push.display()));
    page.script("push --host ssh://box run");
    page.home.wait_for_approval();
    page.script("export PUSH_HOST");
    page.script("ssh box \"cd project");
    page.list("ssh -N -L 3141", "forwards a port until it is interrupted");
    page.finish();
}

#[test]
fn the_commands_for_contributors_are_listed() {
    let mut page = Walkthrough::open("CONTRIBUTING.md");
    page.list("cargo run -- --help", BUILDS);
    page.list("cargo install cargo-fuzz", BUILDS);
    page.list("INSTA_UPDATE=always", BUILDS);
    page.finish();
    let mut page = Walkthrough::open("docs/performance.md");
    page.list("cargo bench ", BUILDS);
    page.list("cargo bench -- models", BUILDS);
    page.finish();
    let aliases = fs::read_to_string(super::page::repository().join(".cargo/config.toml")).expect("the aliases");
    assert!(aliases.contains("\nlint = "), "`cargo lint` is no alias");
}

/// The README's introduction to playbooks and that of their guide are the same file.
#[test]
fn the_example_of_a_playbook_is_the_same_everywhere() {
    let transcript = |page: &str| {
        let blocks = Page::open(page).blocks();
        blocks.into_iter().find(|block| block.text.starts_with("$ cat release.md")).expect("the transcript").text
    };
    assert_eq!(transcript("README.md"), transcript("docs/playbooks.md"));
}

/// The command in a line, without the syntax of the CI system.
fn embedded_command(line: &str) -> Option<String> {
    let words = &line[line.find("push run")?..];
    // cron reads a bare percent sign as a line break.
    Some(words.strip_suffix('\'').filter(|_| line.contains("sh '")).unwrap_or(words).replace("\\%", "%"))
}

/// A line of a script, with `--yes` before its comment.
fn confirmed(line: &str) -> String {
    let (command, comment) = line.split_once('#').unwrap_or((line, ""));
    format!("{command} --yes #{comment}\n")
}

/// Runs the query of a block on the journal, as the program in the block would.
fn select(page: &Walkthrough, block: &Block) -> String {
    let query = block.text.split('"').nth(1).expect("a query");
    let journal = page.home.push_path("state/pushd.db");
    let journal = Connection::open_with_flags(journal, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the journal");
    let mut query = journal.prepare(query).expect("the query");
    let rows = query.query_map([], |row| row.get::<_, String>(0)).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}
