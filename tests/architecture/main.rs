//! Checks the architecture of the crate: dependencies between modules, purity, the words of the kernel, and the
//! length of files and functions.
//!
//! It reads `src` as text, so it sees the source and not the expansion of macros. Test code is exempt: a unit test
//! may name whatever it needs.
#![allow(clippy::expect_used, reason = "a source tree that cannot be read is a failed test")]

mod retired;
mod rules;
mod scan;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path as FilePath;
use std::sync::LazyLock;

use retired::retired_names;
use rules::{
    Tree, Violation, crates, edges, event_names, foreign_crates, impurities, layer_edges, misplaced_system_names,
    protocol_names, too_long, undocumented, untyped_access, wire_words,
};

/// Which module may name which; `docs/architecture.md` has the same table, and widening it is a commit of its own.
const TABLE: &[(&str, &[&str])] = &[
    ("kernel", &[]),
    ("record", &["kernel"]),
    // A line of a Pi session file is as untrusted as a client's line and is checked by the same code.
    ("protocol", &["kernel", "record", "transport::canonical_json"]),
    // The record of a command is defined by the log that decides about it.
    ("journal", &["kernel::command_log::record", "kernel::id", "kernel::time"]),
    ("transport", &[]),
    // A secret that is split by invisible characters is found too.
    ("redact", &["invisible_chars"]),
    ("token", &["private_file"]),
    ("invisible_chars", &[]),
    ("backoff", &[]),
    ("bounded_io", &[]),
    // A private file is opened like any other file at a path that somebody else may have chosen.
    ("private_file", &["bounded_io"]),
    // A rule that names no tool is refused when it is read.
    ("config", &["bounded_io", "kernel::limits", "tools::find_for_rule", "tools::rule_name", "transport::local"]),
    ("provider", &["backoff", "bounded_io", "config::settings", "kernel", "private_file", "redact"]),
    ("sandbox", &["bounded_io", "invisible_chars", "kernel"]),
    // A tool assesses its risk, opens files and runs commands through the sandbox.
    ("tools", &["bounded_io", "kernel", "sandbox"]),
    // Files are opened beneath the workspace, so that no link leads out of it.
    ("discovery", &["sandbox::workspace"]),
    ("agent", &["config::settings", "kernel", "provider", "sandbox", "tools"]),
    ("observe", &["invisible_chars", "redact"]),
    // The index is derived from the journal's events, and its file is as private as the journal.
    ("search", &["kernel", "private_file"]),
    (
        "runtime",
        &[
            "agent",
            "bounded_io",
            "config",
            "discovery",
            "invisible_chars",
            "journal",
            "kernel",
            "observe",
            "private_file",
            "protocol",
            "provider",
            "record",
            "redact",
            "sandbox",
            "search",
            "token",
            "tools",
            "transport",
        ],
    ),
    ("client", &["backoff", "bounded_io", "config", "kernel", "protocol::push", "transport"]),
    // What the line mode and the terminal client show alike.
    ("display", &["client", "invisible_chars", "kernel"]),
    // A document is text for people, from the conversation of the kernel.
    ("export", &["display", "kernel"]),
    // The terminal client gets a connected client from the verb that starts it.
    ("tui", &["client", "display", "invisible_chars", "kernel"]),
    // Some verbs work without a daemon: `config` looks for models and stores keys and tokens, `purge` removes private caches and
    // Pi session files, `run --worktree` looks for git.
    (
        "cli",
        &[
            "client",
            "config",
            "display",
            "export",
            "invisible_chars",
            // A backup is read from the database, and a restored one is prepared, without a daemon.
            "journal::backup",
            "kernel",
            "provider",
            "runtime::session_files",
            "sandbox::caches",
            "sandbox::program",
            "token",
            "tui",
        ],
    ),
    ("bin", &["cli", "observe", "runtime", "sandbox::supervisor"]),
];

