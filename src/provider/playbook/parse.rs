//! Parses a message as a playbook: Markdown in which `$ ` lines and marked fences are steps and the rest is prose.
//!
//! The parser is pure, executes nothing and guesses nothing: a step that cannot be parsed, or text that looks like
//! a step but is not one, becomes a problem for the caller to report, never prose and never another step.

/// An item of a playbook, in the order of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Prose between steps, without the blank lines around it.
    Prose(String),
    /// A command for the shell.
    Exec {
        /// The command, of one or more lines.
        command: String,
        /// Whether it needs an approval first.
        ask: bool,
        /// Whether the playbook continues if the command fails.
        continue_on_failure: bool,
    },
    /// A file to write.
    Write {
        /// The path, as written.
        path: String,
        /// The content, with a final newline unless it is empty.
        content: String,
        /// Whether it needs an approval first.
        ask: bool,
    },
    /// A file to show.
    Read {
        /// The path, as written.
        path: String,
    },
    /// A step that cannot be parsed.
    Problem {
        /// The number of its first line, from 1.
        line: usize,
        /// What is wrong with it.
        text: String,
    },
}

/// Parses `markdown`; CRLF line ends become LF.
pub fn parse(markdown: &str) -> Vec<Item> {
    let markdown = markdown.strip_prefix('\u{feff}').unwrap_or(markdown);
    // The last line may end in a carriage return without a line feed.
    let lines: Vec<&str> = markdown.lines().map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let mut reader = Parser { lines: &lines, line_number: 0, prose: Vec::new(), items: Vec::new() };
    while let Some(line) = reader.next() {
        if let Some(fence) = Fence::open(line) {
            reader.fence(&fence, line);
        } else if let Some((first, ask)) = step(line) {
            reader.command(first, ask);
        } else if let Some(text) = misplaced_step(line) {
            reader.push_problem(text);
        } else {
            reader.prose.push(line);
        }
    }
    reader.flush_prose();
    reader.items
}

/// Returns the problems among `items`: their lines and what is wrong.
pub fn problems(items: &[Item]) -> impl Iterator<Item = (usize, &str)> {
    items.iter().filter_map(|item| match item {
        Item::Problem { line, text } => Some((*line, text.as_str())),
        Item::Prose(_) | Item::Exec { .. } | Item::Write { .. } | Item::Read { .. } => None,
    })
}

/// Returns whether `items` contain a step.
pub fn has_steps(items: &[Item]) -> bool {
    items.iter().any(|item| match item {
        Item::Exec { .. } | Item::Write { .. } | Item::Read { .. } => true,
        Item::Prose(_) | Item::Problem { .. } => false,
    })
}

struct Parser<'a> {
    lines: &'a [&'a str],
    /// The number of consumed lines, which is also the number of the last one.
    line_number: usize,
    prose: Vec<&'a str>,
    items: Vec<Item>,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let line = self.lines.get(self.line_number)?;
        self.line_number += 1;
        Some(line)
    }

    /// Parses a `$ ` step with its continuation lines.
    fn command(&mut self, first: &str, ask: bool) {
        let line = self.line_number;
        let mut command = first.to_owned();
        while ends_with_continuation(&command)
            && let Some(more) = self.next()
        {
            command.push('\n');
            command.push_str(more);
        }
        self.push(exec(command, ask, false).unwrap_or_else(|text| problem(line, text)));
    }

    /// Parses a fenced block whose first line is `opening`.
    fn fence(&mut self, fence: &Fence<'a>, opening: &'a str) {
        let line = self.line_number;
        let kind = FenceKind::from_info(fence.info);
        let mut body = Vec::new();
        let mut closing = None;
        while let Some(next) = self.next() {
            if fence.closes(next) {
                closing = Some(next);
                break;
            }
            body.push(next);
        }
        let text: Vec<&str> = body.iter().map(|line| fence.unindented(line)).collect();
        let item = match kind {
            FenceKind::Step => block(fence.info, &text),
            FenceKind::UnknownShell => Err(format!(
                "a fence marked {} is not run; mark it sh, bash, shell or console, or text if it is not to be run",
                fence.info
            )),
            FenceKind::Unmarked if text.iter().any(|line| step(line).is_some()) => Err(
                "a fence without a mark holds a line that begins with `$ `; mark it console to run it, or text if it is \
                 not to be run"
                    .to_owned(),
            ),
            FenceKind::Unmarked | FenceKind::Other => {
                self.prose.push(opening);
                self.prose.extend(body);
                self.prose.extend(closing);
                return;
            }
        };
        self.push(item.unwrap_or_else(|text| problem(line, text)));
    }

    /// Adds a problem for the last consumed line.
    fn push_problem(&mut self, text: String) {
        let line = self.line_number;
        self.push(problem(line, text));
    }

    fn push(&mut self, item: Item) {
        self.flush_prose();
        self.items.push(item);
    }

    /// Adds the collected prose as an item.
    fn flush_prose(&mut self) {
        let is_text = |line: &&str| !line.trim().is_empty();
        if let (Some(first), Some(last)) = (self.prose.iter().position(is_text), self.prose.iter().rposition(is_text)) {
            self.items.push(Item::Prose(self.prose[first..=last].join("\n")));
        }
        self.prose.clear();
    }
}

