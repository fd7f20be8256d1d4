//! Memory use of the worst files: it stays within a few times the file size.

use pushd::protocol::pi::session_file::{Limits, parse, summarize};

use crate::allocations::peak_during;

#[test]
fn the_worst_files_use_a_few_times_their_size_in_memory() {
    const SIZE: usize = 2 << 20;
    let limits = Limits { entries: 10_000, blocks: 20_000, ..Limits::default() };
    let header = "{\"type\":\"session\",\"version\":3,\"id\":\"s\"}\n";
    let message = |content: &str| {
        format!("{{\"type\":\"message\",\"id\":\"a\",\"message\":{{\"role\":\"assistant\",\"content\":{content}}}}}")
    };
    let filled = |piece: &str| piece.repeat(SIZE / piece.len());
    let worst = [
        ("small blocks", message(&format!("[{}0]", filled("{},")))),
        ("numbers", message(&format!("[{}0]", filled("0,")))),
        ("arguments", message(&format!("[{{\"type\":\"toolCall\",\"arguments\":{{\"a\":[{}0]}}}}]", filled("[],")))),
        ("small entries", (0..SIZE / 30).map(|n| format!("{{\"type\":\"x\",\"id\":\"{n}\"}}\n")).collect()),
        ("nothing", filled("{}\n")),
        ("keys", format!("{{\"type\":\"x\"{}}}", (0..SIZE / 12).map(|n| format!(",\"{n}\":0")).collect::<String>())),
        ("open brackets", format!("{{\"a\":{}", filled("["))),
        ("lines", "\n".repeat(SIZE)),
        ("one text", message(&format!("\"{}\"", filled("\\n")))),
    ];
    for (what, body) in worst {
        let file = format!("{header}{body}\n");
        for (which, read) in [
            ("parse", (|bytes, limits| drop(parse(bytes, limits))) as fn(&[u8], &Limits)),
            ("summary", |bytes, limits| drop(summarize(bytes, limits))),
        ] {
            let cost = peak_during(|| read(file.as_bytes(), &limits));
            println!("{what}, {which}: {} KiB for {} KiB", cost >> 10, file.len() >> 10);
            assert!(cost <= 4 * file.len() + (8 << 20), "{which} of {what} took {cost} bytes for {}", file.len());
        }
    }
}