/// The layers inside `runtime`, from the lowest to the highest, each with its modules. A module names those of its own
/// layer and of lower ones; `docs/architecture.md` has the same table.
const RUNTIME_LAYERS: &[(&str, &[&str])] = &[
    (
        "services",
        &[
            "clock",
            "confinement",
            "daily_spend",
            "environments",
            "fingerprints",
            "generate",
            "grants",
            "identity",
            "index",
            "local_day",
            "login",
            "model_config",
            "notify",
            "os",
            "process",
            "services",
            "session_files",
            "session_locks",
            "workspace",
        ],
    ),
    ("feed", &["feed", "outbox"]),
    ("lane", &["lane"]),
    ("hub", &["hub", "retention"]),
    ("server", &["forks", "maintenance", "server", "token_throttle"]),
    // Connections submit commands to it.
    ("commands", &["access", "commands"]),
    (
        "connection",
        &[
            "approval_wait",
            "connection",
            "connection_writer",
            "protocols",
            "queries",
            "request_order",
            "requests",
            "searches",
            "session_commands",
            "subscriptions",
            "web",
        ],
    ),
    ("lifecycle", &["lifecycle", "start"]),
];

/// The file of `runtime` that knows which protocols there are; no other names one.
const PROTOCOL_REGISTRY: &str = "runtime/protocols.rs";

/// Files that may name one thing more, each with its reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// What pure modules may not name: every way to read the time, to get random numbers, or to do I/O.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::env",
    "std::os",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "std::time::SystemTime",
    "SystemTime",
    "Instant::now",
    "std::time::Instant::now",
    "tokio",
    "tokio_util",
    "interprocess",
    "rusqlite",
    "nix",
    "rustix",
    "libc",
    "windows_sys",
    "directories",
    "getrandom",
    "clap",
    "tracing_appender",
    "tracing_subscriber",
];

/// Names that exist on one family of systems only.
const UNIX_ONLY: &[&str] = &[
    "std::os::unix",
    "std::os::linux",
    "std::os::fd",
    "nix",
    "rustix",
    "libc",
    "tokio::net::UnixListener",
    "tokio::net::UnixStream",
    "tokio::net::unix",
    "tokio::signal::unix",
    "interprocess::os::unix",
];
const WINDOWS_ONLY: &[&str] =
    &["std::os::windows", "windows_sys", "tokio::net::windows", "tokio::signal::windows", "interprocess::os::windows"];

/// Protocol words that the kernel must not contain, neither as a name nor in a text.
const WIRE_WORDS: &[&str] = &[
    "push.runtime",
    "sessionId",
    "requestId",
    "runId",
    "approvalId",
    "messageId",
    "clientMessageId",
    "callId",
    "lastSeenSeq",
    "attachToken",
    "expiresAt",
    "exitCodeHint",
    "acceptanceCriteria",
    "idempotencyKey",
    "approval_required",
    "approval_received",
    "send_user_message",
    "submit_approval",
    "awaiting_approval",
    "assistant_token",
    "exitCode",
    "EVENT_GAP",
    "RUN_IN_PROGRESS",
    "NO_ACTIVE_RUN",
    "APPROVAL_NOT_FOUND",
    "APPROVAL_EXPIRED",
    "ATTACH_FORBIDDEN",
    "INVALID_REQUEST",
    "INTERNAL_ERROR",
    "SESSION_NOT_FOUND",
    "PROVIDER_NOT_CONFIGURED",
    "SANDBOX_UNAVAILABLE",
    "STORAGE_FAILED",
    "UNSUPPORTED_",
];

/// Words that are fine as names of ours and belong to a protocol as texts; whole texts are compared.
const WIRE_TEXTS: &[&str] = &[
    "pvp",
    "pi",
    "run_complete",
    "run_recovered",
    "tool_call",
    "tool_result",
    "tool_output",
    "user_message",
    "session_started",
    "session_snapshot",
    "start_session",
    "attach_session",
    "cancel_run",
    "agent_end",
];

/// The files that decode events: each event type is a text in a pattern there.
const EVENT_DECODERS: &[&str] = &["record/decode/mod.rs", "protocol/push/client/event.rs"];

