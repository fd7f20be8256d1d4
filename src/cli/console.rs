//! The standard streams: results go to standard output, everything else to standard error.
//!
//! Callers pass sanitized text only: output of the `sanitize` module or of a JSON writer.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use serde_json::Value;

use crate::display::sanitize::escape_json;
pub(crate) use crate::display::style::{Palette, Style};

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How much is printed besides the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors only.
    Quiet,
    /// Notes and warnings.
    Normal,
    /// Everything.
    Verbose,
}

/// The three standard streams.
pub(crate) struct Console {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    /// Whether standard input is a terminal.
    pub(crate) input_is_terminal: bool,
    /// Whether standard output is a terminal.
    pub(crate) output_is_terminal: bool,
    /// The width of standard output, if it is a terminal.
    pub(crate) columns: Option<usize>,
    /// Whether the last line of standard output is unfinished.
    open_line: bool,
    /// Whether standard error is a terminal.
    stderr_is_terminal: bool,
    /// The palette of standard output.
    pub(crate) palette: Palette,
    /// The palette of standard error.
    pub(crate) stderr_palette: Palette,
    /// How much is printed besides the result.
    pub(crate) verbosity: Verbosity,
}

impl Console {
    /// Uses the standard streams of the process.
    pub(crate) fn standard(color: ColorChoice, verbosity: Verbosity) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            palette: palette(color, io::stdout().is_terminal(), no_color),
            stderr_palette: palette(color, io::stderr().is_terminal(), no_color),
            input_is_terminal: io::stdin().is_terminal(),
            output_is_terminal: io::stdout().is_terminal(),
            columns: columns(),
            open_line: false,
            stderr_is_terminal: io::stderr().is_terminal(),
            out: Box::new(io::stdout()),
            err: Box::new(io::stderr()),
            verbosity,
        }
    }

    /// Writes a piece of the result.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.open_line = !text.ends_with('\n');
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    /// Writes a piece of the transcript to standard error; standard output carries the answer.
    pub(crate) fn transcript(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        // If both streams are a terminal they share one cursor.
        let shares_cursor = self.output_is_terminal && self.stderr_is_terminal;
        let line_break = if shares_cursor && std::mem::take(&mut self.open_line) { "\n" } else { "" };
        // A failed write to standard error cannot be reported anywhere.
        let _ = write!(self.err, "{line_break}{text}").and_then(|()| self.err.flush());
    }

    /// Writes a line of the result.
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        self.text(&format!("{line}\n"))
    }

    /// Writes a result as JSON on one line.
    pub(crate) fn json(&mut self, value: &Value) -> io::Result<()> {
        self.line(&escape_json(&value.to_string()))
    }

    /// Writes a JSON line of the daemon, with control characters escaped.
    pub(crate) fn raw_json(&mut self, line: &str) -> io::Result<()> {
        self.line(&escape_json(line))
    }

    /// Prints a note if standard error is a terminal.
    pub(crate) fn note(&mut self, text: &str) {
        if self.shows_notes() {
            self.write_stderr(text);
        }
    }

    /// Prints what explains an empty or waiting output, also if standard error is redirected.
    pub(crate) fn notice(&mut self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            self.write_stderr(text);
        }
    }

    /// Returns whether notes are printed.
    pub(crate) fn shows_notes(&self) -> bool {
        self.stderr_is_terminal && self.verbosity >= Verbosity::Normal
    }

    /// Prints a note of little importance.
    pub(crate) fn faint_note(&mut self, text: &str) {
        let text = self.stderr_palette.paint(Style::Faint, text);
        self.note(&text);
    }

    /// Prints a detail if the output is verbose.
    pub(crate) fn detail(&mut self, text: &str) {
        if self.verbosity >= Verbosity::Verbose {
            self.write_stderr(text);
        }
    }

    /// Prints a warning.
    pub(crate) fn warn(&mut self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            self.write_stderr(&format!("push: {text}"));
        }
    }

    /// Prints a hint for an error.
    pub(crate) fn hint(&mut self, text: &str) {
        if self.verbosity >= Verbosity::Normal {
            self.write_stderr(&format!("  {text}"));
        }
    }

    /// Prints a prompt without a line break.
    pub(crate) fn prompt(&mut self, text: &str) {
        let _ = write!(self.err, "{text} ").and_then(|()| self.err.flush());
    }

    /// Prints an error.
    pub(crate) fn error(&mut self, text: &str) {
        self.write_stderr(&format!("push: {text}"));
    }

    // A failed write to standard error cannot be reported anywhere.
    fn write_stderr(&mut self, text: &str) {
        let _ = writeln!(self.err, "{text}").and_then(|()| self.err.flush());
    }
}

