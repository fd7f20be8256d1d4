//! Replaces what differs from run to run by placeholders: ids, times, hashes and paths.

/// A screen or a transcript, line by line, without what differs between two runs of the same commands.
pub(crate) fn normalize(text: &str, home: &str) -> Vec<String> {
    let text = text.replace(home, "/home/ann");
    text.lines().map(|line| if line.starts_with("Date: ") { "Date: …".to_owned() } else { words(line) }).collect()
}

/// Columns are as wide as their contents, so that only the indentation of a line is kept.
fn words(line: &str) -> String {
    let indentation = &line[..line.len() - line.trim_start().len()];
    let words: Vec<String> = line.split_whitespace().map(word).collect();
    format!("{indentation}{}", words.join(" "))
}

fn word(word: &str) -> String {
    let is_bracket = |c: char| "()`,:;".contains(c);
    let core = word.trim_matches(is_bracket);
    match placeholder(core) {
        Some(placeholder) => word.replace(core, placeholder),
        None => word.to_owned(),
    }
}

fn placeholder(word: &str) -> Option<&'static str> {
    let is_hex = || word.chars().all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase());
    for (prefix, placeholder) in [("appr_", "APPROVAL"), ("sess_", "SESSION"), ("run_0", "RUN")] {
        if word.starts_with(prefix) {
            return Some(placeholder);
        }
    }
    // Handles have 4 to 6 characters, abbreviated commits 7, commits 40. A handle may look like a number of days.
    if [4, 5, 6, 7, 40].contains(&word.len()) && is_hex() {
        return Some("ID");
    }
    is_duration(word).then_some("TIME")
}

/// `84ms`, `1.2s`, `19s`, `1m01s`, `23h59m`.
fn is_duration(word: &str) -> bool {
    let number = word.trim_end_matches(['m', 's', 'h', 'd']);
    number.len() < word.len()
        && number.starts_with(|c: char| c.is_ascii_digit())
        && number.chars().all(|c| c.is_ascii_digit() || ".dhm".contains(c))
}

#[test]
fn only_what_differs_between_runs_is_replaced() {
    let shown =
        normalize("f239  failed   3s  $ sh test.sh  /tmp/x/sum\n  exit 0, 1m01s\n? Approve (appr_01M7)", "/tmp/x");
    assert_eq!(shown, ["ID failed TIME $ sh test.sh /home/ann/sum", "  exit 0, TIME", "? Approve (APPROVAL)"]);
    assert_eq!(normalize("success: 2 steps done", "/x"), ["success: 2 steps done"]);
    assert_eq!(normalize("in 071d, 30d, 23h59m, 24h00m", "/x"), ["in ID, TIME, TIME, TIME"]);
}
