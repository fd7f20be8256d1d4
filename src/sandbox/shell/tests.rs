//! Tests of what the parser accepts and refuses.

use super::*;

#[test]
fn words_lose_their_quotes_and_nothing_else() {
    for (text, words) in [
        ("a b  c", &["a", "b", "c"][..]),
        ("'a b'c\"d e\"\\ f", &["a bcd e f"]),
        ("echo '' \"\"", &["echo", "", ""]),
        ("echo \\a\\'\\\"", &["echo", "a'\""]),
        ("echo \"\\a \\$ \\` \\\" \\\\\"", &["echo", "\\a $ ` \" \\"]),
        ("echo 'a\nb'", &["echo", "a\nb"]),
        ("echo a#b #c", &["echo", "a#b"]),
        ("echo $ a$", &["echo", "$", "a$"]),
        ("echo {} } { HEAD@{1}", &["echo", "{}", "}", "{", "HEAD@{1}"]),
        ("echo a=b", &["echo", "a=b"]),
        ("echo if fi done", &["echo", "if", "fi", "done"]),
        ("[ -f x ]", &["[", "-f", "x", "]"]),
        ("echo ~ ~/x a~", &["echo", "~", "~/x", "a~"]),
    ] {
        let found = parse_simple(text).words.into_iter().map(|word| word.text).collect::<Vec<_>>();
        assert_eq!(found, words, "{text}");
    }
}

#[test]
fn text_that_an_expansion_replaces_is_marked() {
    for (word, marked) in [
        ("$x", "\0"),
        ("a$x.b", "a\0.b"),
        ("\"a $x b\"", "a \0 b"),
        ("${x}${y:-z}", "\0\0"),
        ("$1$@$#$?", "\0\0\0\0"),
        ("$(ls)x", "\0x"),
        ("`ls`", "\0"),
        ("$((1+2))", "\0"),
        ("*.rs", "\u{1}.rs"),
        ("a?", "a\u{1}"),
        ("a[bc]d", "a\0"),
        ("{a,b}", "\0"),
        ("x{1..3}", "\0"),
        ("~ann/x", "\0/x"),
        ("'~'", "\0"),
        ("$HOME/x", "~/x"),
        ("\"$PWD\"/x", "./x"),
        ("'*'\"?\"\\[", "*?["),
    ] {
        let simple = parse_simple(&format!("echo {word}"));
        assert_eq!(simple.words[1].text, marked, "{word}");
    }
}

#[test]
fn every_command_that_runs_is_in_the_syntax_tree() {
    for (text, programs) in [
        ("a; b && c || d | e & f\ng", &["a", "b", "c", "d", "e", "f", "g"][..]),
        ("(a; b) | { c; d; }", &["a", "b", "c", "d"]),
        ("if a; then b; elif c; then d; else e; fi", &["a", "b", "c", "d", "e"]),
        ("while a; do b; done; until c; do d; done", &["a", "b", "c", "d"]),
        ("for x in 1 $(a); do b; done", &["a", "b"]),
        ("for x\ndo a; done", &["a"]),
        ("case $(a) in (x|y) b;; $(c)) d; esac", &["a", "c", "b", "d"]),
        ("f() { a; }", &["a"]),
        ("f() ( a )", &["a"]),
        ("a $(b \"$(c)\") `d`", &["a", "b", "c", "d"]),
        ("a > $(b) 2>&1 <c", &["a", "b"]),
        ("X=$(a) b", &["b", "a"]),
        ("! a", &["a"]),
        ("a <<E $(b)\n$(c) \\$(no) `d`\nE\ne", &["a", "b", "e", "c", "d"]),
        ("a <<'E'\n$(no)\nE", &["a"]),
        ("a <<-E\n\t$(b)\n\tE\nc", &["a", "c", "b"]),
        ("a <<A <<B\n$(b)\nA\n$(c)\nB", &["a", "b", "c"]),
        ("x=$(a <<E\n$(b)\nE\n)", &["a", "b"]),
        ("a \\\n b # $(no)\n# no\nc", &["a", "c"]),
    ] {
        let script = parse(text, &Limits::default()).unwrap_or_else(|unclear| panic!("{text}: {unclear}"));
        let mut found = Vec::new();
        script.list.0.iter().for_each(|pipeline| programs_of(&pipeline.commands, &mut found));
        script.bodies.iter().for_each(|body| programs_of_word(body, &mut found));
        let mut programs = programs.to_vec();
        found.sort_unstable();
        programs.sort_unstable();
        assert_eq!(found, programs, "{text}");
    }
}

