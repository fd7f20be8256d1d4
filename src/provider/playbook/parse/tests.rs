//! Tables of playbooks and the items they parse to.

use super::*;
use crate::random::Random;

#[test]
fn prose_and_steps_are_distinguished() {
    let table: &[(&str, &[Item])] = &[
        ("", &[]),
        (" \n\t\n\n", &[]),
        ("Hello", &[prose("Hello")]),
        ("\n\n  Hello\n\nworld  \n\n", &[prose("  Hello\n\nworld  ")]),
        ("\u{feff}$ ls", &[run("ls")]),
        ("$ ls", &[run("ls")]),
        ("$ ls\r", &[run("ls")]),
        ("$ ls\r\n$ pwd\r\n", &[run("ls"), run("pwd")]),
        ("$ ls\n\n\n$ pwd", &[run("ls"), run("pwd")]),
        ("First:\n$ ls\nthen\n$ pwd\nend", &[prose("First:"), run("ls"), prose("then"), run("pwd"), prose("end")]),
        ("$? rm -r x", &[exec("rm -r x".into(), true, false).unwrap()]),
        ("?$ rm -r x", &[exec("rm -r x".into(), true, false).unwrap()]),
        ("$? a\n$ b", &[exec("a".into(), true, false).unwrap(), run("b")]),
        ("$  ls ", &[run(" ls ")]),
        ("$ls", &[prose("$ls")]),
        ("$?ls", &[prose("$?ls")]),
        ("costs $ 5", &[prose("costs $ 5")]),
        (" $ ls", &[problem(1, MISPLACED.into())]),
        ("    $ ls", &[problem(1, MISPLACED.into())]),
        ("\t$ ls", &[problem(1, MISPLACED.into())]),
        ("> $ ls", &[problem(1, MISPLACED.into())]),
        ("$ a \\\n  b \\\n  c\n$ d", &[run("a \\\n  b \\\n  c"), run("d")]),
        ("$ a \\\r\n  b\r\nc", &[run("a \\\n  b"), prose("c")]),
        ("$ echo \\\\\nprose", &[run("echo \\\\"), prose("prose")]),
        ("$ echo \\\\\\\nmore", &[run("echo \\\\\\\nmore")]),
        ("$ a \\", &[run("a \\")]),
        ("$ a \\\n$ b", &[run("a \\\n$ b")]),
        ("$ ", &[problem(1, "a step without a command".into())]),
        ("$", &[problem(1, "a step without a command".into())]),
        ("x\n\n$?", &[prose("x"), problem(3, "a step without a command".into())]),
        ("$ \\\n\n$ a", &[problem(1, "a step without a command".into()), run("a")]),
    ];
    check(table);
}

