//! The home as a confined command sees it: no credentials and no histories, read-only toolchains, private caches.

use std::fs;
use std::path::Path;

use pushd::sandbox::StepEnd;
use pushd::sandbox::confinement::Mechanism;

use super::attempts::StartDir;
use super::credentials::CREDENTIALS;
use super::fixture::{Fixture, TOOLCHAIN_FILES};
use super::outside::SECRET;
use crate::support::ordinary_user::also_as_an_ordinary_user;

#[test]
fn no_credential_and_no_history_of_the_home_is_read() {
    also_as_an_ordinary_user(no_credential_and_no_history_of_the_home_is_read);
    assert!(CREDENTIALS.len() >= 185, "{}", CREDENTIALS.len());
    let fixture = Fixture::new();
    for name in CREDENTIALS {
        let path = fixture.path("home").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{SECRET} {name}\n")).unwrap();
    }
    let names: Vec<String> = CREDENTIALS.iter().map(|name| format!("\"$HOME/{name}\"")).collect();
    let command = format!("cat {} 2>/dev/null; find $HOME -type f 2>/dev/null; echo TRIED", names.join(" "));
    let free = pushd::sandbox::RunTree::new(fixture.local());
    let (_, output) = fixture.run_step(&free, fixture.step(StartDir::Work, &command));
    assert_eq!(output.matches(SECRET).count(), CREDENTIALS.len(), "without confinement all of it is read");
    for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| fixture.works(*mechanism)) {
        let tree = fixture.confined_tree(mechanism, fixture.confinement(StartDir::Work));
        let (end, output) = fixture.run_step(&tree, fixture.step(StartDir::Work, &command));
        assert!(output.contains("TRIED"), "{}: {end:?} {output}", mechanism.as_str());
        let read: Vec<&str> = output.lines().filter(|line| line.contains(SECRET)).collect();
        assert_eq!(read, [""; 0], "{}: {} of {}", mechanism.as_str(), read.len(), CREDENTIALS.len());
        // A credential store inside a toolchain appears as an empty file.
        let in_toolchains = [".cargo/", ".config/git/"];
        let seen: Vec<&&str> = CREDENTIALS
            .iter()
            .filter(|name| !in_toolchains.iter().any(|toolchain| name.starts_with(toolchain)))
            .filter(|name| output.lines().any(|line| line.ends_with(&format!("/home/{name}"))))
            .collect();
        assert_eq!(seen, [&""; 0], "{}: names", mechanism.as_str());
    }
}

#[test]
fn toolchains_of_the_home_are_read_and_not_written() {
    also_as_an_ordinary_user(toolchains_of_the_home_are_read_and_not_written);
    let fixture = Fixture::new();
    for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| fixture.works(*mechanism)) {
        let tree = fixture.confined_tree(mechanism, fixture.confinement(StartDir::Work));
        for name in TOOLCHAIN_FILES {
            let command = format!("cat \"$HOME/{name}\"; echo x >> \"$HOME/{name}\"; echo x > \"$HOME/{name}.new\"");
            let (end, output) = fixture.run_step(&tree, fixture.step(StartDir::Work, &command));
            assert!(output.contains(&format!("tool {name}")), "{} {name}: {end:?} {output}", mechanism.as_str());
            let content = fs::read_to_string(fixture.path("home").join(name)).unwrap();
            assert_eq!(content, format!("tool {name}\n"), "{}", mechanism.as_str());
            assert!(!fixture.path("home").join(format!("{name}.new")).exists(), "{} {name}", mechanism.as_str());
        }
    }
}

