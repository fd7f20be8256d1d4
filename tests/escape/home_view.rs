//! The home as a confined command sees it: no credentials and no histories, read-only toolchains, private caches.

use std::fs;
use std::path::Path;

use pushd::sandbox::StepEnd;
use pushd::sandbox::confine::Way;

use super::attempts::Where;
use super::credentials::CREDENTIALS;
use super::ordinary_user::also_as_an_ordinary_user;
use super::outside::SECRET;
use super::stage::{Stage, TOOLCHAIN_FILES};

#[test]
fn no_credential_and_no_history_of_the_home_is_read() {
    also_as_an_ordinary_user("home_view::no_credential_and_no_history_of_the_home_is_read");
    assert!(CREDENTIALS.len() >= 185, "{}", CREDENTIALS.len());
    let stage = Stage::new();
    for name in CREDENTIALS {
        let path = stage.at("home").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{SECRET} {name}\n")).unwrap();
    }
    let names: Vec<String> = CREDENTIALS.iter().map(|name| format!("\"$HOME/{name}\"")).collect();
    let command = format!("cat {} 2>/dev/null; find $HOME -type f 2>/dev/null; echo TRIED", names.join(" "));
    let free = pushd::sandbox::RunTree::new(stage.local());
    let (_, said) = stage.command(&free, stage.step(Where::Work, &command));
    assert_eq!(said.matches(SECRET).count(), CREDENTIALS.len(), "without confinement all of it is read");
    for way in Way::ALL.into_iter().filter(|way| stage.works(*way)) {
        let tree = stage.room(way, stage.confinement(Where::Work));
        let (end, said) = stage.command(&tree, stage.step(Where::Work, &command));
        assert!(said.contains("TRIED"), "{}: {end:?} {said}", way.word());
        let read: Vec<&str> = said.lines().filter(|line| line.contains(SECRET)).collect();
        assert_eq!(read, [""; 0], "{}: {} of {}", way.word(), read.len(), CREDENTIALS.len());
        // A credential store inside a toolchain appears as an empty file.
        let in_toolchains = [".cargo/", ".config/git/"];
        let seen: Vec<&&str> = CREDENTIALS
            .iter()
            .filter(|name| !in_toolchains.iter().any(|toolchain| name.starts_with(toolchain)))
            .filter(|name| said.lines().any(|line| line.ends_with(&format!("/home/{name}"))))
            .collect();
        assert_eq!(seen, [&""; 0], "{}: names", way.word());
    }
}

#[test]
fn toolchains_of_the_home_are_read_and_not_written() {
    also_as_an_ordinary_user("home_view::toolchains_of_the_home_are_read_and_not_written");
    let stage = Stage::new();
    for way in Way::ALL.into_iter().filter(|way| stage.works(*way)) {
        let tree = stage.room(way, stage.confinement(Where::Work));
        for name in TOOLCHAIN_FILES {
            let command =
                format!("cat \"$HOME/{name}\"; echo x >> \"$HOME/{name}\"; echo x > \"$HOME/{name}.new\"");
            let (end, said) = stage.command(&tree, stage.step(Where::Work, &command));
            assert!(said.contains(&format!("tool {name}")), "{} {name}: {end:?} {said}", way.word());
            let content = fs::read_to_string(stage.at("home").join(name)).unwrap();
            assert_eq!(content, format!("tool {name}\n"), "{}", way.word());
            assert!(!stage.at("home").join(format!("{name}.new")).exists(), "{} {name}", way.word());
        }
    }
}

