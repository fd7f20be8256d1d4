//! Reads a message as a playbook: Markdown whose `$ ` lines and marked fences are steps, and whose rest is prose.
//!
//! It is pure and runs nothing. It guesses nothing either: a step that it cannot read becomes a problem for the caller
//! to report, never prose and never another step.

/// A part of a playbook, in the order of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// Prose between steps, as written but without blank lines around it.
    Say(String),
    /// A command for the shell.
    Exec {
        /// The command, of one or more lines.
        command: String,
        /// Whether somebody has to approve it first.
        ask: bool,
        /// Whether the playbook goes on when the command fails.
        go_on: bool,
    },
    /// A file to write.
    Write {
        /// Where to, as written.
        path: String,
        /// What to, with its final newline unless it is empty.
        content: String,
        /// Whether somebody has to approve it first.
        ask: bool,
    },
    /// A file to show.
    Read {
        /// Which, as written.
        path: String,
    },
    /// A step that cannot be read.
    Problem {
        /// The line it begins in, from 1.
        line: usize,
        /// What is wrong with it.
        text: String,
    },
}

/// Reads `markdown`; lines may end in CRLF and are given back with LF.
pub fn parse(markdown: &str) -> Vec<Item> {
    let markdown = markdown.strip_prefix('\u{feff}').unwrap_or(markdown);
    // The last line may have lost its line feed and kept the carriage return.
    let lines: Vec<&str> = markdown.lines().map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let mut reader = Reader { lines: &lines, at: 0, prose: Vec::new(), items: Vec::new() };
    while let Some(line) = reader.next() {
        if let Some(fence) = Fence::open(line) {
            reader.fence(&fence, line);
        } else if let Some((first, ask)) = step(line) {
            reader.command(first, ask);
        } else {
            reader.prose.push(line);
        }
    }
    reader.say();
    reader.items
}

/// Returns the problems among `items`: their lines and what is wrong.
pub fn problems(items: &[Item]) -> impl Iterator<Item = (usize, &str)> {
    items.iter().filter_map(|item| match item {
        Item::Problem { line, text } => Some((*line, text.as_str())),
        Item::Say(_) | Item::Exec { .. } | Item::Write { .. } | Item::Read { .. } => None,
    })
}

/// Whether there is anything to do among `items`.
pub fn has_steps(items: &[Item]) -> bool {
    items.iter().any(|item| match item {
        Item::Exec { .. } | Item::Write { .. } | Item::Read { .. } => true,
        Item::Say(_) | Item::Problem { .. } => false,
    })
}

