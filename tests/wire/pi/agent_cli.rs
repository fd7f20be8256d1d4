//! The pi coding agent from npm on session files of this daemon, and this daemon on its files.
//!
//! It is installed once, below the target directory. Where npm cannot reach its registry, the tests are skipped.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::json;

use crate::pi::line::Transport;
use crate::pi::runner;
use crate::support::skip::skip;

const PACKAGE: &str = "@mariozechner/pi-coding-agent";
const VERSION: &str = "0.73.1";
/// The time limit for the installation and for a run of the agent.
const TIMEOUT: Duration = Duration::from_secs(300);

#[test]
fn the_pi_agent_continues_our_file_and_the_session_continues_from_there() {
    run_with_agent(
        r#"
        model "One from us"
        model "Two from the agent"
        model "Three from us"
        model "Four from the agent"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > prompt @s {"message":"asked first"}
        ok
        until ${file} One from us
        agent -c -p / asked second
        request 1 {"messages":["$has",{"role":"user","content":[{"text":"asked first"}]},{"role":"assistant","content":"One from us"},{"role":"user","content":[{"text":"asked second"}]}]}
        contains ${file} asked first / One from us / asked second / Two from the agent
        > prompt @s {"message":"asked third"}
        ok {"sessionVersion":2}
        until ${file} Three from us
        request 2 {"messages":[{"role":"system"},{"content":"asked first"},{"content":"One from us"},{"content":"asked second"},{"content":"Two from the agent"},{"content":"asked third"}]}
        agent --session ${file} -p / asked fourth
        request 3 {"messages":["$has",{"role":"user","content":[{"text":"asked first"}]},{"role":"assistant","content":"Two from the agent"},{"role":"assistant","content":"Three from us"}]}
        contains ${file} asked first / One from us / asked second / Two from the agent / asked third / Three from us / asked fourth / Four from the agent
    "#,
    );
}

#[test]
fn a_session_continues_a_file_of_the_pi_agent_which_continues_from_there() {
    run_with_agent(
        r#"
        file note.txt "what the note says"
        model [{"call":"read","id":"call_7","args":{"path":"note.txt"}}]
        model "One from the agent"
        model "Two from us"
        model "Three from the agent"
        agent -p / asked first
        > list_stored_sessions
        ok {"data":{"sessions":[{"sessionFile":"$file","messageCount":4,"cwd":"${home}/work"}]}}
        > load_session @s {"sessionPath":"${file}"}
        ok {"data":{"sessionInfo":{"messageCount":4,"sessionFile":"$file"}}}
        > get_messages @s
        ok {"data":{"messages":[{"role":"user","content":[{"text":"asked first"}]},{"role":"assistant","content":[{"name":"read","arguments":{"path":"note.txt"}}]},{"role":"toolResult","toolName":"read","content":[{"text":"what the note says"}],"isError":false},{"role":"assistant","content":[{"text":"One from the agent"}]}]}}
        > prompt @s {"message":"asked second"}
        ok
        until ${file} Two from us
        request 2 {"messages":["$has",{"content":"asked first"},{"role":"tool","content":"what the note says"},{"content":"One from the agent"},{"content":"asked second"}]}
        agent -c -p / asked third
        request 3 {"messages":["$has",{"role":"user","content":[{"text":"asked first"}]},{"role":"tool","content":"what the note says"},{"role":"user","content":[{"text":"asked second"}]},{"role":"assistant","content":"Two from us"}]}
        contains ${file} asked first / One from the agent / asked second / Two from us / asked third / Three from the agent
    "#,
    );
}

