//! The help of every verb.

use std::collections::BTreeSet;
use std::fs;

use super::{compare, snapshots};
use crate::support::home::Home;

#[test]
fn the_help_of_every_verb_is_as_reviewed() {
    let home = Home::new();
    let mut names = BTreeSet::new();
    check(&home, &mut Vec::new(), &mut names);
    assert!(names.len() > 30, "{names:?}");
    let files = fs::read_dir(snapshots("help")).expect("the snapshots").map(|file| file.expect("a file").file_name());
    let files: BTreeSet<String> = files.map(|name| name.to_string_lossy().into_owned()).collect();
    let expected: BTreeSet<String> = names.iter().map(|name| format!("{name}.snap")).collect();
    assert_eq!(files, expected, "a snapshot of a verb that does not exist, or none of one that does");
}

fn check(home: &Home, verb: &mut Vec<String>, names: &mut BTreeSet<String>) {
    let words: Vec<&str> = verb.iter().map(String::as_str).chain(["--help"]).collect();
    let help = home.ok(&words);
    let name = ["push"].into_iter().chain(verb.iter().map(String::as_str)).collect::<Vec<_>>().join("-");
    compare("help", &name, &help);
    names.insert(name);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for name in listed.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        verb.push(name.to_owned());
        check(home, verb, names);
        verb.pop();
    }
}