/// The opening line of a fenced block.
struct Fence<'a> {
    mark: char,
    length: usize,
    indent: usize,
    info: &'a str,
}

impl<'a> Fence<'a> {
    fn open(line: &'a str) -> Option<Self> {
        let (indent, rest) = indented(line)?;
        let mark = rest.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
        let info = rest.trim_start_matches(mark);
        let length = rest.len() - info.len();
        // Three backticks followed by another one in the same line are inline code.
        let is_fence = length >= 3 && !(mark == '`' && info.contains('`'));
        is_fence.then(|| Self { mark, length, indent, info: info.trim() })
    }

    fn closes(&self, line: &str) -> bool {
        indented(line).is_some_and(|(_, rest)| {
            let after = rest.trim_start_matches(self.mark);
            rest.len() - after.len() >= self.length && after.trim().is_empty()
        })
    }

    /// Strips from a line of the block as much indentation as its opening line has.
    fn unindented<'b>(&self, line: &'b str) -> &'b str {
        let spaces = line.bytes().take(self.indent).take_while(|byte| *byte == b' ').count();
        &line[spaces..]
    }
}

/// The kind of a fenced block, by its mark.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FenceKind {
    /// Commands to run, or a file to write or show.
    Step,
    /// Commands of an unsupported shell, or a mark in an unsupported notation.
    UnknownShell,
    /// A block without a mark.
    Unmarked,
    /// Anything else, which is prose.
    Other,
}

/// The marks of blocks that are executed.
const SHELLS: [&str; 4] = ["sh", "bash", "shell", "console"];
/// Marks of other shells, whose blocks are not executed.
const OTHER_SHELLS: [&str; 19] = [
    "zsh",
    "fish",
    "ksh",
    "dash",
    "ash",
    "csh",
    "tcsh",
    "nu",
    "nushell",
    "pwsh",
    "powershell",
    "ps1",
    "bat",
    "batch",
    "cmd",
    "terminal",
    "shellsession",
    "sh-session",
    "bash-session",
];

impl FenceKind {
    fn from_info(info: &str) -> Self {
        let Some(first) = info.split_whitespace().next() else { return Self::Unmarked };
        let word = first.to_ascii_lowercase();
        // Some tools write the mark as `{.bash}`, `bash,ignore` or `{bash}`.
        let bare = word.trim_start_matches(['{', '.']);
        let bare = bare.split([',', '}', '{', ':', '=', ';']).next().unwrap_or_default();
        let is_session = |bare: &str| bare.ends_with("-session") || bare.starts_with("shell-");
        if matches!(first, "write" | "read") || SHELLS.contains(&word.as_str()) {
            Self::Step
        } else if SHELLS.contains(&bare) || OTHER_SHELLS.contains(&bare) || is_session(bare) {
            Self::UnknownShell
        } else {
            Self::Other
        }
    }
}

/// Returns the indentation and the rest of a line, unless it is indented like code.
fn indented(line: &str) -> Option<(usize, &str)> {
    let rest = line.trim_start_matches(' ');
    let indent = line.len() - rest.len();
    (indent <= 3).then_some((indent, rest))
}

/// Returns the command of a `$ `, `?$ ` or `$? ` line, and whether it asks first.
fn step(line: &str) -> Option<(&str, bool)> {
    match line {
        // Editors remove trailing spaces: these are steps without a command.
        "$" => Some(("", false)),
        "?$" | "$?" => Some(("", true)),
        _ => line
            .strip_prefix("$ ")
            .map(|rest| (rest, false))
            .or_else(|| Some((line.strip_prefix("?$ ").or_else(|| line.strip_prefix("$? "))?, true))),
    }
}

/// Returns the problem of a line that looks like a step but is not one: in a list, in a quotation, or indented.
fn misplaced_step(line: &str) -> Option<String> {
    let mut rest = line.trim_start();
    loop {
        let shorter = rest.strip_prefix('>').or_else(|| list_item(rest)).map(str::trim_start);
        match shorter {
            Some(shorter) => rest = shorter,
            None => break,
        }
    }
    let (command, _) = step(rest).filter(|_| rest.len() < line.len())?;
    (!command.trim().is_empty()).then(|| {
        "a step must stand at the beginning of its line; remove what is before `$ `, or put it in backticks if it is \
         not to be run"
            .to_owned()
    })
}