/// The files of clients that look into JSON, each with its reason: it has no fixed type.
const FREE_FORM_JSON: &[(&str, &str)] = &[
    (
        "display/approval_view.rs",
        "each tool chooses the details of its approvals; one unexpected field must hide no other",
    ),
    ("display/format.rs", "each tool has its own arguments, and models write them"),
    ("display/tool_results.rs", "each tool chooses the form of its results"),
];

/// Texts of `cli` and `tui` that are also the name of an event type, each with what it is there.
const ORDINARY_WORDS: &[(&str, &str, &str)] = &[
    ("cli/report.rs", "usage", "a field of the result of a run"),
    ("cli/wait.rs", "usage", "a field of the result of a run"),
    ("cli/view.rs", "warning", "a word for people"),
    ("cli/view.rs", "error", "a word for people"),
    ("tui/session_events.rs", "warning", "a word for people"),
    ("tui/session_events.rs", "error", "a word for people"),
];

const CODE_LINES: usize = 400;
const FUNCTION_LINES: usize = 60;
const MAIN_LINES: usize = 60;

#[test]
fn modules_name_only_what_the_table_allows() {
    assert_no_violations(edges(tree()));
}

#[test]
fn the_documented_table_is_the_enforced_one() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("docs/architecture.md is there");
    for (module, may) in TABLE {
        let named: Vec<String> = may.iter().map(|name| format!("`{name}`")).collect();
        let row =
            format!("| `{module}` | {} |", if named.is_empty() { "nothing".to_owned() } else { named.join(", ") });
        assert!(page.contains(&row), "docs/architecture.md lacks this row of the table:\n{row}");
    }
}

#[test]
fn modules_of_runtime_name_no_higher_layer() {
    let modules: Vec<&str> = RUNTIME_LAYERS.iter().flat_map(|(_, modules)| modules.iter().copied()).collect();
    let distinct: BTreeSet<&str> = modules.iter().copied().collect();
    assert_eq!(modules.len(), distinct.len(), "a module is listed in two layers");
    assert_no_violations(layer_edges(tree()));
}

#[test]
fn the_documented_layers_are_the_enforced_ones() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("docs/architecture.md is there");
    let (_, section) = page.split_once("### Layers of `runtime`").expect("the page describes the layers");
    let rows = section.lines().filter(|line| line.starts_with("| `")).map(str::to_owned);
    let enforced = RUNTIME_LAYERS.iter().rev().map(|(layer, modules)| {
        let modules: Vec<String> = modules.iter().map(|name| format!("`{name}`")).collect();
        format!("| `{layer}` | {} |", modules.join(", "))
    });
    let (rows, enforced): (Vec<_>, Vec<_>) = (rows.take(RUNTIME_LAYERS.len()).collect(), enforced.collect());
    assert_eq!(rows, enforced, "docs/architecture.md has another table of layers");
}

#[test]
fn an_edge_to_a_higher_layer_is_found_however_it_is_written() {
    let cases = [
        ("runtime/lane/mod.rs", "//! Doc.\nuse super::hub::Hub;"),
        ("runtime/lane/unload.rs", "//! Doc.\nuse crate::runtime::{feed, hub};"),
        ("runtime/lane/model_turn/summary.rs", "//! Doc.\nfn f() { crate::runtime::commands::serve() }"),
        ("runtime/feed.rs", "//! Doc.\nuse super::lane;"),
        ("runtime/hub.rs", "//! Doc.\nuse super::server::Server;"),
        ("runtime/commands/operations/mod.rs", "//! Doc.\nuse crate::runtime::connection::LIMIT;"),
        ("runtime/unix.rs", "//! Doc.\nuse super::lifecycle::Signal;"),
        // The root, a name that it exports, and a glob hide the layer of what is used.
        ("runtime/lane/mod.rs", "//! Doc.\nuse crate::runtime;"),
        ("runtime/lane/mod.rs", "//! Doc.\nuse super::Signal;"),
        ("runtime/feed.rs", "//! Doc.\nuse super::*;"),
    ];
    for (path, text) in cases {
        let found = layer_edges(&Tree::of(&complete_layers(&[(path, text)])));
        let lines: Vec<usize> = found.iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [2], "{path}: {text}\n{found:?}");
        assert!(format!("{found:?}").contains(path), "{found:?}");
    }
}