struct Reader<'a> {
    lines: &'a [&'a str],
    /// How many lines have been taken, which is also the number of the last one.
    at: usize,
    prose: Vec<&'a str>,
    items: Vec<Item>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let line = self.lines.get(self.at)?;
        self.at += 1;
        Some(line)
    }

    /// Takes a `$ ` step, with the lines it continues on.
    fn command(&mut self, first: &str, ask: bool) {
        let line = self.at;
        let mut command = first.to_owned();
        while continues(&command)
            && let Some(more) = self.next()
        {
            command.push('\n');
            command.push_str(more);
        }
        self.push(exec(command, ask, false).unwrap_or_else(|text| problem(line, text)));
    }

    /// Takes a fenced block, of which `opening` is the first line.
    fn fence(&mut self, fence: &Fence<'a>, opening: &'a str) {
        let line = self.at;
        let known = matches!(fence.info.split_whitespace().next(), Some("sh" | "write" | "read"));
        let mut body = Vec::new();
        let mut closing = None;
        while let Some(next) = self.next() {
            if fence.closes(next) {
                closing = Some(next);
                break;
            }
            body.push(next);
        }
        if !known {
            self.prose.push(opening);
            self.prose.extend(body);
            self.prose.extend(closing);
            return;
        }
        let body: Vec<&str> = body.into_iter().map(|line| fence.unindented(line)).collect();
        self.push(block(fence.info, &body).unwrap_or_else(|text| problem(line, text)));
    }

    fn push(&mut self, item: Item) {
        self.say();
        self.items.push(item);
    }

    /// Turns the prose so far into an item.
    fn say(&mut self) {
        let is_text = |line: &&str| !line.trim().is_empty();
        if let (Some(first), Some(last)) =
            (self.prose.iter().position(is_text), self.prose.iter().rposition(is_text))
        {
            self.items.push(Item::Say(self.prose[first..=last].join("\n")));
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
        // Three backticks and another one in the same line are code within a sentence.
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

/// Returns the indentation and the rest of a line, unless it is indented like code.
fn indented(line: &str) -> Option<(usize, &str)> {
    let rest = line.trim_start_matches(' ');
    let indent = line.len() - rest.len();
    (indent <= 3).then_some((indent, rest))
}

/// Returns the command of a `$ ` or `$? ` line, and whether it asks first.
fn step(line: &str) -> Option<(&str, bool)> {
    match line {
        // Editors cut blanks at the end of a line: these are steps without a command.
        "$" => Some(("", false)),
        "$?" => Some(("", true)),
        _ => line
            .strip_prefix("$ ")
            .map(|rest| (rest, false))
            .or_else(|| Some((line.strip_prefix("$? ")?, true))),
    }
}

/// Whether a shell would join the next line: the backslash at the end is not itself escaped.
fn continues(command: &str) -> bool {
    let line = command.rsplit('\n').next().unwrap_or(command);
    (line.len() - line.trim_end_matches('\\').len()) % 2 == 1
}

/// Reads a block by its info string; an error says what is wrong.
fn block(info: &str, body: &[&str]) -> Result<Item, String> {
    let words = words(info)?;
    let Some((kind, words)) = words.split_first() else { return Err("a fence without a word".to_owned()) };
    match (kind.text, words) {
        ("sh", words) => {
            let (mut ask, mut go_on) = (false, false);
            for word in words {
                match word.text {
                    "ask" => ask = true,
                    "continue" => go_on = true,
                    other => return Err(format!("unknown word after sh: {other}")),
                }
            }
            exec(body.join("\n"), ask, go_on)
        }
        (kind, []) => Err(format!("{kind} needs a path")),
        (kind, [path, ..]) if path.text.is_empty() => Err(format!("{kind} needs a path")),
        ("write", [path]) if path.text == "ask" && !path.quoted => Err("write needs a path".to_owned()),
        ("write", [path]) => Ok(write(path.text, body, false)),
        ("write", [path, Word { text: "ask", .. }]) => Ok(write(path.text, body, true)),
        ("read", [path]) => Ok(Item::Read { path: path.text.to_owned() }),
        (kind, [_, other, ..]) => Err(format!(
            "unknown word after the path of {kind}: {} (a path with blanks needs quotes)",
            other.text
        )),
        (kind, [_]) => Err(format!("unknown kind of block: {kind}")),
    }
}

fn exec(command: String, ask: bool, go_on: bool) -> Result<Item, String> {
    let is_empty = command.trim_matches(|c: char| c.is_whitespace() || c == '\\').is_empty();
    if is_empty { Err("a step without a command".to_owned()) } else { Ok(Item::Exec { command, ask, go_on }) }
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

/// Splits an info string at blanks; double quotes keep a word together.
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
mod tests {
    use super::*;

    #[test]
    fn prose_and_steps_are_told_apart() {
        let table: &[(&str, &[Item])] = &[
            ("", &[]),
            (" \n\t\n\n", &[]),
            ("Hello", &[say("Hello")]),
            ("\n\n  Hello\n\nworld  \n\n", &[say("  Hello\n\nworld  ")]),
            ("\u{feff}$ ls", &[run("ls")]),
            ("$ ls", &[run("ls")]),
            ("$ ls\r", &[run("ls")]),
            ("$ ls\r\n$ pwd\r\n", &[run("ls"), run("pwd")]),
            ("$ ls\n\n\n$ pwd", &[run("ls"), run("pwd")]),
            (
                "First:\n$ ls\nthen\n$ pwd\nend",
                &[say("First:"), run("ls"), say("then"), run("pwd"), say("end")],
            ),
            ("$? rm -r x", &[exec("rm -r x".into(), true, false).unwrap()]),
            ("$? a\n$ b", &[exec("a".into(), true, false).unwrap(), run("b")]),
            ("$  ls ", &[run(" ls ")]),
            ("$ls", &[say("$ls")]),
            ("$?ls", &[say("$?ls")]),
            ("costs $ 5", &[say("costs $ 5")]),
            (" $ ls", &[say(" $ ls")]),
            ("    $ ls", &[say("    $ ls")]),
            ("\t$ ls", &[say("\t$ ls")]),
            ("> $ ls", &[say("> $ ls")]),
            ("$ a \\\n  b \\\n  c\n$ d", &[run("a \\\n  b \\\n  c"), run("d")]),
            ("$ a \\\r\n  b\r\nc", &[run("a \\\n  b"), say("c")]),
            ("$ echo \\\\\nprose", &[run("echo \\\\"), say("prose")]),
            ("$ echo \\\\\\\nmore", &[run("echo \\\\\\\nmore")]),
            ("$ a \\", &[run("a \\")]),
            ("$ a \\\n$ b", &[run("a \\\n$ b")]),
            ("$ ", &[problem(1, "a step without a command".into())]),
            ("$", &[problem(1, "a step without a command".into())]),
            ("x\n\n$?", &[say("x"), problem(3, "a step without a command".into())]),
            ("$ \\\n\n$ a", &[problem(1, "a step without a command".into()), run("a")]),
        ];
        check(table);
    }

    #[test]
    fn fences_are_steps_when_they_say_so() {
        let table: &[(&str, &[Item])] = &[
            ("```sh\nls\npwd\n```", &[run("ls\npwd")]),
            ("```sh\r\nls\r\npwd\r\n```\r\n", &[run("ls\npwd")]),
            ("~~~sh\nls\n~~~\nend", &[run("ls"), say("end")]),
            ("````sh\n```\nls\n````", &[run("```\nls")]),
            ("```sh\nls\n`````  \nend", &[run("ls"), say("end")]),
            ("```sh\nls\n~~~\n```", &[run("ls\n~~~")]),
            ("```sh\nls\n``` x\n```", &[run("ls\n``` x")]),
            ("   ```sh\n   ls\n     pwd\n id\n   ```", &[run("ls\n  pwd\nid")]),
            ("```sh\nls\n    ```\n```", &[run("ls\n    ```")]),
            ("    ```sh\n    ls\n    ```", &[say("    ```sh\n    ls\n    ```")]),
            ("```sh\nls", &[run("ls")]),
            ("``` sh \nls\n```", &[run("ls")]),
            ("```sh\n\n# comment\n$ x\n```", &[run("\n# comment\n$ x")]),
            ("```sh ask\nls\n```", &[exec("ls".into(), true, false).unwrap()]),
            ("```sh continue\nls\n```", &[exec("ls".into(), false, true).unwrap()]),
            ("```sh continue  ask\nls\n```", &[exec("ls".into(), true, true).unwrap()]),
            ("```sh ask continue\nls\n```", &[exec("ls".into(), true, true).unwrap()]),
            ("``sh\nls\n``", &[say("``sh\nls\n``")]),
            ("```sh `x`\nls", &[say("```sh `x`\nls")]),
            ("```\n$ ls\n```", &[say("```\n$ ls\n```")]),
            ("a\n```bash\n$ ls\n```\n$ b", &[say("a\n```bash\n$ ls\n```"), run("b")]),
            ("```rust\nfn x() {}\n", &[say("```rust\nfn x() {}")]),
            ("```SH\nls\n```", &[say("```SH\nls\n```")]),
            ("```shell\nls\n```", &[say("```shell\nls\n```")]),
            ("````md\n```sh\nls\n```\n````", &[say("````md\n```sh\nls\n```\n````")]),
            ("~~~ text\n```sh\nls\n```\n~~~", &[say("~~~ text\n```sh\nls\n```\n~~~")]),
            ("```sh\n```", &[problem(1, "a step without a command".into())]),
            (
                "a\n\n```sh\n  \n\n```\nb",
                &[say("a"), problem(3, "a step without a command".into()), say("b")],
            ),
            ("```sh now\nls\n```\n$ b", &[problem(1, "unknown word after sh: now".into()), run("b")]),
        ];
        check(table);
    }

    #[test]
    fn files_are_written_and_read() {
        let file =
            |path: &str, content: &str, ask| Item::Write { path: path.into(), content: content.into(), ask };
        let read = |path: &str| Item::Read { path: path.into() };
        let wrong = |text: &str| problem(1, text.into());
        let table: &[(&str, &[Item])] = &[
            ("```write a.txt\none\ntwo\n```", &[file("a.txt", "one\ntwo\n", false)]),
            ("```write a.txt ask\r\none\r\n```", &[file("a.txt", "one\n", true)]),
            ("```write a.txt\n```", &[file("a.txt", "", false)]),
            ("```write a.txt\n\n```", &[file("a.txt", "\n", false)]),
            ("```write \"my file.txt\"\nx\n```", &[file("my file.txt", "x\n", false)]),
            ("~~~write \"my file.txt\" ask\n$ x\n~~~", &[file("my file.txt", "$ x\n", true)]),
            ("```write \"ask\"\nx\n```", &[file("ask", "x\n", false)]),
            ("```write ask ask\nx\n```", &[file("ask", "x\n", true)]),
            ("  ```write a\n    x\n  ```", &[file("a", "  x\n", false)]),
            ("```read a.txt\n```", &[read("a.txt")]),
            ("```read src/a.rs\nignored\n```\nb", &[read("src/a.rs"), say("b")]),
            ("```read \"a b\"\n```", &[read("a b")]),
            ("```write\nx\n```", &[wrong("write needs a path")]),
            ("```write ask\nx\n```", &[wrong("write needs a path")]),
            ("```write \"\"\nx\n```", &[wrong("write needs a path")]),
            ("```read\n```", &[wrong("read needs a path")]),
            (
                "```read a b\n```",
                &[wrong("unknown word after the path of read: b (a path with blanks needs quotes)")],
            ),
            (
                "```write my file\nx\n```",
                &[wrong("unknown word after the path of write: file (a path with blanks needs quotes)")],
            ),
            ("```write \"a\nx\n```", &[wrong("a quote is not closed")]),
            ("```write \"a\"b\nx\n```", &[wrong("a quote stands inside a word")]),
            ("```write a\"b\"\nx\n```", &[wrong("a quote stands inside a word")]),
            ("```writer a\nx\n```", &[say("```writer a\nx\n```")]),
        ];
        check(table);
    }

    #[test]
    fn problems_and_steps_are_counted() {
        let items = parse("a\n$\n```sh x\n```\n");
        assert_eq!(problems(&items).map(|(line, _)| line).collect::<Vec<_>>(), [2, 3]);
        assert!(!has_steps(&items));
        assert!(has_steps(&parse("a\n$ b")));
    }

    #[test]
    fn any_text_is_read_and_what_was_read_reads_the_same_again() {
        const PIECES: [&str; 26] = [
            "$ ",
            "$? ",
            "$",
            "\n",
            "\n",
            "\n",
            "\r\n",
            "```",
            "~~~",
            "````",
            "sh",
            "sh ask",
            " continue",
            "write ",
            "read ",
            "\"",
            "a b",
            "path",
            " ",
            "    ",
            "\\",
            "é🦀",
            "`",
            "\t",
            "echo x",
            "\u{feff}",
        ];
        for seed in 0..20_000_u64 {
            let mut state = seed;
            let mut below = |limit: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 33) % limit) as usize
            };
            let text: String = (0..below(30)).map(|_| PIECES[below(26)]).collect();
            let mut items = parse(&text);
            items.retain(|item| !matches!(item, Item::Problem { .. }));
            let again = parse(&written(&items));
            assert_eq!(again, joined(&items), "seed {seed}: {text:?}");
        }
    }

    /// Writes items as a playbook.
    fn written(items: &[Item]) -> String {
        // A first line keeps a byte order mark in the prose from being taken for one of the text.
        let mut text = String::from("\n");
        for item in items {
            let block = |info: String, body: &str| {
                let end = if body.is_empty() || body.ends_with('\n') { "" } else { "\n" };
                format!("~~~~~~~~~~~~{info}\n{body}{end}~~~~~~~~~~~~\n\n")
            };
            let ask_word = |ask: &bool| if *ask { " ask" } else { "" };
            text.push_str(&match item {
                Item::Say(prose) => format!("{prose}\n\n"),
                Item::Exec { command, ask, go_on } => {
                    let go_on = if *go_on { " continue" } else { "" };
                    block(format!("sh{}{go_on}", ask_word(ask)), &format!("{command}\n"))
                }
                Item::Write { path, content, ask } => {
                    block(format!("write \"{path}\"{}", ask_word(ask)), content)
                }
                Item::Read { path } => block(format!("read \"{path}\""), ""),
                Item::Problem { .. } => String::new(),
            });
        }
        text
    }

    /// Joins prose that stands side by side because a problem between was left out.
    fn joined(items: &[Item]) -> Vec<Item> {
        let mut joined: Vec<Item> = Vec::new();
        for item in items {
            match (joined.last_mut(), item) {
                (Some(Item::Say(before)), Item::Say(after)) => {
                    before.push_str("\n\n");
                    before.push_str(after);
                }
                _ => joined.push(item.clone()),
            }
        }
        joined
    }

    fn check(table: &[(&str, &[Item])]) {
        for (text, expected) in table {
            assert_eq!(parse(text), *expected, "{text:?}");
        }
    }

    fn say(text: &str) -> Item {
        Item::Say(text.to_owned())
    }

    fn run(command: &str) -> Item {
        Item::Exec { command: command.to_owned(), ask: false, go_on: false }
    }
}