#[test]
fn the_pi_agent_reads_our_summary_and_our_fork() {
    run_with_agent(
        r#"
        model "One from us"
        model "Two from us"
        model "Everything in short"
        model "Three from the agent"
        model "Four from the agent"
        > create_session @s
        ok {"data":{"sessionInfo":{"sessionFile":"$file"}}}
        > prompt @s {"message":"asked first"}
        ok
        until ${file} One from us
        > prompt @s {"message":"asked second"}
        ok
        until ${file} Two from us
        > get_fork_messages @s
        ok {"data":{"messages":[{"text":"asked first"},{"entryId":"$second"}]}}
        > compact @s
        ok {"data":{"summary":"Everything in short"}}
        until ${file} Everything in short
        agent --session ${file} -p / asked third
        request 3 {"messages":["$has",{"role":"user","content":[{"text":"$~Everything in short"}]},{"role":"user","content":[{"text":"asked third"}]}]}
        contains ${file} asked first / One from us / asked second / Two from us / Everything in short / asked third / Three from the agent
        > fork @s {"entryId":"${second}"}
        ok
        > get_state @s
        ok {"data":{"sessionFile":"$fork","messageCount":2}}
        agent --session ${fork} -p / asked instead
        request 4 {"messages":[{"role":"system"},{"role":"user","content":[{"text":"asked first"}]},{"role":"assistant","content":"One from us"},{"role":"user","content":[{"text":"asked instead"}]}]}
        lacks ${fork} asked second
        lacks ${file} asked instead
    "#,
    );
}

/// Runs a transcript with steps of the agent.
fn run_with_agent(text: &str) {
    match installed() {
        Ok(_) => runner::run(Transport::Web, text),
        Err(why) => skip(why),
    }
}

/// Runs the agent in a home, in the directory of its sessions, with a model server; it must succeed.
pub(crate) fn run(home: &Path, model_url: &str, words: &[&str]) {
    let cli = installed().as_ref().expect("it was looked for before");
    let models = json!({"providers": {"fake": {
        "baseUrl": model_url, "api": "openai-completions", "apiKey": "none", "models": [{"id": "test-model"}],
    }}});
    let agent = home.join(".pi/agent");
    fs::create_dir_all(&agent).expect("the agent's directory");
    fs::write(agent.join("models.json"), models.to_string()).expect("its models");
    let mut command = Command::new("node");
    command.arg(cli).args(["--offline", "--provider", "fake", "--model", "test-model"]).args(words);
    command.current_dir(home.join("work")).env_clear().env("HOME", home);
    command.envs(["PATH"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    let output = bounded(command).expect("the agent answers");
    assert!(output.status.success(), "pi {words:?}: {output:?}");
}

/// Returns the program of the agent, installing it if necessary, or the reason why it cannot be installed.
fn installed() -> &'static Result<PathBuf, String> {
    static INSTALLED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let location = cache.join(format!("pi-coding-agent-{VERSION}"));
        let cli = location.join("node_modules").join(PACKAGE).join("dist/cli.js");
        if !cli.is_file() {
            install(cache, &location)?;
        }
        let mut command = Command::new("node");
        command.arg(&cli).arg("--version");
        let output = bounded(command)?;
        if output.status.success() { Ok(cli) } else { Err(format!("{PACKAGE} does not start: {output:?}")) }
    })
}

/// Installs the agent into a temporary directory and renames that, so that an interrupted installation is never used.
fn install(cache: &Path, location: &Path) -> Result<(), String> {
    let draft = tempfile::tempdir_in(cache).map_err(|error| error.to_string())?;
    let mut command = Command::new("npm");
    command.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-save", "--prefix"]);
    command.arg(draft.path()).arg(format!("{PACKAGE}@{VERSION}"));
    let output = bounded(command)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("npm cannot install {PACKAGE}: {}", text.lines().next().unwrap_or_default()));
    }
    match fs::rename(draft.path(), location) {
        // A concurrent test has installed it.
        Err(_) if location.is_dir() => Ok(()),
        renamed => renamed.map_err(|error| error.to_string()),
    }
}

/// Runs a command to its end; at the time limit its process group is killed.
fn bounded(mut command: Command) -> Result<Output, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().map_err(|error| format!("{name} cannot be run: {error}"))?;
    let group = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
    let (sender, reported) = mpsc::channel();
    let waiting = thread::spawn(move || drop(sender.send(child.wait_with_output())));
    let output = match reported.recv_timeout(TIMEOUT) {
        Ok(output) => output.map_err(|error| error.to_string()),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            // It may have ended already.
            let _ = killpg(group, Signal::SIGKILL);
            Err(format!("{name} took longer than {TIMEOUT:?}"))
        }
    };
    waiting.join().expect("whoever waits does not fail");
    output
}
