//! Much output, and text whose characters take two columns.

use crate::Terminal;
use crate::inline::READY;
use crate::support::home::wait_until;

#[test]
fn ten_megabytes_of_output_are_drawn_in_order_while_a_draft_is_typed() {
    let Some(terminal) = Terminal::open_inline(120, 30) else { return };
    terminal.type_line("push chat");
    terminal.wait_for(READY);
    let line = format!("line %06.0f {}", "x".repeat(88));
    terminal.type_line(&format!("$ seq -f '{line}' 1 100000; echo the end of it"));
    terminal.wait_for("line 0");
    terminal.type_text("typed meanwhile");
    terminal.wait_for("› typed meanwhile");
    terminal.wait_for("  the end of it\n");
    terminal.wait_for("✓ success");
    let all = terminal.scrollback();
    assert_eq!(all.matches("? keys").count(), 1, "one region: {}", terminal.screen(&[]));
    assert_eq!(all.matches("› typed meanwhile").count(), 1);
    let number = |line: &str| line.strip_prefix("  line ")?.get(..6)?.parse::<u32>().ok();
    let numbers: Vec<u32> = all.lines().filter_map(number).collect();
    assert!(numbers.len() > 10_000, "the scrollback of tmux is limited");
    assert_eq!(numbers.last(), Some(&100_000));
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "nothing is missing or repeated: {numbers:?}");
}

#[test]
fn wide_characters_take_the_columns_that_the_terminal_gives_them() {
    let Some(terminal) = Terminal::open_inline(40, 20) else { return };
    terminal.type_line("push chat");
    terminal.wait_for("› message");
    // The cursor is where the terminal puts the next character.
    terminal.type_text("a漢字🙂e\u{301}b");
    terminal.wait_for("a漢字🙂");
    let at = |column: &str| {
        let wanted = format!("{column}\n");
        wait_until("the cursor is there", || terminal.tmux(&["display-message", "-p", "#{cursor_x}"]) == wanted);
    };
    at("11");
    terminal.press("Left");
    terminal.press("Left");
    terminal.press("Left");
    at("7");
    terminal.press("BSpace");
    terminal.wait_for("a漢🙂");
    terminal.press("C-e");
    terminal.press("C-u");
    terminal.wait_for("› message");
    let wide = "漢字かな🙂한글".repeat(12);
    terminal.type_line(&format!("$ echo '{wide}'"));
    terminal.wait_for("✓ success");
    // Rows as they are on the screen, without joining those that tmux would wrap.
    let screen = terminal.tmux(&["capture-pane", "-p", "-S", "-"]);
    let output = screen.lines().skip_while(|row| !row.starts_with("  漢")).take_while(|row| row.starts_with("  "));
    let rows: Vec<&str> = output.filter(|row| row.contains(['漢', '字', 'か', 'な', '🙂', '한', '글'])).collect();
    assert_eq!(rows.iter().map(|row| row.trim()).collect::<String>(), wide, "{screen}");
    assert!(rows.len() >= 5 && rows.iter().all(|row| row.trim_end().chars().count() <= 2 + 18), "{rows:?}");
    assert_eq!(screen.matches("? keys").count(), 1, "{screen}");
}