#[test]
fn a_directory_named_by_the_environment_is_readable_and_a_credential_store_is_not() {
    let fixture = Fixture::new();
    for (name, text) in [
        ("prefix/bin/tool", "opened"),
        ("prefix/lib/library", "opened"),
        ("venv/pyvenv.cfg", "opened"),
        ("work/bin/script", "opened"),
        ("work/private", SECRET),
    ] {
        let path = fixture.path("home").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    let home = fixture.path("home");
    let at = |name: &str| home.join(name).to_str().unwrap().to_owned();
    let path = [at("prefix/bin"), at("work/bin"), at(".ssh"), at(""), at(".push/state"), "/usr/bin".into()].join(":");
    let variable = |name: &str| match name {
        "PATH" => Some(path.clone().into()),
        "VIRTUAL_ENV" => Some(at("venv").into()),
        "JAVA_HOME" => Some(at(".config").into()),
        _ => None,
    };
    let command = "cd $HOME; cat prefix/bin/tool prefix/lib/library venv/pyvenv.cfg work/bin/script; \
                   cat work/private .ssh/id_ed25519 .push/state/token .netrc .config/push/keys.toml; echo TRIED";
    for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| fixture.works(*mechanism)) {
        let tree = fixture.confined_tree(mechanism, fixture.confinement_with(StartDir::Work, &variable));
        let (_, output) = fixture.run_step(&tree, fixture.step(StartDir::Work, command));
        assert_eq!(output.matches("opened").count(), 4, "{}: {output}", mechanism.as_str());
        assert!(output.contains("TRIED") && !output.contains(SECRET), "{}: {output}", mechanism.as_str());
    }
}

#[test]
fn a_path_opened_by_the_owner_is_readable_even_in_a_credential_store() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("home/notes")).unwrap();
    fs::write(fixture.path("home/notes/n"), "opened\n").unwrap();
    fs::write(fixture.path("home/.ssh/config"), "opened\n").unwrap();
    for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| fixture.works(*mechanism)) {
        let mut confinement = fixture.confinement(StartDir::Work);
        confinement.readable =
            ["notes", ".ssh/config", ".push/state"].map(|name| fixture.path("home").join(name)).to_vec();
        confinement.daemon_paths = vec![fixture.path("home/.push")];
        let tree = fixture.confined_tree(mechanism, confinement);
        let command = "cd $HOME; cat notes/n .ssh/config; cat .ssh/id_ed25519 .push/state/token .netrc; \
                       echo x > notes/new; echo x >> .ssh/config; echo TRIED";
        let (_, output) = fixture.run_step(&tree, fixture.step(StartDir::Work, command));
        assert_eq!(output.matches("opened").count(), 2, "{}: {output}", mechanism.as_str());
        assert!(output.contains("TRIED") && !output.contains(SECRET), "{}: {output}", mechanism.as_str());
        assert!(!fixture.path("home/notes/new").exists());
        assert_eq!(fs::read_to_string(fixture.path("home/.ssh/config")).unwrap(), "opened\n");
    }
}

#[test]
fn a_workspace_below_the_home_is_reachable_and_its_siblings_are_not() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("home/src/app/.git")).unwrap();
    fs::create_dir_all(fixture.path("home/src/other")).unwrap();
    fs::write(fixture.path("home/src/app/f"), "mine\n").unwrap();
    fs::write(fixture.path("home/src/other/f"), SECRET).unwrap();
    for mechanism in Mechanism::ALL.into_iter().filter(|mechanism| fixture.works(*mechanism)) {
        let mut confinement = fixture.confinement(StartDir::Work);
        confinement.workspace = fixture.path("home/src/app");
        let mut step =
            fixture.step(StartDir::Work, "pwd; cat f $HOME/src/app/f ../other/f $HOME/.netrc; echo x > new && rm new");
        step.cwd = fixture.path("home/src/app");
        let (end, output) = fixture.run_step(&fixture.confined_tree(mechanism, confinement), step);
        assert_eq!(end.unwrap(), StepEnd::Exited(0), "{}: {output}", mechanism.as_str());
        assert_eq!(output.matches("mine").count(), 2, "{}: {output}", mechanism.as_str());
        assert!(!output.contains(SECRET), "{}: {output}", mechanism.as_str());
    }
}

