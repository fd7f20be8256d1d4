//! Names that no module and no type may have: metaphors, bare participles, and names that say nothing about the kind of thing.

use super::scan::{Kind, lex};

/// Names of types, counted where they are declared.
pub(crate) const RETIRED_TYPES: &[&str] = &[
    "Bureau",
    "Sitting",
    "Seat",
    "Seats",
    "Crowd",
    "Desk",
    "Story",
    "Shelf",
    "Slip",
    "Bench",
    "Ground",
    "GroundError",
    "Walls",
    "Keeper",
    "Judgement",
    "Judge",
    "Judged",
    "Oneself",
    "Knock",
    "Door",
    "Unwelcome",
    "Welcomed",
    "Parting",
    "Moody",
    "Luck",
    "Worth",
    "Glance",
    "Hunt",
    "Company",
    "Voice",
    "WrittenVoice",
    "Told",
    "Asked",
    "Taken",
    "TakenIn",
    "Touched",
    "Lasting",
    "Whose",
    "Sure",
    "Wish",
    "Spot",
    "Zone",
    "Standing",
    "House",
    "World",
    "Stage",
    "Scene",
    "Beside",
    "Begun",
    "Heard",
    "Fate",
    "Loudness",
    "Tidiness",
    "Occurrences",
    "Afterwards",
    "Habits",
    "Complaint",
    "Armour",
    "Place",
    "Found",
    "Fault",
    "Ending",
    "Aside",
    "Asides",
    "Piece",
    "Pieces",
    "Wanted",
    "Answering",
    "Gathering",
    "Gathered",
    "Taking",
    "Mailbox",
    "Whole",
    "Drops",
    "Weight",
    "Way",
    "WayBack",
    "Kept",
    "Lost",
    "Looked",
    "Look",
    "Looks",
    "Made",
    "Said",
    "Says",
    "Seen",
    "Shown",
    "Used",
    "Over",
    "Trouble",
    "LaneOver",
    "Surroundings",
];

/// Names of modules, counted where they are a file or a folder.
pub(crate) const RETIRED_MODULES: &[&str] = &[
    "bureau",
    "desk",
    "seat",
    "seats",
    "story",
    "walls",
    "keeper",
    "judge",
    "ground",
    "bench",
    "armour",
    "tending",
    "guesses",
    "mend",
    "rescue",
    "behind",
    "ahead",
    "unseen",
    "weighing",
    "hearing",
    "talking",
    "moving",
    "serving",
    "summing",
    "looking",
    "taking",
    "answering",
    "modelling",
    "performing",
    "deciding",
    "leaving",
];

/// Pact's own term, and the folder that may use it.
const PACT_TERM: (&str, &[&str]) = ("src/pact/", &["Seat", "Seats", "seat", "seats"]);

/// Finds the retired names of modules and types in one file, test code included. Comments and strings do not count.
pub(crate) fn retired_names(path: &str, text: &str) -> Vec<String> {
    let is_retired = |list: &[&str], name: &str| {
        list.contains(&name) && !(path.starts_with(PACT_TERM.0) && PACT_TERM.1.contains(&name))
    };
    let parts = path.split('/').map(|part| part.trim_end_matches(".rs"));
    let mut found: Vec<String> = parts
        .filter(|part| is_retired(RETIRED_MODULES, part))
        .map(|part| format!("{path}:1: module `{part}` has a retired name"))
        .collect();
    for pair in lex(text).windows(2) {
        let [keyword, name] = pair else { continue };
        if keyword.kind != Kind::Word || name.kind != Kind::Word {
            continue;
        }
        let (kind, list) = match keyword.text.as_str() {
            "struct" | "enum" | "union" | "trait" | "type" => ("type", RETIRED_TYPES),
            "mod" => ("module", RETIRED_MODULES),
            _ => continue,
        };
        if is_retired(list, &name.text) {
            found.push(format!("{path}:{}: {kind} `{}` has a retired name", name.line, name.text));
        }
    }
    found
}