#[test]
fn edges_within_a_layer_to_lower_ones_and_in_tests_are_no_violations() {
    let cases = [
        ("runtime/hub.rs", "use super::lane::Lane;\nuse super::retention;\nuse crate::kernel::id;"),
        ("runtime/lane/mod.rs", "use super::feed::Feed;\nuse self::unload::Exit;\nuse crate::runtime::lane::input;"),
        ("runtime/lane/unload.rs", "use super::input;\n#[cfg(test)]\nmod tests { use crate::runtime::hub; }"),
        ("runtime/lane/input.rs", "pub(in crate::runtime) fn f() {}\npub(in crate::runtime::lane) fn g() {}"),
        ("runtime/mod.rs", "#[path = \"unix.rs\"]\nmod os;\npub use lifecycle::run;\npub use self::process::Signal;"),
    ];
    for (path, text) in cases {
        assert_eq!(layer_edges(&Tree::of(&complete_layers(&[(path, text)]))), [], "{path}: {text}");
    }
}

#[test]
fn runtime_names_no_protocol_outside_the_registry() {
    assert!(root().join("src").join(PROTOCOL_REGISTRY).exists(), "the registry has another name");
    assert_no_violations(protocol_names(tree()));
}

#[test]
fn a_protocol_that_runtime_names_is_found() {
    let found = |path: &str, text: &str| {
        protocol_names(&Tree::of(&[("protocol/pi/mod.rs", ""), ("protocol/push/mod.rs", ""), (path, text)])).len()
    };
    for text in [
        "use crate::protocol::pi::decode;",
        "use crate::protocol::{Protocol, push};",
        "fn f() { crate::protocol::push::decode() }",
        "struct PiPeer;",
        "fn f(_: &WebPiSettings) {}",
        "const PUSH_LIMIT: usize = 1;",
    ] {
        assert_eq!(found("runtime/lane/mod.rs", text), 1, "{text}");
        assert_eq!(found("runtime/protocols.rs", text), 0, "{text}");
        assert_eq!(found("cli/a.rs", text), 0, "{text}");
    }
    for text in [
        "use crate::protocol::{Protocol, reply};",
        "fn f() { list.push(1); limits.pi_sessions } // PiPeer",
        "struct Pipe; struct Pushed; const A: &str = \"pi::decode\";",
        "#[cfg(test)]\nmod tests { use crate::protocol::pi; }",
    ] {
        assert_eq!(found("runtime/lane/mod.rs", text), 0, "{text}");
    }
}

#[test]
fn a_module_without_a_layer_and_a_layer_without_its_module_are_found() {
    let (found, missing) = (complete_layers(&[("runtime/novelty.rs", "")]), complete_layers(&[]));
    assert_eq!(layer_edges(&Tree::of(&found)).len(), 1, "a file belongs to no layer");
    assert_eq!(layer_edges(&Tree::of(&missing[1..])).len(), 1, "the module of a row does not exist");
}

/// One file for each module of the layers, replaced or extended by `files`.
fn complete_layers<'a>(files: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let modules = RUNTIME_LAYERS.iter().flat_map(|(_, modules)| modules.iter());
    let path = |module: &&str| match *module {
        "os" => "runtime/unix.rs".to_owned(),
        "lane" | "commands" => format!("runtime/{module}/mod.rs"),
        module => format!("runtime/{module}.rs"),
    };
    let stubs = modules.map(path).filter(|path| !files.iter().any(|(file, _)| file == path));
    let root = ("runtime/mod.rs", "#[cfg(unix)]\n#[path = \"unix.rs\"]\nmod os;\n");
    let root = (!files.iter().any(|(file, _)| *file == root.0)).then_some(root);
    stubs.map(|path| (&*path.leak(), "")).chain(root).chain(files.iter().copied()).collect()
}

