//! Tests of the command line parser.

use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Args::command().debug_assert();
}

#[test]
fn every_verb_has_a_description_and_an_example() {
    fn check(command: &clap::Command) {
        for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
            let name = verb.get_name();
            assert!(verb.get_about().is_some(), "{name} has a description");
            let after = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains("push "), "{name} has an example");
            for argument in verb.get_arguments().filter(|argument| !argument.is_hide_set()) {
                assert!(argument.get_help().is_some(), "{name} explains {}", argument.get_id());
            }
            check(verb);
        }
    }
    check(&Args::command());
}

#[test]
fn documented_command_lines_are_accepted() {
    for line in [
        "push",
        "push run hello",
        "push run -",
        "push run @plan.md --headless --json",
        "push run x --jsonl --provider playbook --cwd /tmp --name n --approve ask",
        "push run x --session @last --yes --accept a --accept b --timeout 1.5 --idempotency-key k",
        "push run x --detach",
        "push run x --detach --yes",
        "push run x --no-stdin --worktree --timeout 5m",
        "push run --worktree=topic x",
        "push playbook plan.md --headless --json",
        "push playbook - --approve all",
        "push sessions --json --all",
        "push ls --state running --here --since 2h",
        "push ps --repo /tmp",
        "push show",
        "push show @last --json",
        "push attach",
        "push attach sess_1 --since 4 --read-only",
        "push attach --plain",
        "push chat",
        "push chat hello --provider p --model m --cwd /tmp --name n --plain",
        "push run x --plain",
        "push log @last --jsonl --follow",
        "push export @last --format html -o page.html",
        "push backup all.backup",
        "push restore all.backup --force",
        "push completions fish",
        "push man daemon run",
        "push send s hello",
        "push steer s hello",
        "push queue s",
        "push queue s hello --json",
        "push queue s --remove m",
        "push approvals",
        "push approvals s --json",
        "push approve",
        "push approve a --comment c --choice skip",
        "push deny a --comment c",
        "push cancel s",
        "push wait s --timeout 5",
        "push rename s name",
        "push compact s",
        "push compact s --instructions text --json",
        "push end s",
        "push delete @last",
        "push delete s1 s2 --yes --json",
        "push delete --older-than 30d --yes",
        "push purge",
        "push purge --yes --force",
        "push doctor",
        "push doctor --full --json",
        "push run x --model m --max-cost 1.5 --max-turns 20 --max-tokens 100000 --report junit=r.xml",
        "push config",
        "push config show --json",
        "push config path",
        "push config check",
        "push config check some.toml",
        "push daemon run",
        "push daemon run --announce",
        "push daemon start",
        "push daemon stop --force",
        "push daemon stop --now",
        "push daemon stop --grace 3",
        "push daemon restart",
        "push daemon status --json",
        "push daemon logs --follow -n 5",
        "push --color never --quiet sessions",
        "push sessions -v",
    ] {
        assert!(Args::try_parse_from(line.split(' ')).is_ok(), "{line}");
    }
}

#[test]
fn invalid_command_lines_are_bad_usage() {
    for line in [
        "push dance",
        "push run a b",
        "push run x --json --jsonl",
        "push run x --session s --cwd /tmp",
        "push run x --yes --approve deny",
        "push run x --approve maybe",
        "push run x --timeout soon",
        "push run x --timeout 0",
        "push run x --detach --jsonl",
        "push run x --worktree --session s",
        "push run x --timeout 5y",
        "push run x --detach --report junit=r.xml",
        "push run x --report tap=r.xml",
        "push run x --session s --model m",
        "push run x --session s --provider p",
        "push run x --max-cost 0",
        "push run x --max-turns 0",
        "push run x --max-tokens -1",
        "push config dance",
        "push queue s hello --remove m",
        "push wait",
        "push delete",
        "push delete s1 --older-than 30d",
        "push delete --older-than soon",
        "push purge s1",
        "push search x --limit 0",
        "push doctor s1",
        "push daemon",
        "push -q -v sessions",
    ] {
        let error = Args::try_parse_from(line.split(' ')).expect_err(line);
        assert!(error.use_stderr(), "{line}");
    }
}

#[test]
fn help_and_version_are_results() {
    for line in ["push --help", "push --version", "push run --help", "push help run"] {
        let error = Args::try_parse_from(line.split(' ')).expect_err(line);
        assert!(!error.use_stderr(), "{line}");
    }
}

#[test]
fn an_error_names_its_cause_once() {
    #[derive(Debug, thiserror::Error)]
    enum Nested {
        #[error("cannot open x: {source}")]
        WithCause { source: std::io::Error },
        #[error("cannot start")]
        WithoutCause { source: Box<Nested> },
    }
    let io = || std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
    let error = Nested::WithCause { source: io() };
    assert_eq!(chain(&error), "cannot open x: no such file");
    assert_eq!(chain(&Nested::WithoutCause { source: Box::new(error) }), "cannot start: cannot open x: no such file");
}
