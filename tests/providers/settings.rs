//! Settings, keys and base URLs: where they come from, and the errors when something is missing.

use std::collections::BTreeMap;
use std::fs;

use pushd::provider::dialect::Dialect;
use pushd::provider::error::Kind;
use pushd::provider::keys::Key;
use pushd::provider::registry::{Environment, Models, RunningOllama, Settings, key_variable, place_variable};

use crate::model::{ModelServer, Nobody, Reply, Speaks};
use crate::world::{KEY, MODEL, World, limits, no_keyring, question, read, said, speaks};

pub(crate) async fn the_models_of_a_server_are_listed(dialect: Dialect) {
    let world = World::new(dialect, []);
    world.server.has_models(&["small", "large"]);
    let list = async |base_url, key, environment| {
        world.models.list(dialect.name(), base_url, key, environment).await.unwrap()
    };
    assert_eq!(list(None, None, &world.environment).await, ["small", "large"]);
    assert_eq!(world.seen()[0].method, "GET");
    // A given base URL and key override the configured ones.
    let place = world.server.url();
    let key = Key::new("another-key-0123456789");
    assert_eq!(list(Some(&*place), key.as_ref(), &Environment::new()).await, ["small", "large"]);
    let sent = &world.seen()[1].headers;
    let header = if dialect == Dialect::Anthropic { &sent["x-api-key"] } else { &sent["authorization"] };
    assert!(header.ends_with("another-key-0123456789"), "{header}");
}

pub(crate) async fn without_a_model_the_choice_is_told(dialect: Dialect) {
    let world = World::new(dialect, []);
    world.server.has_models(&["small", "large"]);
    for none in [None, Some("")] {
        let error = world.models.resolve(dialect.name(), none, &world.environment).await.unwrap_err();
        assert_eq!((error.kind, error.retryable), (Kind::NotConfigured, false));
        assert!(error.message.contains("--model"), "{error}");
        assert!(error.message.ends_with("it has small, large"), "{error}");
    }
}

pub(crate) async fn the_model_of_the_settings_is_the_default(dialect: Dialect) {
    let world = World::set(dialect, limits(), |settings| settings.model = Some("usual".to_owned()), []);
    let resolve = async |model| {
        let ready = world.models.resolve(dialect.name(), model, &world.environment).await.unwrap();
        ready.model().to_owned()
    };
    assert_eq!(resolve(None).await, "usual");
    assert_eq!(resolve(Some("other")).await, "other");
    assert_eq!(world.seen().len(), 0, "nobody is asked for what is known");
}

pub(crate) async fn the_environment_names_the_place_first(dialect: Dialect) {
    let mut world = World::new(dialect, []);
    let other = ModelServer::start();
    other.script([Reply::says("here")]);
    world.environment.insert(place_variable(dialect.name()), other.base_url(speaks(dialect)));
    assert_eq!(world.ask().await.whole(), [said("here")]);
    assert_eq!((world.seen().len(), other.seen().len()), (0, 1));
    world.environment.insert(place_variable(dialect.name()), " ".to_owned());
    assert_eq!(world.ready().await.base_url(), world.server.base_url(speaks(dialect)));
}

pub(crate) async fn a_place_that_is_none_is_told(dialect: Dialect) {
    let world = World::set(dialect, limits(), |settings| settings.base_url = Some("ftp://x".to_owned()), []);
    let error = world.models.resolve(dialect.name(), Some(MODEL), &world.environment).await.unwrap_err();
    assert_eq!(error.kind, Kind::NotConfigured);
    let name = dialect.name();
    assert_eq!(
        error.message,
        format!("the base URL of {name} cannot be used: it must begin with http:// or https://")
    );
}

pub(crate) async fn a_missing_key_is_told_with_what_to_set(dialect: Dialect) {
    let folder = tempfile::tempdir().unwrap();
    let models = Models::new(BTreeMap::new(), folder.path().to_owned(), no_keyring(&folder), limits());
    let ready = models.resolve(dialect.name(), Some(MODEL), &Environment::new()).await;
    match dialect {
        Dialect::Ollama => assert_eq!(ready.unwrap().base_url(), "http://127.0.0.1:11434"),
        Dialect::OpenAi | Dialect::Anthropic => {
            let error = ready.unwrap_err();
            assert_eq!((error.kind, error.retryable), (Kind::NotConfigured, false));
            let name = dialect.name();
            let expected = format!(
                "{name} has no key: set {} in your shell, or store it with `push config key {name}`",
                key_variable(name)
            );
            assert_eq!(error.message, expected);
        }
    }
}