#[test]
fn every_test_that_a_promise_names_exists() {
    let mut files = Vec::new();
    read(&root().join("src"), "", &mut files);
    read(&root().join("tests"), "", &mut files);
    let mut rows = Vec::new();
    for page in ["docs/security.md", "docs/reliability.md"] {
        let text = fs::read_to_string(root().join(page)).expect("the page is there");
        let (_, promises) = text.split_once("## Promises and their tests").expect("the page ends with its promises");
        let found = promises.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
        let before = rows.len();
        rows.extend(found.map(str::to_owned));
        assert!(rows.len() > before, "no row of {page} names a test");
    }
    for row in rows {
        let tests = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
        for name in tests.split('`').skip(1).step_by(2) {
            let declared = format!("fn {name}(");
            assert!(files.iter().any(|(_, text)| text.contains(&declared)), "no test for this promise:\n{row}");
        }
    }
}

#[test]
fn kernel_and_protocols_are_pure() {
    assert_no_violations(impurities(tree()));
}

#[test]
fn the_kernel_needs_the_standard_library_alone() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml is there");
    assert_no_violations(foreign_crates(tree(), &crates(&manifest)));
}

#[test]
fn the_kernel_contains_no_protocol_word() {
    assert_no_violations(wire_words(tree()));
}

#[test]
fn verbs_use_the_types_of_the_client_and_not_its_json() {
    let tree = tree();
    let names = event_names(tree);
    for name in ["assistant_token", "retry_ended", "session_snapshot"] {
        assert!(names.contains(name), "{name} is not among the event types: {names:?}");
    }
    assert_no_violations(untyped_access(tree, &names));
    for (file, reason) in FREE_FORM_JSON {
        assert!(root().join("src").join(file).exists(), "{file} does not exist, exempt because {reason}");
    }
}

#[test]
fn an_event_name_and_a_lookup_in_json_are_found() {
    let names = BTreeSet::from(["tool_call".to_owned(), "usage".to_owned()]);
    let found = |path: &str, text: &str| untyped_access(&Tree::of(&[(path, text)]), &names).len();
    for text in [
        "fn f() { matches!(kind, \"tool_call\") }",
        "fn f() { reply.get(\"x\") }",
        "fn f() { reply.get_mut(\"x\") }",
        "fn f() { reply[\"x\"].len() }",
        "fn f() { reply[\"x\"] == 1 }",
        "fn f() { reply()[\"x\"] }",
        "fn f() { reply.pointer(at) }",
        "fn f() { value.map(Value::as_str) }",
        "fn f() { value.as_array() }",
        "fn f() { field(&reply, name) }",
    ] {
        assert_eq!(found("cli/a.rs", text), 1, "{text}");
        assert_eq!(found("client/a.rs", text), 0, "{text}");
    }
    for text in [
        "fn f() { object[\"x\"] = json!(1); for name in [\"x\"] {} let field = text.as_str(); }",
        "fn f() { map.get(name) } // reply.get(\"x\"), tool_call",
        "fn tool_call() { g(\"a tool_call\") }",
        "#[cfg(test)]\nmod tests { fn f() { reply[\"x\"] == \"tool_call\" } }",
    ] {
        assert_eq!(found("cli/a.rs", text), 0, "{text}");
    }
    assert_eq!(found("display/format.rs", "fn f() { args.get(\"x\"); matches!(kind, \"tool_call\") }"), 1);
    assert_eq!(found("cli/report.rs", "fn f() { (\"usage\", \"tool_call\") }"), 1);
}

#[test]
fn no_module_and_no_type_has_a_retired_name() {
    for folder in ["src", "benches", "fuzz"] {
        let mut files = Vec::new();
        read(&root().join(folder), "", &mut files);
        assert!(!files.is_empty(), "{folder} has no source");
        let found: Vec<String> =
            files.iter().flat_map(|(path, text)| retired_names(&format!("{folder}/{path}"), text)).collect();
        assert!(found.is_empty(), "{} found\n{}\n", found.len(), found.join("\n"));
    }
}

