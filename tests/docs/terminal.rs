//! A shell in a real terminal (tmux), to which commands and answers are typed.

use std::process::Command;

use crate::support::home::{Home, wait_until};

/// The prompt of the shell: the exit code of the last command between two signs that nothing else prints.
const SHELL_PROMPT: &str = "PS1=@$?@";

/// How the prompts of `push` begin.
const PROMPTS: [&str; 6] =
    ["approve? [", "choose one: [", "provider [", "model [", "delete ", "stop active runs now? "];

/// A terminal; dropping it closes it.
pub(crate) struct Terminal {
    socket: String,
}

/// What a terminal shows after a line was typed, when the shell or a program waits for the next one.
pub(crate) struct Pause {
    pub(crate) shown: String,
    pub(crate) waiting: ExpectedInput,
}

/// What waits for input.
pub(crate) enum ExpectedInput {
    /// The shell, after a command with this exit code.
    Shell(i32),
    /// A program, with this prompt.
    Prompt(String),
}

impl Terminal {
    pub(crate) fn is_possible() -> bool {
        Command::new("tmux").arg("-V").output().is_ok()
    }

    /// Opens a terminal in a directory, with these variables and no others.
    pub(crate) fn open(home: &Home, name: &str, directory: &str, variables: &[(String, String)]) -> Self {
        let terminal = Self { socket: home.path().join(format!(".tmux-{name}")).display().to_string() };
        let mut words = vec!["-f", "/dev/null", "new-session", "-d", "-x", "220", "-y", "200", "-c", directory];
        let variables: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        words.extend(["env", "-i", "TERM=screen", "LANG=C.UTF-8", "ENV=", "PAGER=cat", "PUSH_PLAIN=1", SHELL_PROMPT]);
        words.extend(variables.iter().map(String::as_str));
        words.extend(["/bin/sh", "-i"]);
        terminal.tmux(&words);
        terminal.wait_for_pause();
        terminal
    }

    /// Types a line, and waits until the next one can be typed.
    pub(crate) fn type_line(&self, line: &str) -> Pause {
        self.type_only(line);
        self.wait_for_pause()
    }

    /// Types a line on an empty screen.
    pub(crate) fn type_only(&self, line: &str) {
        self.tmux(&["send-keys", "-R"]);
        self.tmux(&["clear-history"]);
        if !line.is_empty() {
            self.tmux(&["send-keys", "-l", line]);
        }
        self.tmux(&["send-keys", "Enter"]);
    }

    /// Waits for a line on the screen.
    pub(crate) fn wait_for(&self, line: &str) {
        wait_until(&format!("{line:?} on the screen"), || self.screen().lines().any(|shown| shown == line));
    }

    /// Waits until the shell or a program waits for input.
    pub(crate) fn wait_for_pause(&self) -> Pause {
        let mut pause = None;
        let mut screen = String::new();
        wait_until("the next prompt", || {
            screen = self.screen();
            pause = waiting(&screen);
            pause.is_some()
        });
        // The first line is the echo of what was typed, the last one the prompt.
        let lines: Vec<&str> = screen.lines().collect();
        let shown = lines.get(1..lines.len() - 1).unwrap_or_default().join("\n");
        Pause { shown, waiting: pause.expect("the prompt") }
    }

    fn screen(&self) -> String {
        let screen = self.tmux(&["capture-pane", "-p", "-J"]);
        screen.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim_end().to_owned()
    }

    fn tmux(&self, words: &[&str]) -> String {
        let output = Command::new("tmux").args(["-u", "-S", &self.socket]).args(words).output().expect("tmux");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the terminal shows:\n{}", self.screen());
        }
        self.tmux(&["kill-server"]);
    }
}

fn waiting(screen: &str) -> Option<ExpectedInput> {
    let last = screen.lines().last()?;
    if let Some(code) = last.strip_prefix('@').and_then(|last| last.strip_suffix('@')) {
        return Some(ExpectedInput::Shell(code.parse().ok()?));
    }
    let is_prompt = PROMPTS.iter().any(|prompt| last.starts_with(prompt)) && last.ends_with([']', ':']);
    is_prompt.then(|| ExpectedInput::Prompt(last.to_owned()))
}