/// Returns the width of standard output; `None` if it is no terminal.
fn columns() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    crossterm::terminal::size().ok().map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0)
}

/// Returns the palette of a stream.
fn palette(choice: ColorChoice, terminal: bool, no_color: bool) -> Palette {
    let colored = match choice {
        ColorChoice::Auto => terminal && !no_color,
        ColorChoice::Always => true,
        ColorChoice::Never => false,
    };
    if colored { Palette::Colored } else { Palette::Plain }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A console whose output tests can read.

    use std::sync::{Arc, Mutex};

    use super::*;

    /// The captured output of one stream.
    #[derive(Debug, Clone, Default)]
    pub(crate) struct CapturedStream(Arc<Mutex<Vec<u8>>>);

    impl CapturedStream {
        /// Returns all of it.
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for CapturedStream {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A stream whose reader has closed it.
    #[derive(Debug)]
    pub(crate) struct BrokenPipe;

    impl Write for BrokenPipe {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    /// Returns a console that writes to `out`, and its captured standard error.
    pub(crate) fn console(out: impl Write + Send + 'static) -> (Console, CapturedStream) {
        let err = CapturedStream::default();
        let console = Console {
            out: Box::new(out),
            err: Box::new(err.clone()),
            input_is_terminal: false,
            output_is_terminal: false,
            columns: None,
            open_line: false,
            stderr_is_terminal: true,
            palette: Palette::Plain,
            stderr_palette: Palette::Plain,
            verbosity: Verbosity::Normal,
        };
        (console, err)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::testing::{CapturedStream, console};
    use super::*;

    #[test]
    fn results_go_to_stdout_and_notes_to_a_terminal_on_stderr() {
        let out = CapturedStream::default();
        let (mut console, err) = console(out.clone());
        console.line("result").unwrap();
        console.note("seen");
        console.stderr_is_terminal = false;
        console.note("unseen");
        console.detail("too much");
        console.warn("look");
        console.verbosity = Verbosity::Quiet;
        console.warn("unsaid");
        console.error("bad");
        assert_eq!(out.text(), "result\n");
        assert_eq!(err.text(), "seen\npush: look\npush: bad\n");
    }

    #[test]
    fn json_escapes_control_and_invisible_characters() {
        let out = CapturedStream::default();
        let (mut console, _) = console(out.clone());
        let hostile = "\u{9b}31m\u{1b}[0m\u{7f} \u{202e}x\u{200b} \u{e0041} é🦀";
        console.json(&json!({"a": hostile})).unwrap();
        let written = "{\"a\":\"\\u009b31m\\u001b[0m\\u007f \\u202ex\\u200b \\udb40\\udc41 é🦀\"}\n";
        assert_eq!(out.text(), written);
        assert_eq!(serde_json::from_str::<Value>(&out.text()).unwrap()["a"], hostile);
        let every: String = (0..0x11_0000).filter_map(char::from_u32).collect();
        let json = json!({"a": every}).to_string();
        let json = escape_json(&json);
        assert!(json.chars().all(|c| !c.is_control() && !crate::invisible_chars::is_invisible(c)));
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["a"], every);
    }

    #[test]
    fn colours_depend_on_the_flag_then_the_variable_then_the_terminal() {
        use ColorChoice::{Always, Auto, Never};
        for (choice, terminal, no_color, expected) in [
            (Auto, true, false, Palette::Colored),
            (Auto, true, true, Palette::Plain),
            (Auto, false, false, Palette::Plain),
            (Always, false, true, Palette::Colored),
            (Never, true, false, Palette::Plain),
        ] {
            assert_eq!(palette(choice, terminal, no_color), expected, "{choice:?} {terminal} {no_color}");
        }
    }
}