#[test]
fn redirections_and_assignments_are_kept_apart_from_words() {
    let simple = parse_simple("A=1 B=\"x y\" cmd >out C=3 2>>err <in >|c 1<>d 2>&1");
    let names: Vec<&str> = simple.assignments.iter().map(|assignment| assignment.name.as_str()).collect();
    assert_eq!(names, ["A", "B"]);
    assert_eq!(simple.assignments[1].value.text, "x y");
    assert_eq!(simple.words.len(), 2);
    let ways: Vec<(RedirectKind, &str)> =
        simple.redirects.iter().map(|redirect| (redirect.kind, redirect.target.text.as_str())).collect();
    let expected = [
        (RedirectKind::Write, "out"),
        (RedirectKind::Write, "err"),
        (RedirectKind::Read, "in"),
        (RedirectKind::Write, "c"),
        (RedirectKind::ReadWrite, "d"),
        (RedirectKind::Descriptor, "1"),
    ];
    assert_eq!(ways, expected);
    assert!(parse_simple("\"A\"=1 x").assignments.is_empty());
}

#[test]
fn a_parse_error_has_a_position_and_a_reason() {
    for (text, at, word) in [
        ("echo 'x", 8, "quote"),
        ("ls &> x", 4, "between shells"),
        ("a; ((x))", 4, "between shells"),
        ("ls\u{7}", 3, "control"),
        ("echo $(a; b", 12, "syntax"),
        ("cat <<E\nx", 10, "not terminated"),
        ("echo `a ${x^}`", 12, "plain word"),
        ("cat <<E $(a\nb)\nx\nE", 14, "substitution"),
    ] {
        let unclear = parse(text, &Limits::default()).unwrap_err();
        assert_eq!(unclear.at, at, "{text}: {unclear}");
        assert!(unclear.what.contains(word), "{text}: {unclear}");
    }
}

fn parse_simple(text: &str) -> SimpleCommand {
    let script = parse(text, &Limits::default()).unwrap_or_else(|unclear| panic!("{text}: {unclear}"));
    match &script.list.0[..] {
        [Pipeline { commands, .. }] => match &commands[..] {
            [Command::Simple(simple)] => simple.clone(),
            other => panic!("{text}: {other:?}"),
        },
        other => panic!("{text}: {other:?}"),
    }
}

fn programs_of<'a>(commands: &'a [Command], found: &mut Vec<&'a str>) {
    for command in commands {
        match command {
            Command::Simple(simple) => {
                found.extend(simple.words.first().map(|word| word.text.as_str()));
                let targets = simple.redirects.iter().map(|redirect| &redirect.target);
                let values = simple.assignments.iter().map(|assignment| &assignment.value);
                simple.words.iter().chain(targets).chain(values).for_each(|word| programs_of_word(word, found));
            }
            Command::Function { body, .. } => programs_of(std::slice::from_ref(body), found),
            Command::Compound { words, lists, .. } => {
                words.iter().for_each(|word| programs_of_word(word, found));
                lists.iter().flat_map(|list| &list.0).for_each(|pipeline| programs_of(&pipeline.commands, found));
            }
        }
    }
}

fn programs_of_word<'a>(word: &'a Word, found: &mut Vec<&'a str>) {
    word.substitutions.iter().flat_map(|list| &list.0).for_each(|pipeline| programs_of(&pipeline.commands, found));
}