#[test]
fn a_retired_name_is_found() {
    let cases = [
        ("src/cli/a.rs", "//! Doc.\npub(crate) struct Bureau {}", vec!["a.rs:2: type `Bureau`"]),
        (
            "src/cli/a.rs",
            "enum Told { A } type Way = u8;\ntrait Worth {}",
            vec!["`Told`", "`Way`", "a.rs:2: type `Worth`"],
        ),
        ("src/cli/a.rs", "#[cfg(test)]\nmod tests { struct Place; }", vec!["`Place`"]),
        ("src/cli/a.rs", "mod walls;\npub mod desk { pub struct Limits; }", vec!["module `walls`", "module `desk`"]),
        ("src/sandbox/walls.rs", "struct Limits;", vec!["module `walls`"]),
        ("src/journal/ahead/mod.rs", "", vec!["module `ahead`"]),
        ("benches/story.rs", "", vec!["module `story`"]),
        ("src/runtime/pi/bureau.rs", "struct Bureau;", vec!["module `bureau`", "`Bureau`"]),
        ("src/protocol/pi/seat.rs", "struct Seat;", vec!["module `seat`", "`Seat`"]),
        ("src/pact/seat.rs", "pub struct Seat; enum Seats {} mod seats;", vec![]),
        ("src/pact/desk.rs", "struct Crowd;", vec!["module `desk`", "`Crowd`"]),
        ("src/cli/a.rs", "// struct Bureau\nstruct Broadcast; fn told() { let desk = \"struct Desk\"; }", vec![]),
    ];
    for (path, text, expected) in cases {
        let found = retired_names(path, text);
        assert_eq!(found.len(), expected.len(), "{path}: {text}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(path) && found.contains(expected), "{path}: {text}: {found}");
        }
    }
}

#[test]
fn every_file_states_its_purpose() {
    assert_no_violations(undocumented(tree()));
}

#[test]
fn files_and_functions_stay_short() {
    assert_no_violations(too_long(tree()));
}

#[test]
fn system_specific_names_stay_in_system_specific_files() {
    assert_no_violations(misplaced_system_names(tree()));
}

#[test]
fn a_forbidden_edge_is_found_however_it_is_written() {
    let cases = [
        ("kernel/a.rs", "fn f() {}\nuse crate::protocol::push;"),
        ("kernel/a.rs", "fn f() {\n    crate::runtime::run() }"),
        ("kernel/a.rs", "use std::fmt;\nuse super::super::journal::Writer;"),
        ("kernel/mod.rs", "//! Doc.\nuse super::redact;"),
        ("redact.rs", "//! Doc.\nuse super::config::Limits;"),
        ("journal/a.rs", "//! Doc.\nuse crate::kernel::{id::Seq, event::Event};"),
        ("client/a.rs", "//! Doc.\nuse crate::{config, daemon::hub};"),
        ("client/a.rs", "//! Doc.\nuse crate::*;"),
        ("sandbox/a.rs", "mod b { use super::*; }\nuse crate::redact::Redactor as R;"),
        ("provider/a.rs", "mod b {\n    use super::super::super::sandbox::Tool; }"),
        ("protocol/pi/decode.rs", "//! Doc.\nuse crate::protocol::push::wire::Envelope;"),
        ("protocol/pi/decode.rs", "//! Doc.\nuse super::super::push::decode;"),
        ("cli/run.rs", "//! Doc.\nuse crate::runtime;"),
        ("cli/run.rs", "//! Doc.\nuse crate::protocol::push::client::Event;"),
        ("bin/push.rs", "//! Doc.\nuse pushd::journal::Journal;"),
        ("novelty/a.rs", "//! Doc.\nuse crate::kernel;"),
    ];
    for (path, text) in cases {
        let found = edges(&Tree::of(&[("protocol/push/mod.rs", ""), (path, text)]));
        let lines: Vec<usize> = found.iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [2], "{path}: {text}\n{found:?}");
    }
}