/// Returns the text after a list marker.
fn list_item(line: &str) -> Option<&str> {
    let marks = ["- [ ] ", "- [x] ", "- [X] ", "* [ ] ", "- ", "* ", "+ "];
    marks.iter().find_map(|mark| line.strip_prefix(mark)).or_else(|| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let numbered = rest.len() < line.len() && line.len() - rest.len() <= 9;
        numbered.then(|| rest.strip_prefix(". ").or_else(|| rest.strip_prefix(") ")))?
    })
}

/// Returns whether a shell would join the next line: the trailing backslash is not itself escaped.
fn ends_with_continuation(command: &str) -> bool {
    let line = command.rsplit('\n').next().unwrap_or(command);
    (line.len() - line.trim_end_matches('\\').len()) % 2 == 1
}

/// Parses a block by its info string; the error is the text of a problem.
fn block(info: &str, body: &[&str]) -> Result<Item, String> {
    let words = words(info)?;
    let Some((kind, words)) = words.split_first() else { return Err("a fence without a word".to_owned()) };
    let shell = SHELLS.into_iter().find(|shell| kind.text.eq_ignore_ascii_case(shell));
    if let Some(shell) = shell {
        let (mut ask, mut go_on) = (false, false);
        for word in words {
            match word.text {
                "ask" => ask = true,
                "continue" => go_on = true,
                other => return Err(format!("unknown word after {shell}: {other}")),
            }
        }
        return exec(script(shell, body)?, ask, go_on);
    }
    match (kind.text, words) {
        (kind, []) => Err(format!("{kind} needs a path")),
        (kind, [path, ..]) if path.text.is_empty() => Err(format!("{kind} needs a path")),
        ("write", [path]) if path.text == "ask" && !path.quoted => Err("write needs a path".to_owned()),
        ("write", [path]) => Ok(write(path.text, body, false)),
        ("write", [path, Word { text: "ask", .. }]) => Ok(write(path.text, body, true)),
        ("read", [path]) => Ok(Item::Read { path: path.text.to_owned() }),
        (kind, [_, other, ..]) => {
            Err(format!("unknown word after the path of {kind}: {} (a path with blanks needs quotes)", other.text))
        }
        (kind, [_]) => Err(format!("unknown kind of block: {kind}")),
    }
}

/// Returns the commands of a block.
///
/// In a `console` block with prompts, the lines with a prompt are commands and the others are output.
fn script(shell: &str, body: &[&str]) -> Result<String, String> {
    let has_prompt = |line: &&&str| line.starts_with("$ ");
    if shell != "console" {
        let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        if body.iter().find(is_code).is_some_and(|first| has_prompt(&first)) {
            return Err(format!("a block marked {shell} holds a prompt; remove the `$ `, or mark the block console"));
        }
        return Ok(body.join("\n"));
    }
    if !body.iter().any(|line| has_prompt(&line)) {
        return Ok(body.join("\n"));
    }
    let mut typed: Vec<&str> = Vec::new();
    let mut continued = false;
    for line in body {
        let command = match line.strip_prefix("$ ") {
            Some(command) => command,
            None if continued => line.strip_prefix("> ").unwrap_or(line),
            None => continue,
        };
        continued = ends_with_continuation(command);
        typed.push(command);
    }
    Ok(typed.join("\n"))
}

fn exec(command: String, ask: bool, go_on: bool) -> Result<Item, String> {
    let is_empty = command.trim_matches(|c: char| c.is_whitespace() || c == '\\').is_empty();
    if is_empty {
        Err("a step without a command".to_owned())
    } else {
        Ok(Item::Exec { command, ask, continue_on_failure: go_on })
    }
}

fn write(path: &str, body: &[&str], ask: bool) -> Item {
    let content = body.iter().flat_map(|line| [line, "\n"]).collect();
    Item::Write { path: path.to_owned(), content, ask }
}

fn problem(line: usize, text: String) -> Item {
    Item::Problem { line, text }
}

/// A word of an info string.
struct Word<'a> {
    text: &'a str,
    quoted: bool,
}

/// Splits an info string at white space; double quotes delimit a word that contains white space.
fn words(info: &str) -> Result<Vec<Word<'_>>, String> {
    let mut words = Vec::new();
    let mut rest = info.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(inner) => {
                let (text, after) = inner.split_once('"').ok_or("a quote is not closed")?;
                (Word { text, quoted: true }, after)
            }
            None => {
                let end = rest.find([' ', '\t', '"']).unwrap_or(rest.len());
                (Word { text: &rest[..end], quoted: false }, &rest[end..])
            }
        };
        if !after.is_empty() && !after.starts_with([' ', '\t']) {
            return Err("a quote stands inside a word".to_owned());
        }
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

#[cfg(test)]
mod tests;