pub(crate) async fn a_key_is_found_in_the_file(dialect: Dialect) {
    let mut world = World::new(dialect, [Reply::says("Hello!")]);
    world.environment.clear();
    world.models.keys().store_in_file(dialect.name(), &Key::new("from-file").unwrap()).unwrap();
    world.ask().await.whole();
    let headers = &world.seen()[0].headers;
    let sent = headers.get("x-api-key").or_else(|| headers.get("authorization")).unwrap();
    assert_eq!(sent.trim_start_matches("Bearer "), "from-file");
}

#[cfg(unix)]
pub(crate) async fn a_file_of_keys_that_others_can_read_is_refused(dialect: Dialect) {
    use std::os::unix::fs::PermissionsExt;
    let mut world = World::new(dialect, []);
    world.environment.clear();
    world.models.keys().store_in_file(dialect.name(), &Key::new("from-file").unwrap()).unwrap();
    fs::set_permissions(world.folder.path().join("keys.toml"), fs::Permissions::from_mode(0o644)).unwrap();
    let error = world.models.resolve(dialect.name(), Some(MODEL), &world.environment).await.unwrap_err();
    assert_eq!(error.kind, Kind::NotConfigured);
    assert!(error.message.contains("can be read or changed by others"), "{error}");
}

#[cfg(not(unix))]
pub(crate) async fn a_file_of_keys_that_others_can_read_is_refused(_dialect: Dialect) {}

pub(crate) async fn a_header_that_cannot_be_sent_is_told(dialect: Dialect) {
    let headers = vec![("X Team".to_owned(), "secret-value".to_owned())];
    let world = World::set(dialect, limits(), |settings| settings.headers = headers, []);
    let error = world.models.resolve(dialect.name(), Some(MODEL), &world.environment).await.unwrap_err();
    assert_eq!(error.kind, Kind::NotConfigured);
    assert!(error.message.contains("\"X Team\"") && !error.message.contains("secret-value"), "{error}");
}

pub(crate) async fn settings_do_not_show_what_is_secret(dialect: Dialect) {
    let headers = vec![("X-Token".to_owned(), "secret-value".to_owned())];
    let world = World::set(dialect, limits(), |settings| settings.headers = headers, []);
    let shown = format!("{:?} {:?}", world.models, world.ready().await);
    assert!(!shown.contains("secret-value") && !shown.contains(KEY), "{shown}");
}

pub(crate) async fn a_running_ollama_is_found() {
    let mut world = World::new(Dialect::Ollama, []);
    world.server.has_models(&["qwen3", "gpt-oss"]);
    let found = world.models.find_ollama(&world.environment).await;
    let models = vec!["qwen3".to_owned(), "gpt-oss".to_owned()];
    assert_eq!(
        found,
        Some(RunningOllama { base_url: world.server.url(), version: "0.12.0".to_owned(), models })
    );
    let nobody = Nobody::new();
    world.environment.insert("OLLAMA_HOST".to_owned(), nobody.address().to_string());
    assert_eq!(world.models.find_ollama(&world.environment).await, None);
}

pub(crate) async fn providers_of_other_names_have_variables_of_their_own() {
    let server = ModelServer::start();
    server.script([Reply::says("here")]);
    let folder = tempfile::tempdir().unwrap();
    let settings = BTreeMap::from([("my-box".to_owned(), Settings::new(Dialect::OpenAi))]);
    let models = Models::new(settings, folder.path().to_owned(), no_keyring(&folder), limits());
    let environment = BTreeMap::from([
        ("MY_BOX_BASE_URL".to_owned(), server.base_url(Speaks::OpenAi)),
        ("MY_BOX_API_KEY".to_owned(), "box-key".to_owned()),
        ("OPENAI_API_KEY".to_owned(), "not-for-the-box".to_owned()),
    ]);
    let ready = models.resolve("my-box", Some(MODEL), &environment).await.unwrap();
    assert_eq!(read(ready.ask(&question())).await.whole(), [said("here")]);
    assert_eq!(server.seen()[0].headers["authorization"], "Bearer box-key");
    let error = models.resolve("nobody", Some(MODEL), &environment).await.unwrap_err();
    let known = "anthropic, my-box, ollama, openai";
    assert_eq!(error.message, format!("there is no provider \"nobody\"; known are {known}"));
}
