//! The shell grammar against real shells: every command that they run is among the analysed parts.
//!
//! Each shell of this machine runs random texts of a few harmless programs. The programs log their arguments, and the
//! analysis must have seen every logged call, unless it reports that it does not see every command. `PUSH_FUZZ_RUNS`
//! sets the number of texts, `PUSH_FUZZ_SEED` the first seed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pushd::sandbox::risk::{self, Coverage, Escalation, PathContext, ResourceAccess, RiskAssessment};
use pushd::sandbox::shell::{GLOB, Limits, UNKNOWN};

use crate::support::random::Random;

/// The expansion of the tilde.
const HOME: &str = "/h";
/// The number of texts per shell.
const TEXTS: u64 = 250;

#[test]
fn every_command_that_a_shell_runs_was_analysed() {
    let fixture = ShellFixture::new();
    let (mut clear, mut calls) = (0, 0);
    let number =
        |name: &str, otherwise: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let first = number("PUSH_FUZZ_SEED", 0);
    let texts = number("PUSH_FUZZ_RUNS", TEXTS);
    for seed in first..first + texts {
        let text = script(&mut Random::new(seed));
        let place = PathContext::new(fixture.dir.path(), Some(Path::new(HOME)));
        let assessment = risk::assess_command(&text, Some("work"), Escalation::default(), &place, Limits::default());
        if assessment.uncertainty.as_ref().is_some_and(|doubt| doubt.coverage == Coverage::Partial) {
            continue;
        }
        clear += 1;
        for shell in fixture.shells() {
            let (run, files) = fixture.run(&shell, &text);
            calls += run.len();
            for words in run {
                let seen = assessment.operations.iter().filter_map(|part| part.command.as_ref());
                assert!(
                    seen.clone().any(|spelling| can_expand_to(&spelling.words, &words)),
                    "seed {seed}: {shell:?} ran {words:?} in {text:?}, seen were {:?}",
                    seen.collect::<Vec<_>>()
                );
            }
            // The assessment of an unknown target says so instead.
            for file in files.into_iter().filter(|_| assessment.uncertainty.is_none()) {
                assert!(writes(&assessment, &file), "seed {seed}: {shell:?} wrote {file} in {text:?}: {assessment:?}");
            }
        }
    }
    // Otherwise the test compared nothing.
    assert!(clear > texts / 4 && calls as u64 > texts / 2, "{clear} texts were clear, and {calls} calls were made");
}

/// The programs and a working directory.
struct ShellFixture {
    dir: tempfile::TempDir,
}

