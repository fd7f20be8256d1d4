//! Commands and skills on a real disk: what is found, its source, and what is skipped.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use pushd::discovery::{Bounds, Found, Skipped, Source, commands, commands_within, skills, skills_within};
use tempfile::TempDir;

struct World {
    dir: TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["home", "project", "outside"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        Self { dir }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn commands(&self) -> Found<pushd::discovery::Command> {
        commands(&self.at("project"), &self.at("home"))
    }

    fn skills(&self) -> Found<pushd::discovery::Skill> {
        skills(&self.at("project"), &self.at("home"))
    }

    /// The skipped files, relative to the fixture, with the reason.
    fn left_out(&self, skipped: &[Skipped]) -> Vec<(String, String)> {
        let base = format!("{}/", self.dir.path().display());
        let mut all: Vec<_> = skipped
            .iter()
            .map(|skipped| {
                (skipped.path.display().to_string().replace(&base, ""), skipped.reason.replace(&base, ""))
            })
            .collect();
        all.sort();
        all
    }
}

fn text(description: &str) -> String {
    format!("---\ndescription: {description}\n---\nDo it.\n")
}

#[test]
fn commands_are_found_in_every_place_and_the_project_s_come_first() {
    let world = World::new();
    let places = [
        ("project/.pi/prompts", "a", Source::Project),
        ("project/.pi/commands", "b", Source::Project),
        ("project/.claude/commands", "c", Source::Project),
        ("home/.pi/agent/prompts", "d", Source::User),
        ("home/.pi/agent/commands", "e", Source::User),
        ("home/.claude/commands", "f", Source::User),
    ];
    for (place, name, _) in places {
        world.put(&format!("{place}/{name}.md"), &text(place));
        world.put(&format!("{place}/same.md"), &text(place));
    }
    world.put("project/.pi/prompts/notes.txt", "no command");
    world.put("project/.pi/prompts/.hidden.md", "no command");
    let Found { found, skipped } = world.commands();
    let seen: Vec<_> = found
        .iter()
        .map(|command| (command.name.as_str(), command.description.as_deref().unwrap(), command.source))
        .collect();
    let mut expected: Vec<_> = places.iter().map(|(place, name, source)| (*name, *place, *source)).collect();
    expected.push(("same", "project/.pi/prompts", Source::Project));
    assert_eq!(seen, expected);
    assert_eq!(found[0].path, world.at("project/.pi/prompts/a.md"));
    let skipped = world.left_out(&skipped);
    assert_eq!(skipped.len(), 5);
    assert!(
        skipped.iter().all(|(_, why)| why == "project/.pi/prompts/same.md has the same name and comes first")
    );
}

#[test]
fn a_command_is_named_by_its_directories_and_described_by_its_first_words() {
    let world = World::new();
    world.put("project/.claude/commands/git/fix/commit.md", "\n# Commit it\nNow.\n");
    world.put("project/.claude/commands/git/push.md", "---\nname: x\n---\n");
    world.put("project/.claude/commands/a/b/c/too-deep.md", "deep");
    world.put("project/.claude/commands/two words.md", "odd");
    let Found { found, skipped } = world.commands();
    let seen: Vec<_> =
        found.iter().map(|command| (command.name.as_str(), command.description.as_deref())).collect();
    assert_eq!(seen, [("git:fix:commit", Some("Commit it")), ("git:push", None)]);
    let why = "its name is empty, too long, or has spaces in it".to_owned();
    assert_eq!(world.left_out(&skipped), [("project/.claude/commands/two words.md".to_owned(), why)]);
}

#[test]
fn skills_are_found_in_every_place() {
    let world = World::new();
    let places = [
        ("project/.pi/skills", "a", Source::Project),
        ("project/.agents/skills", "b", Source::Project),
        ("project/.claude/skills", "c", Source::Project),
        ("home/.pi/agent/skills", "d", Source::User),
        ("home/.agents/skills", "e", Source::User),
        ("home/.claude/skills", "f", Source::User),
    ];
    for (place, name, _) in places {
        world.put(&format!("{place}/{name}/SKILL.md"), &text(place));
        world.put(&format!("{place}/{name}/reference/SKILL.md"), &text("part of a skill"));
        world.put(&format!("{place}/README.md"), "not a skill");
    }
    world.put("home/.claude/skills/group/inner/SKILL.md", "---\nname: named\ndescription: 'x'\n---\n");
    let Found { found, skipped } = world.skills();
    let seen: Vec<_> =
        found.iter().map(|skill| (skill.name.as_str(), skill.description.as_str(), skill.source)).collect();
    let mut expected: Vec<_> = places.iter().map(|(place, name, source)| (*name, *place, *source)).collect();
    expected.push(("named", "x", Source::User));
    assert_eq!(seen, expected);
    assert_eq!(found[1].path, world.at("project/.agents/skills/b/SKILL.md"));
    assert_eq!(skipped, []);
}

#[test]
fn what_cannot_be_used_is_left_out_with_its_reason() {
    let world = World::new();
    let skill = |name: &str| format!("home/.pi/agent/skills/{name}/SKILL.md");
    world.put(&skill("good"), &text("fine"));
    world.put(&skill("bare"), "# No head\n");
    world.put(&skill("large"), &"x".repeat(300 << 10));
    fs::create_dir_all(world.at(&skill("bytes")).parent().unwrap()).unwrap();
    fs::write(world.at(&skill("bytes")), b"---\ndescription: \xff\n---\n").unwrap();
    fs::create_dir_all(world.at(&skill("folder"))).unwrap();
    fs::create_dir_all(world.at(&skill("pipe")).parent().unwrap()).unwrap();
    mkfifo(&world.at(&skill("pipe")), Mode::S_IRWXU).unwrap();
    mkfifo(&world.at("home/.pi/agent/skills/bare-pipe"), Mode::S_IRWXU).unwrap();
    let Found { found, skipped } = world.skills();
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
    assert_eq!(world.left_out(&skipped), expected);
}

#[test]
fn no_link_leads_out_of_the_project_or_the_home() {
    let world = World::new();
    world.put("outside/secret.md", &text("secret"));
    world.put("outside/skill/SKILL.md", &text("secret"));
    world.put("project/shared/inside.md", &text("inside"));
    world.put("project/shared/skill/SKILL.md", &text("inside"));
    fs::create_dir_all(world.at("project/.pi/prompts")).unwrap();
    fs::create_dir_all(world.at("project/.claude")).unwrap();
    for (target, link) in [
        ("outside/secret.md", "project/.pi/prompts/leak.md"),
        ("outside", "project/.pi/prompts/out"),
        ("outside", "project/.pi/skills"),
        ("project", "project/.pi/prompts/loop"),
    ] {
        symlink(world.at(target), world.at(link)).unwrap();
    }
    symlink("../../../outside/secret.md", world.at("project/.pi/prompts/up.md")).unwrap();
    symlink("../../shared/inside.md", world.at("project/.pi/prompts/fine.md")).unwrap();
    symlink("../shared", world.at("project/.claude/skills")).unwrap();
    let Found { found, skipped } = world.commands();
    let names: Vec<_> = found.iter().map(|command| command.name.as_str()).collect();
    // Links that stay inside are followed where the system can guarantee that they do.
    let inside: &[&str] = if cfg!(target_os = "linux") { &["fine"] } else { &[] };
    assert_eq!(names, inside);
    assert!(skipped.iter().any(|skipped| skipped.path.ends_with("leak.md")
        && skipped.reason.ends_with("leads outside of the workspace")));
    assert!(skipped.iter().any(|skipped| skipped.path.ends_with("up.md")));
    let skills = world.skills();
    let names: Vec<_> = skills.found.iter().map(|skill| skill.description.as_str()).collect();
    assert_eq!(names, inside.iter().map(|_| "inside").collect::<Vec<_>>());
}

#[test]
fn there_are_never_too_many() {
    let world = World::new();
    for count in 0..30 {
        world.put(&format!("project/.pi/prompts/{count:02}.md"), &text("x"));
        world.put(&format!("project/.pi/skills/{count:02}/SKILL.md"), &text("x"));
    }
    let (project, home) = (world.at("project"), world.at("home"));
    let few = Bounds { files: 10, ..Bounds::default() };
    let found = commands_within(&project, &home, few);
    assert_eq!((found.found.len(), found.found[9].name.as_str()), (10, "09"));
    assert_eq!(found.skipped.len(), 20);
    assert_eq!(skills_within(&project, &home, few).found.len(), 10);
    let few = Bounds { names: 10, ..Bounds::default() };
    let found = commands_within(&project, &home, few);
    assert_eq!(found.found.len(), 10);
    assert!(found.skipped.iter().any(|skipped| skipped.reason == "there are too many files"));
    let small = Bounds { bytes: 10, ..Bounds::default() };
    let found = commands_within(&project, &home, small);
    assert_eq!((found.found.len(), found.skipped.len()), (0, 30));
}

#[test]
fn nothing_is_found_where_nothing_is() {
    let world = World::new();
    for (cwd, home) in [("project", "home"), ("gone", "gone"), ("home", "home")] {
        let found = commands(&world.at(cwd), &world.at(home));
        assert_eq!((found.found, found.skipped), (vec![], vec![]));
    }
    let relative = commands("project".as_ref(), "".as_ref());
    assert_eq!(relative.found, []);
    // A home that is the project counts once, as the user's.
    world.put("home/.claude/commands/a.md", &text("x"));
    let found = commands(&world.at("home"), &world.at("home"));
    assert_eq!((found.found.len(), found.found[0].source, found.skipped.len()), (1, Source::User, 0));
}