#[test]
fn allowed_edges_comments_texts_and_tests_are_no_violations() {
    let cases = [
        ("kernel/session/fold.rs", "use super::super::id::Seq;\nuse crate::kernel::time::Now;"),
        ("journal/a.rs", "use crate::kernel::{id::Seq, time};"),
        ("protocol/push/decode.rs", "use super::wire::Envelope;\nuse crate::protocol::push::wire;"),
        ("protocol/mod.rs", "pub use push::Codec;\npub use self::push::Other;"),
        ("cli/a.rs", "use crate::client::Event;\npub(crate) fn f() {}"),
        (
            "redact.rs",
            "// use crate::runtime;\n/* crate::runtime::x /* nested */ */ const A: &str = \"crate::runtime\";",
        ),
        ("redact.rs", "const A: &str = r#\"\"crate::runtime::a\"#; const B: char = '\"'; fn f<'a>(_: &'a str) {}"),
        ("redact.rs", "#[cfg(test)]\nmod tests { use crate::runtime::x; }"),
        ("redact.rs", "#[cfg(test)]\n#[expect(dead_code)]\nuse crate::runtime::{x, y};\nfn f() {}"),
        ("transport/local.rs", "#[cfg(unix)]\n#[path = \"unix.rs\"]\nmod os;"),
        ("transport/unix.rs", "use super::super::line;"),
        ("bin/pushd.rs", "fn main() { pushd::runtime::start() }"),
    ];
    for (path, text) in cases {
        let local = ("transport/local.rs", "#[cfg(unix)]\n#[path = \"unix.rs\"]\nmod os;");
        assert_eq!(edges(&Tree::of(&[local, (path, text)])), [], "{path}: {text}");
    }
}

#[test]
fn an_impure_name_is_found() {
    for text in [
        "use std::fs;",
        "use std::{fmt, net::TcpStream};",
        "fn f() { std::process::exit(1) }",
        "use std::time::{Duration, SystemTime};",
        "use std::time::Instant; fn f() -> Instant { Instant::now() }",
        "use tokio;",
        "fn f() { ::tokio::spawn(g()) }",
    ] {
        assert_eq!(impurities(&Tree::of(&[("kernel/a.rs", text)])).len(), 1, "{text}");
        assert_eq!(impurities(&Tree::of(&[("protocol/push/a.rs", text)])).len(), 1, "{text}");
        assert_eq!(impurities(&Tree::of(&[("daemon/a.rs", text)])), [], "{text}");
    }
}

#[test]
fn a_foreign_crate_in_the_kernel_is_found() {
    let known = crates("[dependencies]\nserde = \"1\"\ntokio-util = { version = \"1\" }\n[lints.rust]\nfmt = \"x\"\n");
    assert_eq!(known, BTreeSet::from(["serde".to_owned(), "tokio_util".to_owned()]));
    for text in ["use serde::Serialize;", "#[derive(serde::Serialize)] struct A;", "use tokio_util;"] {
        assert_eq!(foreign_crates(&Tree::of(&[("kernel/a.rs", text)]), &known).len(), 1, "{text}");
    }
    assert_eq!(foreign_crates(&Tree::of(&[("kernel/a.rs", "use std::fmt; let serde = 1;")]), &known), []);
}

#[test]
fn a_wire_word_in_the_kernel_is_found() {
    for text in [
        "const A: &str = \"sessionId\";",
        "fn f() { g(r#\"{\"v\":\"push.runtime.v1\"}\"#) }",
        "fn submit_approval() {}",
        "const A: &str = \"tool_call\";",
        "const A: &str = \"someKey\";",
        "const RUN_IN_PROGRESS: u8 = 1;",
    ] {
        assert_eq!(wire_words(&Tree::of(&[("kernel/a.rs", text)])).len(), 1, "{text}");
    }
    let harmless =
        "// sessionId\nfn tool_call() {} const A: &str = \"the approval has expired\"; const B: &str = \"api\";";
    assert_eq!(wire_words(&Tree::of(&[("kernel/a.rs", harmless), ("protocol/push/a.rs", "\"sessionId\"")])), []);
}

#[test]
fn a_file_without_its_purpose_is_found() {
    assert_eq!(undocumented(&Tree::of(&[("cli/a.rs", "// No.\nfn f() {}")])).len(), 1);
    assert_eq!(undocumented(&Tree::of(&[("cli/a.rs", "//! Yes.\nfn f() {}")])), []);
}