impl ShellFixture {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("push-shells").tempdir().unwrap();
        for folder in ["bin", "work"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        for (name, code) in [("pa", 0), ("pb", 0), ("pf", 1)] {
            let path = dir.path().join("bin").join(name);
            // One write per call, because calls may run concurrently.
            let body = format!(
                "#!/bin/sh\nr='{name}\u{1f}'\nfor a; do r=\"$r$a\u{1f}\"; done\n\
                 printf '%s' \"$r\u{1e}\" >> \"$LOG\"\nprintf 'pb z'\nexit {code}\n"
            );
            fs::write(&path, body).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { dir }
    }

    fn shells(&self) -> Vec<PathBuf> {
        let known = ["/bin/sh", "/bin/dash", "/bin/bash"];
        known.iter().map(PathBuf::from).filter(|shell| shell.exists()).collect()
    }

    /// Runs a text; returns the calls of programs and the created files.
    fn run(&self, shell: &Path, text: &str) -> (Vec<Vec<String>>, Vec<String>) {
        let work = self.dir.path().join("work");
        let log = self.dir.path().join("log");
        fs::remove_dir_all(&work).unwrap();
        fs::create_dir(&work).unwrap();
        fs::write(&log, "").unwrap();
        let mut child = Command::new(shell);
        child.arg("-c").arg(format!("{text}\nwait")).current_dir(&work).env_clear();
        child.env("PATH", self.dir.path().join("bin")).env("LOG", &log).env("V", "pb v").env("HOME", HOME);
        // `output` also waits for background processes, which hold the pipes.
        child.stdin(Stdio::null()).output().unwrap();
        let log = fs::read_to_string(log).unwrap();
        let calls = log.split('\u{1e}').filter(|call| !call.is_empty());
        let words = |call: &str| call.split_terminator('\u{1f}').map(str::to_owned).collect();
        let files = fs::read_dir(work).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        (calls.map(words).collect(), files.collect())
    }
}

/// Whether analysed words can expand to these.
fn can_expand_to(analysed: &[String], words: &[String]) -> bool {
    let at_home = |word: &String| word.strip_prefix('~').map_or(word.clone(), |rest| format!("{HOME}{rest}"));
    let analysed: Vec<String> = analysed.iter().map(at_home).collect();
    let open = analysed.iter().any(|word| word.contains([UNKNOWN, GLOB]));
    if !open {
        return analysed == words;
    }
    let (analysed, words) = (analysed.join(" "), words.join(" "));
    let mut pieces = analysed.split([UNKNOWN, GLOB]);
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = words.strip_prefix(first.trim_end()) else { return false };
    for piece in pieces {
        match rest.find(piece.trim()) {
            Some(at) => rest = &rest[at + piece.trim().len()..],
            None => return false,
        }
    }
    true
}

fn writes(assessment: &RiskAssessment, file: &str) -> bool {
    let touches = assessment.operations.iter().flat_map(|part| &part.accesses);
    touches.into_iter().any(|touch| match &touch.access {
        ResourceAccess::Write(spot) => spot.path == format!("work/{file}"),
        ResourceAccess::Read(_) | ResourceAccess::Mention(_) | ResourceAccess::Git(_) | ResourceAccess::Network(_) => {
            false
        }
    })
}

/// A random text whose loops end at once.
fn script(random: &mut Random) -> String {
    let mut text = part(random, 3);
    for _ in 0..random.below(3) {
        let between = ["; ", " && ", " || ", " | ", "\n", " & ", " # pa no\n", " \\\n && "];
        text.push_str(between[random.below(8) as usize]);
        text.push_str(&part(random, 3));
    }
    text
}

fn part(random: &mut Random, depth: u64) -> String {
    let inner = |random: &mut Random| if depth == 0 { simple(random) } else { part(random, depth - 1) };
    match random.below(if depth == 0 { 4 } else { 14 }) {
        0..=4 => simple(random),
        5 => format!("( {} )", inner(random)),
        6 => format!("{{ {}; }}", inner(random)),
        7 => format!("if {}; then {}; else {}; fi", inner(random), inner(random), inner(random)),
        8 => format!("while pf; do {}; done", inner(random)),
        9 => format!("for v in {} {}; do {}; done", word(random), word(random), inner(random)),
        10 => format!("case {} in a|{}) {};; *) {};; esac", word(random), word(random), inner(random), inner(random)),
        11 => format!("pa \"$({})\" {}", inner(random), word(random)),
        12 => format!("pb <<E {}\nx $(pa h) \\$(pb no)\nE\n{}", word(random), inner(random)),
        _ => format!("sh() {{ {}; }}; eval '{}'", inner(random), simple(random).replace('\'', "")),
    }
}

fn simple(random: &mut Random) -> String {
    let mut text = String::new();
    if random.one_in(5) {
        text.push_str("A=1 ");
    }
    let programs =
        ["pa", "pb", "pf", "p'a'", "\\pa", "\"pb\"", "env pa", "command pb", "exec pa", "eval pa", "$V", "p$E\"a\""];
    text.push_str(programs[random.below(12) as usize]);
    for _ in 0..random.below(4) {
        text.push(' ');
        text.push_str(&word(random));
    }
    if random.one_in(6) {
        text.push_str(
            [" > out", " >> 'o p'", " 2>err", " > \"q\"", " 2>&1", " </dev/null", " >|x"][random.below(7) as usize],
        );
    }
    text
}

fn word(random: &mut Random) -> String {
    let pieces = [
        "a",
        "b",
        "'c d'",
        "\"e f\"",
        "\\ ",
        "\\;",
        "';'",
        "\"&&\"",
        "$V",
        "\"$V\"",
        "`pa`",
        "$(pb s)",
        "\"`pb t`\"",
        "#",
        "x#y",
        "'#'",
        "~",
        "{a,b}",
        "{}",
        "\\\\",
        "\"\\\"\"",
        "'\"'",
        "\"'\"",
        "$",
        "\"$\"",
        "$((1+2))",
        "${V}",
        "${N:-n}",
        "${V%v}",
        "=",
        "-n",
        "!",
        "[",
        "*",
        "''",
        "é",
        "\"\\a\"",
        "\\n",
        "}",
        "if",
        "done",
        "in",
    ];
    let many = random.below(2) + 1;
    let word: String = (0..many).map(|_| pieces[random.below(pieces.len() as u64) as usize]).collect();
    // A comment would swallow the rest of the line.
    if word.starts_with('#') { format!("w{word}") } else { word }
}
