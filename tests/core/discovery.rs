//! Commands and skills on a real disk: what is found, its source, and what is skipped.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use pushd::discovery::{
    DiscoveryLimits, DiscoveryResult, DiscoverySource, SkippedFile, commands, commands_with_limits, skills,
    skills_with_limits,
};
use tempfile::TempDir;

struct Fixture {
    dir: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["home", "project", "outside"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        Self { dir }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn commands(&self) -> DiscoveryResult<pushd::discovery::Command> {
        commands(&self.path("project"), &self.path("home"))
    }

    fn skills(&self) -> DiscoveryResult<pushd::discovery::Skill> {
        skills(&self.path("project"), &self.path("home"))
    }

    /// The skipped files, relative to the fixture, with the reason.
    fn skipped_files(&self, skipped: &[SkippedFile]) -> Vec<(String, String)> {
        let base = format!("{}/", self.dir.path().display());
        let mut all: Vec<_> = skipped
            .iter()
            .map(|skipped| (skipped.path.display().to_string().replace(&base, ""), skipped.reason.replace(&base, "")))
            .collect();
        all.sort();
        all
    }
}

fn text(description: &str) -> String {
    format!("---\ndescription: {description}\n---\nDo it.\n")
}

#[test]
fn commands_are_found_in_every_directory_and_the_project_s_come_first() {
    let fixture = Fixture::new();
    let places = [
        ("project/.pi/prompts", "a", DiscoverySource::Project),
        ("project/.pi/commands", "b", DiscoverySource::Project),
        ("project/.claude/commands", "c", DiscoverySource::Project),
        ("home/.pi/agent/prompts", "d", DiscoverySource::User),
        ("home/.pi/agent/commands", "e", DiscoverySource::User),
        ("home/.claude/commands", "f", DiscoverySource::User),
    ];
    for (place, name, _) in places {
        fixture.write(&format!("{place}/{name}.md"), &text(place));
        fixture.write(&format!("{place}/same.md"), &text(place));
    }
    fixture.write("project/.pi/prompts/notes.txt", "no command");
    fixture.write("project/.pi/prompts/.hidden.md", "no command");
    let DiscoveryResult { items: found, skipped } = fixture.commands();
    let seen: Vec<_> = found
        .iter()
        .map(|command| (command.name.as_str(), command.description.as_deref().unwrap(), command.source))
        .collect();
    let mut expected: Vec<_> = places.iter().map(|(place, name, source)| (*name, *place, *source)).collect();
    expected.push(("same", "project/.pi/prompts", DiscoverySource::Project));
    assert_eq!(seen, expected);
    assert_eq!(found[0].path, fixture.path("project/.pi/prompts/a.md"));
    let skipped = fixture.skipped_files(&skipped);
    assert_eq!(skipped.len(), 5);
    assert!(skipped.iter().all(|(_, why)| why == "project/.pi/prompts/same.md has the same name and comes first"));
}

#[test]
fn a_command_is_named_by_its_directories_and_described_by_its_first_words() {
    let fixture = Fixture::new();
    fixture.write("project/.claude/commands/git/fix/commit.md", "\n# Commit it\nNow.\n");
    fixture.write("project/.claude/commands/git/push.md", "---\nname: x\n---\n");
    fixture.write("project/.claude/commands/a/b/c/too-deep.md", "deep");
    fixture.write("project/.claude/commands/two words.md", "odd");
    let DiscoveryResult { items: found, skipped } = fixture.commands();
    let seen: Vec<_> = found.iter().map(|command| (command.name.as_str(), command.description.as_deref())).collect();
    assert_eq!(seen, [("git:fix:commit", Some("Commit it")), ("git:push", None)]);
    let why = "its name is empty, too long, or has spaces in it".to_owned();
    assert_eq!(fixture.skipped_files(&skipped), [("project/.claude/commands/two words.md".to_owned(), why)]);
}

#[test]
fn skills_are_found_in_every_directory() {
    let fixture = Fixture::new();
    let places = [
        ("project/.pi/skills", "a", DiscoverySource::Project),
        ("project/.agents/skills", "b", DiscoverySource::Project),
        ("project/.claude/skills", "c", DiscoverySource::Project),
        ("home/.pi/agent/skills", "d", DiscoverySource::User),
        ("home/.agents/skills", "e", DiscoverySource::User),
        ("home/.claude/skills", "f", DiscoverySource::User),
    ];
    for (place, name, _) in places {
        fixture.write(&format!("{place}/{name}/SKILL.md"), &text(place));
        fixture.write(&format!("{place}/{name}/reference/SKILL.md"), &text("part of a skill"));
        fixture.write(&format!("{place}/README.md"), "not a skill");
    }
    fixture.write("home/.claude/skills/group/inner/SKILL.md", "---\nname: named\ndescription: 'x'\n---\n");
    let DiscoveryResult { items: found, skipped } = fixture.skills();
    let seen: Vec<_> =
        found.iter().map(|skill| (skill.name.as_str(), skill.description.as_str(), skill.source)).collect();
    let mut expected: Vec<_> = places.iter().map(|(place, name, source)| (*name, *place, *source)).collect();
    expected.push(("named", "x", DiscoverySource::User));
    assert_eq!(seen, expected);
    assert_eq!(found[1].path, fixture.path("project/.agents/skills/b/SKILL.md"));
    assert_eq!(skipped, []);
}

#[test]
fn unusable_files_are_skipped_with_a_reason() {
    let fixture = Fixture::new();
    let skill = |name: &str| format!("home/.pi/agent/skills/{name}/SKILL.md");
    fixture.write(&skill("good"), &text("fine"));
    fixture.write(&skill("bare"), "# No head\n");
    fixture.write(&skill("large"), &"x".repeat(300 << 10));
    fs::create_dir_all(fixture.path(&skill("bytes")).parent().unwrap()).unwrap();
    fs::write(fixture.path(&skill("bytes")), b"---\ndescription: \xff\n---\n").unwrap();
    fs::create_dir_all(fixture.path(&skill("folder"))).unwrap();
    fs::create_dir_all(fixture.path(&skill("pipe")).parent().unwrap()).unwrap();
    mkfifo(&fixture.path(&skill("pipe")), Mode::S_IRWXU).unwrap();
    mkfifo(&fixture.path("home/.pi/agent/skills/bare-pipe"), Mode::S_IRWXU).unwrap();
    let DiscoveryResult { items: found, skipped } = fixture.skills();
    assert_eq!(found.iter().map(|skill| skill.name.as_str()).collect::<Vec<_>>(), ["good"]);
    let inner = |name: &str| skill(name).replace("home/", "");
    let expected = [
        ("home/.pi/agent/skills/bare-pipe".to_owned(), "it is not a regular file".to_owned()),
        (skill("bare"), "it has no description".to_owned()),
        (skill("bytes"), "it is not text".to_owned()),
        (skill("folder"), format!("{} is a directory", inner("folder"))),
        (skill("large"), format!("{} has more than 262144 bytes", inner("large"))),
        (skill("pipe"), format!("{} is not a regular file", inner("pipe"))),
    ];
    assert_eq!(fixture.skipped_files(&skipped), expected);
}

#[test]
fn no_link_leads_out_of_the_project_or_the_home() {
    let fixture = Fixture::new();
    fixture.write("outside/secret.md", &text("secret"));
    fixture.write("outside/skill/SKILL.md", &text("secret"));
    fixture.write("project/shared/inside.md", &text("inside"));
    fixture.write("project/shared/skill/SKILL.md", &text("inside"));
    fs::create_dir_all(fixture.path("project/.pi/prompts")).unwrap();
    fs::create_dir_all(fixture.path("project/.claude")).unwrap();
    for (target, link) in [
        ("outside/secret.md", "project/.pi/prompts/leak.md"),
        ("outside", "project/.pi/prompts/out"),
        ("outside", "project/.pi/skills"),
        ("project", "project/.pi/prompts/loop"),
    ] {
        symlink(fixture.path(target), fixture.path(link)).unwrap();
    }
    symlink("../../../outside/secret.md", fixture.path("project/.pi/prompts/up.md")).unwrap();
    symlink("../../shared/inside.md", fixture.path("project/.pi/prompts/fine.md")).unwrap();
    symlink("../shared", fixture.path("project/.claude/skills")).unwrap();
    let DiscoveryResult { items: found, skipped } = fixture.commands();
    let names: Vec<_> = found.iter().map(|command| command.name.as_str()).collect();
    // Links that stay inside are followed where the system can guarantee that they do.
    let inside: &[&str] = if cfg!(target_os = "linux") { &["fine"] } else { &[] };
    assert_eq!(names, inside);
    assert!(skipped.iter().any(|skipped| skipped.path.ends_with("leak.md")
        && skipped.reason.ends_with("is outside the workspace or resolves to a path outside it")));
    assert!(skipped.iter().any(|skipped| skipped.path.ends_with("up.md")));
    let skills = fixture.skills();
    let names: Vec<_> = skills.items.iter().map(|skill| skill.description.as_str()).collect();
    assert_eq!(names, inside.iter().map(|_| "inside").collect::<Vec<_>>());
}

#[test]
fn the_number_of_entries_is_limited() {
    let fixture = Fixture::new();
    for count in 0..30 {
        fixture.write(&format!("project/.pi/prompts/{count:02}.md"), &text("x"));
        fixture.write(&format!("project/.pi/skills/{count:02}/SKILL.md"), &text("x"));
    }
    let (project, home) = (fixture.path("project"), fixture.path("home"));
    let few = DiscoveryLimits { files: 10, ..DiscoveryLimits::default() };
    let found = commands_with_limits(&project, &home, few);
    assert_eq!((found.items.len(), found.items[9].name.as_str()), (10, "09"));
    assert_eq!(found.skipped.len(), 20);
    assert_eq!(skills_with_limits(&project, &home, few).items.len(), 10);
    let few = DiscoveryLimits { names: 10, ..DiscoveryLimits::default() };
    let found = commands_with_limits(&project, &home, few);
    assert_eq!(found.items.len(), 10);
    assert!(found.skipped.iter().any(|skipped| skipped.reason == "there are too many files"));
    let small = DiscoveryLimits { bytes: 10, ..DiscoveryLimits::default() };
    let found = commands_with_limits(&project, &home, small);
    assert_eq!((found.items.len(), found.skipped.len()), (0, 30));
}

#[test]
fn empty_directories_yield_nothing() {
    let fixture = Fixture::new();
    for (cwd, home) in [("project", "home"), ("gone", "gone"), ("home", "home")] {
        let found = commands(&fixture.path(cwd), &fixture.path(home));
        assert_eq!((found.items, found.skipped), (vec![], vec![]));
    }
    let relative = commands("project".as_ref(), "".as_ref());
    assert_eq!(relative.items, []);
    // A home that is the project counts once, as the user's.
    fixture.write("home/.claude/commands/a.md", &text("x"));
    let found = commands(&fixture.path("home"), &fixture.path("home"));
    assert_eq!((found.items.len(), found.items[0].source, found.skipped.len()), (1, DiscoverySource::User, 0));
}
