//! What a playbook is read as, case by case.

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
        ("First:\n$ ls\nthen\n$ pwd\nend", &[say("First:"), run("ls"), say("then"), run("pwd"), say("end")]),
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
        ("a\n\n```sh\n  \n\n```\nb", &[say("a"), problem(3, "a step without a command".into()), say("b")]),
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
