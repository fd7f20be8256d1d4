//! Runs the commands of a page in their order, in a temporary home with a real daemon and a scripted model server.
//!
//! A page is finished when each of its blocks was run or was listed with the reason why it cannot run here.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::normalize::normalize;
use super::page::{Block, Page};
use super::terminal::{ExpectedInput, Terminal};
use crate::support::home::{Home, Running};
use crate::support::model::ModelServer;

/// The state of a page that is being run.
pub(crate) struct Walkthrough {
    blocks: VecDeque<Block>,
    terminals: Vec<Terminal>,
    pub(crate) home: Home,
    pub(crate) model: ModelServer,
    variables: Vec<(String, String)>,
    directory: PathBuf,
}

impl Walkthrough {
    /// Opens a page. Its commands run in the directory `project` of the home, a git repository without commits.
    pub(crate) fn open(page: &str) -> Self {
        let blocks = Page::open(page).blocks().into_iter().filter(Block::has_commands).collect();
        let home = Home::new();
        home.write(".gitconfig", "[user]\nname = Ann\nemail = ann@example.org\n[init]\ndefaultBranch = main\n");
        let model = ModelServer::start();
        model.has_models(&["qwen3:8b"]);
        let directory = home.path().join("project");
        std::fs::create_dir(&directory).expect("a directory");
        let programs = Path::new(env!("CARGO_BIN_EXE_push")).parent().expect("a directory").display().to_string();
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
        let home_path = home.path().display().to_string();
        let variables = [("HOME", home_path), ("PATH", path), ("OLLAMA_HOST", model.url())];
        let variables = variables.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let walkthrough = Self { blocks, terminals: Vec::new(), home, model, variables, directory };
        walkthrough.shell("git init -q -b main");
        walkthrough
    }

    /// Sets a variable for all commands and terminals that are started from now on.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Changes the directory of scripts and of new terminals.
    pub(crate) fn change_directory(&mut self, below_home: &str) {
        self.directory = self.home.path().join(below_home);
    }