#[test]
fn an_overlong_file_or_function_is_found() {
    let function = |lines: usize| format!("fn f() {{\n{}}}\n", "    // why\n\n    g(\"}\");\n".repeat(lines));
    assert_eq!(too_long(&Tree::of(&[("cli/a.rs", &function(58))])), []);
    assert_eq!(too_long(&Tree::of(&[("cli/a.rs", &function(59))])).len(), 1);
    let file = |lines: usize| "const A: u8 = 1;\n// why\n".repeat(lines);
    assert_eq!(too_long(&Tree::of(&[("cli/a.rs", &file(400))])), []);
    assert_eq!(too_long(&Tree::of(&[("cli/a.rs", &file(401))])).len(), 1);
    let tests = format!("{}#[cfg(test)]\nmod tests {{\n{}{}}}\n", file(400), file(9), function(90));
    assert_eq!(too_long(&Tree::of(&[("cli/a.rs", &tests)])), []);
    assert_eq!(too_long(&Tree::of(&[("bin/push.rs", &"\n".repeat(61))])).len(), 1);
    let apart = [("cli/mod.rs", "#[cfg(test)]\nmod walk;"), ("cli/walk.rs", &*file(401))];
    assert_eq!(too_long(&Tree::of(&apart)), []);
    let apart = [("cli/a.rs", "#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;"), ("cli/a_tests.rs", &*file(401))];
    assert_eq!(too_long(&Tree::of(&apart)), []);
}

#[test]
fn a_misplaced_system_specific_name_is_found() {
    let unix = "use std::os::unix::fs::PermissionsExt;";
    let windows = "use windows_sys::Win32::Foundation::HANDLE;";
    assert_eq!(misplaced_system_names(&Tree::of(&[("transport/local.rs", unix)])).len(), 1);
    assert_eq!(misplaced_system_names(&Tree::of(&[("transport/windows.rs", unix)])).len(), 1);
    assert_eq!(misplaced_system_names(&Tree::of(&[("transport/unix.rs", windows)])).len(), 1);
    assert_eq!(misplaced_system_names(&Tree::of(&[("daemon/a.rs", "use tokio::{io, net::UnixStream};")])).len(), 1);
    let placed = [("a/unix.rs", unix), ("a/unix_ground.rs", unix), ("a/os/cgroup.rs", unix), ("a/windows.rs", windows)];
    assert_eq!(misplaced_system_names(&Tree::of(&placed)), []);
    let chain = [
        ("a/supervisor/mod.rs", "#[cfg(unix)]\n#[path = \"unix.rs\"]\nmod os;"),
        ("a/supervisor/unix.rs", "#[cfg(target_os = \"linux\")]\nmod cgroup;"),
        ("a/supervisor/cgroup.rs", unix),
    ];
    assert_eq!(misplaced_system_names(&Tree::of(&chain)), []);
    assert_eq!(misplaced_system_names(&Tree::of(&chain[1..])).len(), 1, "nobody says that cgroup.rs is below unix.rs");
}

fn root() -> &'static FilePath {
    FilePath::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the source, which is read and split into tokens once for all tests.
fn tree() -> &'static Tree {
    static TREE: LazyLock<Tree> = LazyLock::new(|| {
        let mut files = Vec::new();
        read(&root().join("src"), "", &mut files);
        assert!(files.len() > 10, "src has only {} files: the walk is broken", files.len());
        files.sort();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        Tree::of(&files)
    });
    &TREE
}

fn read(folder: &FilePath, prefix: &str, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("the folder can be listed") {
        let entry = entry.expect("the entry can be read");
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            read(&entry.path(), &format!("{path}/"), files);
        } else if path.ends_with(".rs") {
            files.push((path, fs::read_to_string(entry.path()).expect("the file is text")));
        }
    }
}

fn assert_no_violations(found: Vec<Violation>) {
    let lines: Vec<String> = found.iter().map(|violation| format!("{violation:?}")).collect();
    assert!(lines.is_empty(), "{} found\n{}\n", lines.len(), lines.join("\n"));
}