#[test]
fn fences_are_steps_when_their_mark_names_a_shell() {
    let table: &[(&str, &[Item])] = &[
        ("```sh\nls\npwd\n```", &[run("ls\npwd")]),
        ("```sh\r\nls\r\npwd\r\n```\r\n", &[run("ls\npwd")]),
        ("~~~sh\nls\n~~~\nend", &[run("ls"), prose("end")]),
        ("````sh\n```\nls\n````", &[run("```\nls")]),
        ("```sh\nls\n`````  \nend", &[run("ls"), prose("end")]),
        ("```sh\nls\n~~~\n```", &[run("ls\n~~~")]),
        ("```sh\nls\n``` x\n```", &[run("ls\n``` x")]),
        ("   ```sh\n   ls\n     pwd\n id\n   ```", &[run("ls\n  pwd\nid")]),
        ("```sh\nls\n    ```\n```", &[run("ls\n    ```")]),
        ("    ```sh\n    ls\n    ```", &[prose("    ```sh\n    ls\n    ```")]),
        ("```sh\nls", &[run("ls")]),
        ("``` sh \nls\n```", &[run("ls")]),
        ("```sh\n\n# comment\nx\n$ y\n```", &[run("\n# comment\nx\n$ y")]),
        ("```sh ask\nls\n```", &[exec("ls".into(), true, false).unwrap()]),
        ("```sh continue\nls\n```", &[exec("ls".into(), false, true).unwrap()]),
        ("```sh continue  ask\nls\n```", &[exec("ls".into(), true, true).unwrap()]),
        ("```sh ask continue\nls\n```", &[exec("ls".into(), true, true).unwrap()]),
        ("``sh\nls\n``", &[prose("``sh\nls\n``")]),
        ("```sh `x`\nls", &[prose("```sh `x`\nls")]),
        ("```\n$ ls\n```", &[problem(1, UNMARKED.into())]),
        ("```\nls\n```", &[prose("```\nls\n```")]),
        ("```text\n$ ls\n```", &[prose("```text\n$ ls\n```")]),
        ("a\n```bash\nls\n```\n$ b", &[prose("a"), run("ls"), run("b")]),
        ("```rust\nfn x() {}\n", &[prose("```rust\nfn x() {}")]),
        ("```SH\nls\n```", &[run("ls")]),
        ("```shell\nls\n```", &[run("ls")]),
        ("````md\n```sh\nls\n```\n````", &[prose("````md\n```sh\nls\n```\n````")]),
        ("~~~ text\n```sh\nls\n```\n~~~", &[prose("~~~ text\n```sh\nls\n```\n~~~")]),
        ("```sh\n```", &[problem(1, "a step without a command".into())]),
        ("a\n\n```sh\n  \n\n```\nb", &[prose("a"), problem(3, "a step without a command".into()), prose("b")]),
        ("```sh now\nls\n```\n$ b", &[problem(1, "unknown word after sh: now".into()), run("b")]),
    ];
    check(table);
}

#[test]
fn a_misplaced_step_is_a_problem_with_its_line() {
    for line in ["- $ ls", "* $ ls", "+ ?$ ls", "1. $ ls", "12) $? ls", "- [ ] $ ls", "  - $ ls", "> - $ ls", ">$ ls"] {
        assert_eq!(parse(&format!("Words.\n{line}\n")), [prose("Words."), problem(2, MISPLACED.into())], "{line}");
    }
    for line in
        ["- `$ ls` lists", "costs $ 5", "- costs $ 5", "a - $ ls", "1.$ ls", "-$ ls", "- $", "- $HOME", "2026. It"]
    {
        assert_eq!(parse(line), [prose(line)], "{line}");
    }
    for mark in ["zsh", "fish", "PowerShell", "bat", "{.bash}", "bash,ignore", "{sh}", "shell-session", "sh-session"] {
        let items = parse(&format!("a\n```{mark}\nls\n```\n$ b"));
        let text = format!(
            "a fence marked {mark} is not run; mark it sh, bash, shell or console, or text if it is not to be run"
        );
        assert_eq!(items, [prose("a"), problem(2, text), run("b")]);
    }
    for mark in ["sh", "bash", "shell"] {
        let text = format!("a block marked {mark} holds a prompt; remove the `$ `, or mark the block console");
        assert_eq!(parse(&format!("```{mark}\n# all\n$ ls\n```")), [problem(1, text)]);
    }
}

#[test]
fn every_shell_fence_is_a_step_and_only_prompt_lines_of_a_console_are_run() {
    let table: &[(&str, &[Item])] = &[
        ("```bash\nls\npwd\n```", &[run("ls\npwd")]),
        ("```Bash ask\nls\n```", &[exec("ls".into(), true, false).unwrap()]),
        ("```shell continue\nls\n```", &[exec("ls".into(), false, true).unwrap()]),
        ("```console\nls\npwd\n```", &[run("ls\npwd")]),
        ("```console\n$ ls\na  b\n$ echo \\\n> more\nmore\n```", &[run("ls\necho \\\nmore")]),
        ("```console\n$ \n```", &[problem(1, "a step without a command".into())]),
        ("```bash now\nls\n```", &[problem(1, "unknown word after bash: now".into())]),
    ];
    check(table);
}

