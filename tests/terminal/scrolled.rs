//! The scrolled view: PageUp, the search and the return, while a run writes.

use crate::inline::READY;
use crate::support::home::wait_until;
use crate::{Terminal, inline};

#[test]
fn output_is_scrolled_and_searched_during_a_run() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.type_line("push chat");
    terminal.wait_for(READY);
    terminal.type_line(
        "$ for n in $(seq 300); do echo \"row $n.\"; done; until test -e go; do sleep 0.01; done; \
         for n in $(seq 301 400); do echo \"row $n.\"; done; until test -e end; do sleep 0.01; done",
    );
    terminal.wait_for("row 300.");
    terminal.type_text("my draft");
    terminal.wait_for("› my draft");
    assert!(!is_alternate(&terminal));
    terminal.press("PPage");
    let screen = terminal.wait_for("scrolled: rows");
    assert!(is_alternate(&terminal) && !screen.contains("my draft") && screen.contains("row 260."), "{screen}");
    terminal.type_text("/row 42.");
    terminal.wait_for("/row 42.");
    terminal.press("Enter");
    let screen = terminal.wait_for("match 1 of 1");
    assert!(has_row(&screen, "  row 42."), "{screen}");
    terminal.home.write("go", "");
    let screen = terminal.wait_for("of 405");
    assert!(has_row(&screen, "  row 42."), "what is read stays: {screen}");
    terminal.press("End");
    terminal.wait_for("  row 400.");
    // A new size, and rows that arrived meanwhile, leave nothing of the region behind.
    terminal.tmux(&["resize-window", "-x", "90", "-y", "25"]);
    terminal.press("Home");
    terminal.wait_for("rows 1-");
    terminal.press("q");
    terminal.wait_for("› my draft");
    assert!(!is_alternate(&terminal));
    terminal.home.write("end", "");
    terminal.wait_for("✓ success");
    let all = terminal.scrollback();
    for n in [1, 42, 299, 300, 301, 400] {
        assert_eq!(all.matches(&format!("\n  row {n}.\n")).count(), 1, "{n}: {all}");
    }
    assert_eq!((all.matches("› my draft").count(), all.matches("? keys").count()), (1, 1), "{all}");
    assert!(!all.contains("q back"), "{all}");
}

#[test]
fn an_approval_waits_until_the_view_is_closed_and_signals_restore_the_screen() {
    let Some(terminal) = Terminal::open_inline(100, 30) else { return };
    terminal.type_line("push run '$ echo begun; until test -e go; do sleep 0.01; done\n$? echo went'");
    terminal.wait_for("  begun");
    terminal.press("PPage");
    terminal.wait_for("the end: rows");
    terminal.home.write("go", "");
    terminal.wait_for("! approval wanted: q shows it");
    terminal.type_text("y");
    terminal.press("q");
    terminal.wait_for("y once");
    assert_eq!(terminal.home.json(&["approvals", "--json"])["approvals"].as_array().unwrap().len(), 1);
    terminal.press("PPage");
    terminal.wait_for("! approval wanted: q shows it");
    inline::send_signal(inline::client_of(&terminal), nix::sys::signal::Signal::SIGTERM);
    let screen = terminal.wait_for("done ");
    assert!(!is_alternate(&terminal) && screen.contains("  begun") && !screen.contains("q back"), "{screen}");
    terminal.home.ok(&["approve"]);
    assert_eq!(terminal.home.push(&["wait", "@last"]).code, Some(0));
}

/// Returns whether a row has this text and no more; tmux shows spaces where the rest of a row was erased.
fn has_row(screen: &str, text: &str) -> bool {
    screen.lines().any(|line| line.trim_end() == text)
}

fn is_alternate(terminal: &Terminal) -> bool {
    let mut answer = String::new();
    wait_until("tmux answers", || {
        answer = terminal.tmux(&["display-message", "-p", "#{alternate_on}"]);
        !answer.trim().is_empty()
    });
    answer.trim() == "1"
}