    /// Writes a file in the directory of the commands.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.directory.join(name), text).expect("a file");
    }

    /// The next block, which begins with this text, is not run.
    pub(crate) fn list(&mut self, beginning: &str, reason: &str) {
        assert!(!reason.is_empty());
        self.next(beginning);
    }

    /// Runs the next block, which begins with this text, as a shell script that must succeed.
    pub(crate) fn script(&mut self, beginning: &str) {
        let block = self.next(beginning);
        self.shell(&format!("set -e\n{}", block.text));
    }

    /// Runs a text of the test itself as a shell script that must succeed.
    pub(crate) fn shell(&self, script: &str) {
        let mut command = self.home.program("/bin/sh", &["-c", script]);
        command.envs(self.variables.iter().cloned()).current_dir(&self.directory);
        let output = Running::start(command).wait_for_output();
        assert_eq!(output.code, Some(0), "{script}\n{}\n{}", output.out, output.err);
    }

    /// Types the lines of the next block into the terminal. `answers` are typed at the prompts, which begin as stated;
    /// the block may leave a program that waits at its last prompt, for which there is no answer.
    pub(crate) fn type_lines(&mut self, beginning: &str, answers: &[(&str, &str)]) {
        let block = self.next(beginning);
        self.type_text(&block.text, answers, &block.location);
    }

    /// The same with a text in place of the block.
    pub(crate) fn type_text(&mut self, text: &str, answers: &[(&str, &str)], location: &str) {
        let mut answers = answers.iter();
        for line in text.lines() {
            let mut pause = self.terminal().type_line(line);
            loop {
                match pause.waiting {
                    ExpectedInput::Shell(code) => {
                        assert_eq!(code, 0, "{location}: {line}\n{}", pause.shown);
                        break;
                    }
                    ExpectedInput::Prompt(prompt) => match answers.next() {
                        Some((expected, answer)) => {
                            assert!(prompt.starts_with(expected), "{location}: {prompt} instead of {expected}");
                            pause = self.terminal().type_line(answer);
                        }
                        None => {
                            return assert!(text.ends_with(&format!("{line}\n")), "{location}: no answer to {prompt}");
                        }
                    },
                }
            }
        }
        assert!(answers.next().is_none(), "{location}: a prompt did not appear");
    }

    /// Types the commands and answers of the next block, a transcript, into the terminal and compares what appears.
    pub(crate) fn transcript(&mut self, beginning: &str) {
        let block = self.next(beginning);
        let lines: Vec<&str> = block.text.lines().collect();
        let mut at = 0;
        while at < lines.len() {
            let input = lines[at].strip_prefix("$ ").or_else(|| Some(split_prompt(lines[at])?.1));
            let Some(input) = input else { panic!("{}: not shown: {:?}", block.location, lines[at]) };
            if input.starts_with("push approve ") || input.starts_with("push deny") {
                // A person does not type before the request is there.
                self.home.wait_for_approval();
            }
            let pause = self.terminal().type_line(input);
            at = self.compare(&block, at + 1, &pause.shown);
            if let ExpectedInput::Prompt(prompt) = pause.waiting {
                let line = lines.get(at).copied().unwrap_or_default();
                assert!(line.starts_with(&prompt), "{}: expected {line:?}, shown {prompt:?}", block.location);
                if at + 1 == lines.len() && line == prompt {
                    return;
                }
            }
        }
    }

    /// Runs the next block, a transcript of one command that is interrupted, which leaves a prompt: when the terminal
    /// shows the given line, `interrupt` is called. Lines of a single number are not compared: how many there are
    /// depends on the time at which the interruption takes effect.
    pub(crate) fn interrupted_transcript(&mut self, beginning: &str, line: &str, interrupt: impl FnOnce(&Home)) {
        let block = self.next(beginning);
        self.terminal().type_only(block.first_line().trim_start_matches("$ "));
        self.terminal().wait_for(line);
        interrupt(&self.home);
        let pause = self.terminal().wait_for_pause();
        let ExpectedInput::Prompt(prompt) = pause.waiting else { panic!("{}: {}", block.location, pause.shown) };
        let without_numbers = |text: &str| {
            let lines = text.lines().filter(|line| line.trim().parse::<u32>().is_err());
            lines.map(|line| format!("{line}\n")).collect::<String>()
        };
        let home = self.home.path().display().to_string();
        let shown = normalize(&without_numbers(&(pause.shown + "\n" + &prompt)), &home);
        let expected = normalize(&without_numbers(&block.text), &home);
        assert_eq!(shown, expected[1..], "{}", block.location);
    }

    /// Opens a terminal, in which everything is typed until it is closed or another one is opened.
    pub(crate) fn open_terminal(&mut self) {
        let name = self.terminals.len().to_string();
        let directory = self.directory.display().to_string();
        self.terminals.push(Terminal::open(&self.home, &name, &directory, &self.variables));
    }

    /// Makes the other one of two terminals the current one.
    pub(crate) fn switch_terminals(&mut self) {
        self.terminals.rotate_left(1);
    }

    /// Closes the terminal that is not the current one.
    pub(crate) fn close_other_terminal(&mut self) {
        drop(self.terminals.remove(0));
    }

    /// Takes the next block out, without running it.
    pub(crate) fn next(&mut self, beginning: &str) -> Block {
        let Some(block) = self.blocks.pop_front() else { panic!("no block begins with {beginning:?}") };
        let is_next = block.text.starts_with(beginning);
        assert!(is_next, "{} is neither run nor listed, or not in this order:\n{}", block.location, block.text);
        block
    }

    /// The page has no further commands.
    pub(crate) fn finish(mut self) {
        if let Some(block) = self.blocks.pop_front() {
            panic!("{} is neither run nor listed:\n{}", block.location, block.text);
        }
    }

    fn terminal(&self) -> &Terminal {
        self.terminals.last().expect("an open terminal")
    }

    /// Compares the lines from `start` on with what was shown, and returns the number of the line after that.
    fn compare(&self, block: &Block, start: usize, shown: &str) -> usize {
        let home = self.home.path().display().to_string();
        let expected = normalize(&block.text, &home);
        let shown = normalize(shown, &home);
        let end = (start + shown.len()).min(expected.len());
        let (wanted, shown) = (expected[start..end].join("\n"), shown.join("\n"));
        assert_eq!(
            wanted, shown,
            "{}: the page has the first text, the terminal the second:\n{wanted}\n---\n{shown}",
            block.location
        );
        end
    }
}

/// A prompt of `push` and the answer behind it. The prompts end with a bracket or, with a default in it, a colon.
fn split_prompt(line: &str) -> Option<(&str, &str)> {
    let end = line.find("]:").map(|end| end + 2).or_else(|| line.find(']').map(|end| end + 1))?;
    let (prompt, answer) = line.split_at(end);
    Some((prompt, answer.trim_start()))
}