#[test]
fn files_are_written_and_read() {
    let file = |path: &str, content: &str, ask| Item::Write { path: path.into(), content: content.into(), ask };
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
        ("```read src/a.rs\nignored\n```\nb", &[read("src/a.rs"), prose("b")]),
        ("```read \"a b\"\n```", &[read("a b")]),
        ("```write\nx\n```", &[wrong("write needs a path")]),
        ("```write ask\nx\n```", &[wrong("write needs a path")]),
        ("```write \"\"\nx\n```", &[wrong("write needs a path")]),
        ("```read\n```", &[wrong("read needs a path")]),
        ("```read a b\n```", &[wrong("unknown word after the path of read: b (a path with blanks needs quotes)")]),
        (
            "```write my file\nx\n```",
            &[wrong("unknown word after the path of write: file (a path with blanks needs quotes)")],
        ),
        ("```write \"a\nx\n```", &[wrong("a quote is not closed")]),
        ("```write \"a\"b\nx\n```", &[wrong("a quote stands inside a word")]),
        ("```write a\"b\"\nx\n```", &[wrong("a quote stands inside a word")]),
        ("```writer a\nx\n```", &[prose("```writer a\nx\n```")]),
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
fn any_text_parses_and_parsed_items_round_trip() {
    const PIECES: [&str; 30] = [
        "- ",
        "?$ ",
        "bash",
        "console",
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
        let mut random = Random::new(seed);
        let text: String = (0..random.index(30)).map(|_| PIECES[random.index(30)]).collect();
        let mut items = parse(&text);
        // A command that begins like a prompt is valid after `$ ` but not in a fence.
        let is_prompt = |command: &str| command.lines().any(|line| line.starts_with("$ "));
        items.retain(|item| match item {
            Item::Problem { .. } => false,
            Item::Exec { command, .. } => !is_prompt(command),
            Item::Prose(_) | Item::Write { .. } | Item::Read { .. } => true,
        });
        let again = parse(&to_markdown(&items));
        assert_eq!(again, joined(&items), "seed {seed}: {text:?}");
    }
}

const MISPLACED: &str = "a step must stand at the beginning of its line; remove what is before `$ `, or put it in backticks if it is \
                         not to be run";
const UNMARKED: &str = "a fence without a mark holds a line that begins with `$ `; mark it console to run it, or text if it is \
                        not to be run";

/// Formats items as a playbook.
fn to_markdown(items: &[Item]) -> String {
    // The first empty line keeps a byte order mark in the prose from being read as that of the text.
    let mut text = String::from("\n");
    for item in items {
        let block = |info: String, body: &str| {
            let end = if body.is_empty() || body.ends_with('\n') { "" } else { "\n" };
            format!("~~~~~~~~~~~~{info}\n{body}{end}~~~~~~~~~~~~\n\n")
        };
        let ask_word = |ask: &bool| if *ask { " ask" } else { "" };
        text.push_str(&match item {
            Item::Prose(prose) => format!("{prose}\n\n"),
            Item::Exec { command, ask, continue_on_failure: go_on } => {
                let go_on = if *go_on { " continue" } else { "" };
                block(format!("sh{}{go_on}", ask_word(ask)), &format!("{command}\n"))
            }
            Item::Write { path, content, ask } => block(format!("write \"{path}\"{}", ask_word(ask)), content),
            Item::Read { path } => block(format!("read \"{path}\""), ""),
            Item::Problem { .. } => String::new(),
        });
    }
    text
}

/// Joins adjacent prose, which results from removed problems.
fn joined(items: &[Item]) -> Vec<Item> {
    let mut joined: Vec<Item> = Vec::new();
    for item in items {
        match (joined.last_mut(), item) {
            (Some(Item::Prose(before)), Item::Prose(after)) => {
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

fn prose(text: &str) -> Item {
    Item::Prose(text.to_owned())
}

fn run(command: &str) -> Item {
    Item::Exec { command: command.to_owned(), ask: false, continue_on_failure: false }
}