#[test]
fn cache_writes_are_visible_only_in_their_workspace() {
    also_as_an_ordinary_user(cache_writes_are_visible_only_in_their_workspace);
    let fixture = Fixture::new();
    for mechanism in
        [Mechanism::Namespaces, Mechanism::Bubblewrap].into_iter().filter(|mechanism| fixture.works(*mechanism))
    {
        let run = |at: StartDir, command: &str| {
            let (end, output) =
                fixture.run_step(&fixture.confined_tree(mechanism, fixture.confinement(at)), fixture.step(at, command));
            assert_eq!(end.unwrap(), StepEnd::Exited(0), "{} {command}: {output}", mechanism.as_str());
            output
        };
        let mark = mechanism.as_str();
        let caches = ".cargo/registry .cargo/git .npm .cache/pip .cache/go-build go/pkg";
        run(
            StartDir::Work,
            &format!("for c in {caches}; do mkdir -p $HOME/$c/d && echo {mark} > $HOME/$c/d/f || exit 1; done"),
        );
        let output = run(StartDir::Work, &format!("for c in {caches}; do cat $HOME/$c/d/f || exit 1; done"));
        assert_eq!(output.matches(mark).count(), 6, "{output}");
        run(StartDir::Fresh, &format!("for c in {caches}; do [ ! -e $HOME/$c/d/f ] || exit 1; done"));
        for cache in caches.split(' ') {
            assert!(!fixture.path("home").join(cache).join("d").exists(), "{mark} {cache}");
        }
    }
}

#[test]
fn a_private_cache_starts_with_the_contents_of_the_user_s_cache() {
    let fixture = Fixture::new();
    if !fixture.works(Mechanism::Namespaces) {
        return;
    }
    let layers = fixture.layers(Mechanism::Namespaces);
    if !layers.names.contains(&"overlay") {
        return crate::support::skip::skip("this system has no overlays without privileges");
    }
    let tree = fixture.confined_tree(Mechanism::Namespaces, fixture.confinement(StartDir::Work));
    let command = "cat $HOME/.cargo/registry/cache/crate && echo y > $HOME/.cargo/registry/cache/crate && rm $HOME/.npm/_cacache/index && cat $HOME/.cargo/registry/cache/crate; ls $HOME/.npm/_cacache";
    let (end, output) = fixture.run_step(&tree, fixture.step(StartDir::Work, command));
    assert_eq!(end.unwrap(), StepEnd::Exited(0), "{output}");
    assert_eq!(output, "tool .cargo/registry/cache/crate\ny\n");
    assert_eq!(
        fs::read_to_string(fixture.path("home/.cargo/registry/cache/crate")).unwrap(),
        "tool .cargo/registry/cache/crate\n"
    );
    assert!(fixture.path("home/.npm/_cacache/index").exists());
}

#[test]
fn concurrent_steps_have_separate_caches() {
    let fixture = Fixture::new();
    if !fixture.works(Mechanism::Namespaces) {
        return;
    }
    let tree = fixture.confined_tree(Mechanism::Namespaces, fixture.confinement(StartDir::Work));
    fixture.block_on(async {
        let run = |command: &str| tree.run(fixture.step(StartDir::Work, command), tokio::sync::mpsc::channel(1).0);
        let wait = |name: &str| format!("until [ -e {name} ]; do sleep 0.01; done");
        let first = format!("echo 1 > $HOME/.npm/f && touch a && {}", wait("b"));
        let second = format!("{} && [ ! -e $HOME/.npm/f ] && echo 2 > $HOME/.npm/f; r=$?; touch b; exit $r", wait("a"));
        let (first, second) = (run(&first), run(&second));
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first.unwrap(), second.unwrap()), (StepEnd::Exited(0), StepEnd::Exited(0)));
    });
    assert!(!Path::new(&fixture.path("home/.npm/f")).exists());
}
