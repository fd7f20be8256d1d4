//! Names that no module and no type may have: metaphors, bare participles, and names that say nothing about the kind of thing.

use super::rules::{Tree, Violation};

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
    "Touche",
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

/// The part of the tree that keeps its names until it is replaced.
const EXEMPT: &str = "runtime/pi/";

/// Finds retired names of types and modules.
pub(crate) fn retired_names(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| !path.starts_with(EXEMPT)) {
        for part in path.split('/') {
            if RETIRED_MODULES.contains(&part.trim_end_matches(".rs")) {
                found.push(Violation::new(path, 1, format!("the module name `{part}` is retired")));
            }
        }
        for (number, line) in text.lines().enumerate() {
            if let Some(name) = declared_type(line).filter(|name| RETIRED_TYPES.contains(name)) {
                found.push(Violation::new(path, number + 1, format!("the type name `{name}` is retired")));
            }
        }
    }
    found
}

/// Returns the name of the type that a line declares.
fn declared_type(line: &str) -> Option<&str> {
    let code = line.split("//").next()?;
    let mut words =
        code.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')).filter(|word| !word.is_empty());
    words.find(|word| ["struct", "enum", "trait", "type"].contains(word))?;
    words.next()
}