#[test]
fn a_directory_that_the_environment_names_is_opened_and_a_store_is_not() {
    let stage = Stage::new();
    for (name, text) in [
        ("prefix/bin/tool", "opened"),
        ("prefix/lib/library", "opened"),
        ("venv/pyvenv.cfg", "opened"),
        ("work/bin/script", "opened"),
        ("work/private", SECRET),
    ] {
        let path = stage.at("home").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    let home = stage.at("home");
    let at = |name: &str| home.join(name).to_str().unwrap().to_owned();
    let path = [at("prefix/bin"), at("work/bin"), at(".ssh"), at(""), at(".push/state"), "/usr/bin".into()]
        .join(":");
    let variable = |name: &str| match name {
        "PATH" => Some(path.clone().into()),
        "VIRTUAL_ENV" => Some(at("venv").into()),
        "JAVA_HOME" => Some(at(".config").into()),
        _ => None,
    };
    let command = "cd $HOME; cat prefix/bin/tool prefix/lib/library venv/pyvenv.cfg work/bin/script; \
                   cat work/private .ssh/id_ed25519 .push/state/token .netrc .config/push/keys.toml; echo TRIED";
    for way in Way::ALL.into_iter().filter(|way| stage.works(*way)) {
        let tree = stage.room(way, stage.confinement_with(Where::Work, &variable));
        let (_, said) = stage.command(&tree, stage.step(Where::Work, command));
        assert_eq!(said.matches("opened").count(), 4, "{}: {said}", way.word());
        assert!(said.contains("TRIED") && !said.contains(SECRET), "{}: {said}", way.word());
    }
}

#[test]
fn what_the_owner_names_is_readable_also_in_a_store_and_nothing_beside_it() {
    let stage = Stage::new();
    fs::create_dir_all(stage.at("home/notes")).unwrap();
    fs::write(stage.at("home/notes/n"), "opened\n").unwrap();
    fs::write(stage.at("home/.ssh/config"), "opened\n").unwrap();
    for way in Way::ALL.into_iter().filter(|way| stage.works(*way)) {
        let mut confinement = stage.confinement(Where::Work);
        confinement.readable =
            ["notes", ".ssh/config", ".push/state"].map(|name| stage.at("home").join(name)).to_vec();
        confinement.own = vec![stage.at("home/.push")];
        let tree = stage.room(way, confinement);
        let command = "cd $HOME; cat notes/n .ssh/config; cat .ssh/id_ed25519 .push/state/token .netrc; \
                       echo x > notes/new; echo x >> .ssh/config; echo TRIED";
        let (_, said) = stage.command(&tree, stage.step(Where::Work, command));
        assert_eq!(said.matches("opened").count(), 2, "{}: {said}", way.word());
        assert!(said.contains("TRIED") && !said.contains(SECRET), "{}: {said}", way.word());
        assert!(!stage.at("home/notes/new").exists());
        assert_eq!(fs::read_to_string(stage.at("home/.ssh/config")).unwrap(), "opened\n");
    }
}

#[test]
fn a_workspace_below_the_home_is_reached_and_what_lies_beside_it_is_not() {
    let stage = Stage::new();
    fs::create_dir_all(stage.at("home/src/app/.git")).unwrap();
    fs::create_dir_all(stage.at("home/src/other")).unwrap();
    fs::write(stage.at("home/src/app/f"), "mine\n").unwrap();
    fs::write(stage.at("home/src/other/f"), SECRET).unwrap();
    for way in Way::ALL.into_iter().filter(|way| stage.works(*way)) {
        let mut confinement = stage.confinement(Where::Work);
        confinement.workspace = stage.at("home/src/app");
        let mut step = stage
            .step(Where::Work, "pwd; cat f $HOME/src/app/f ../other/f $HOME/.netrc; echo x > new && rm new");
        step.cwd = stage.at("home/src/app");
        let (end, said) = stage.command(&stage.room(way, confinement), step);
        assert_eq!(end.unwrap(), StepEnd::Exited(0), "{}: {said}", way.word());
        assert_eq!(said.matches("mine").count(), 2, "{}: {said}", way.word());
        assert!(!said.contains(SECRET), "{}: {said}", way.word());
    }
}

#[test]
fn what_is_written_to_a_cache_is_seen_in_its_workspace_alone() {
    also_as_an_ordinary_user("home_view::what_is_written_to_a_cache_is_seen_in_its_workspace_alone");
    let stage = Stage::new();
    for way in [Way::Namespaces, Way::Bubblewrap].into_iter().filter(|way| stage.works(*way)) {
        let run = |at: Where, command: &str| {
            let (end, said) = stage.command(&stage.room(way, stage.confinement(at)), stage.step(at, command));
            assert_eq!(end.unwrap(), StepEnd::Exited(0), "{} {command}: {said}", way.word());
            said
        };
        let mark = way.word();
        let caches = ".cargo/registry .cargo/git .npm .cache/pip .cache/go-build go/pkg";
        run(
            Where::Work,
            &format!(
                "for c in {caches}; do mkdir -p $HOME/$c/d && echo {mark} > $HOME/$c/d/f || exit 1; done"
            ),
        );
        let said = run(Where::Work, &format!("for c in {caches}; do cat $HOME/$c/d/f || exit 1; done"));
        assert_eq!(said.matches(mark).count(), 6, "{said}");
        run(Where::Fresh, &format!("for c in {caches}; do [ ! -e $HOME/$c/d/f ] || exit 1; done"));
        for cache in caches.split(' ') {
            assert!(!stage.at("home").join(cache).join("d").exists(), "{mark} {cache}");
        }
    }
}

#[test]
fn a_private_cache_begins_with_what_the_user_has() {
    let stage = Stage::new();
    if !stage.works(Way::Namespaces) {
        return;
    }
    let layers = stage.layers(Way::Namespaces);
    if !layers.names.contains(&"overlay") {
        return super::skip::skip("this system has no overlays without privileges");
    }
    let tree = stage.room(Way::Namespaces, stage.confinement(Where::Work));
    let command = "cat $HOME/.cargo/registry/cache/crate && echo y > $HOME/.cargo/registry/cache/crate && rm $HOME/.npm/_cacache/index && cat $HOME/.cargo/registry/cache/crate; ls $HOME/.npm/_cacache";
    let (end, said) = stage.command(&tree, stage.step(Where::Work, command));
    assert_eq!(end.unwrap(), StepEnd::Exited(0), "{said}");
    assert_eq!(said, "tool .cargo/registry/cache/crate\ny\n");
    assert_eq!(
        fs::read_to_string(stage.at("home/.cargo/registry/cache/crate")).unwrap(),
        "tool .cargo/registry/cache/crate\n"
    );
    assert!(stage.at("home/.npm/_cacache/index").exists());
}

#[test]
fn steps_beside_each_other_have_caches_of_their_own() {
    let stage = Stage::new();
    if !stage.works(Way::Namespaces) {
        return;
    }
    let tree = stage.room(Way::Namespaces, stage.confinement(Where::Work));
    stage.wait(async {
        let run = |command: &str| tree.run(stage.step(Where::Work, command), tokio::sync::mpsc::channel(1).0);
        let wait = |name: &str| format!("until [ -e {name} ]; do sleep 0.01; done");
        let first = format!("echo 1 > $HOME/.npm/f && touch a && {}", wait("b"));
        let second = format!(
            "{} && [ ! -e $HOME/.npm/f ] && echo 2 > $HOME/.npm/f; r=$?; touch b; exit $r",
            wait("a")
        );
        let (first, second) = (run(&first), run(&second));
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first.unwrap(), second.unwrap()), (StepEnd::Exited(0), StepEnd::Exited(0)));
    });
    assert!(!Path::new(&stage.at("home/.npm/f")).exists());
}
