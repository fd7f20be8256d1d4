//! Settings, keys and base URLs: where they come from, and the errors when something is missing.

use std::collections::BTreeMap;
use std::fs;

use pushd::provider::RunningOllama;
use pushd::provider::error::ModelErrorKind;
use pushd::provider::keys::Key;
use pushd::provider::registry::{Environment, ModelRegistry, Settings, base_url_variable, key_variable};

use crate::providers::fixture::{
    Fixture, KEY, MODEL, built_in, limits, no_keyring, read_turn, simple_request, text_delta,
};
use crate::support::model::{ModelServer, Reply, ServerDialect, UnusedPort};

pub(crate) async fn the_models_of_a_server_are_listed(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, []);
    fixture.server.has_models(&["small", "large"]);
    let list = async |base_url, key, environment| {
        fixture.models.list_models(dialect.name(), base_url, key, environment).await.unwrap()
    };
    assert_eq!(list(None, None, &fixture.environment).await, ["small", "large"]);
    assert_eq!(fixture.seen()[0].method, "GET");
    // A given base URL and key override the configured ones.
    let place = fixture.server.url();
    let key = Key::new("another-key-0123456789");
    assert_eq!(list(Some(&*place), key.as_ref(), &Environment::new()).await, ["small", "large"]);
    let sent = &fixture.seen()[1].headers;
    let header = if dialect == ServerDialect::Anthropic { &sent["x-api-key"] } else { &sent["authorization"] };
    assert!(header.ends_with("another-key-0123456789"), "{header}");
}

pub(crate) async fn without_a_model_the_choice_is_reported(dialect: ServerDialect) {
    let fixture = Fixture::new(dialect, []);
    fixture.server.has_models(&["small", "large"]);
    for none in [None, Some("")] {
        let error = fixture.models.resolve(dialect.name(), none, &fixture.environment).await.unwrap_err();
        assert_eq!((error.kind, error.retryable), (ModelErrorKind::NotConfigured, false));
        assert!(error.message.contains("--model"), "{error}");
        assert!(error.message.ends_with("available: small, large"), "{error}");
    }
}

pub(crate) async fn the_model_of_the_settings_is_the_default(dialect: ServerDialect) {
    let fixture = Fixture::with_settings(dialect, limits(), |settings| settings.model = Some("usual".to_owned()), []);
    let resolve = async |model| {
        let ready = fixture.models.resolve(dialect.name(), model, &fixture.environment).await.unwrap();
        ready.model().to_owned()
    };
    assert_eq!(resolve(None).await, "usual");
    assert_eq!(resolve(Some("other")).await, "other");
    assert_eq!(fixture.seen().len(), 0, "nobody is asked for what is known");
}

pub(crate) async fn the_environment_overrides_the_base_url(dialect: ServerDialect) {
    let mut fixture = Fixture::new(dialect, []);
    let other = ModelServer::start();
    other.script([Reply::says("here")]);
    fixture.environment.insert(base_url_variable(dialect.name()), other.base_url(dialect));
    assert_eq!(fixture.send_simple().await.completed(), [text_delta("here")]);
    assert_eq!((fixture.seen().len(), other.seen().len()), (0, 1));
    fixture.environment.insert(base_url_variable(dialect.name()), " ".to_owned());
    assert_eq!(fixture.ready().await.base_url(), fixture.server.base_url(dialect));
}

pub(crate) async fn an_invalid_base_url_is_reported(dialect: ServerDialect) {
    let fixture =
        Fixture::with_settings(dialect, limits(), |settings| settings.base_url = Some("ftp://x".to_owned()), []);
    let error = fixture.models.resolve(dialect.name(), Some(MODEL), &fixture.environment).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::NotConfigured);
    let name = dialect.name();
    assert_eq!(error.message, format!("the base URL of {name} cannot be used: it must begin with http:// or https://"));
}

pub(crate) async fn a_missing_key_is_reported_with_what_to_set(dialect: ServerDialect) {
    let folder = tempfile::tempdir().unwrap();
    let models = ModelRegistry::new(BTreeMap::new(), folder.path().to_owned(), no_keyring(&folder), limits());
    let ready = models.resolve(dialect.name(), Some(MODEL), &Environment::new()).await;
    match dialect {
        ServerDialect::Ollama => assert_eq!(ready.unwrap().base_url(), "http://127.0.0.1:11434"),
        ServerDialect::OpenAi | ServerDialect::Anthropic => {
            let error = ready.unwrap_err();
            assert_eq!((error.kind, error.retryable), (ModelErrorKind::NotConfigured, false));
            let name = dialect.name();
            let expected = format!(
                "{name} has no key: set {} in your shell, or store it with `push config key {name}`",
                key_variable(name)
            );
            assert_eq!(error.message, expected);
        }
    }
}

pub(crate) async fn a_key_is_found_in_the_file(dialect: ServerDialect) {
    let mut fixture = Fixture::new(dialect, [Reply::says("Hello!")]);
    fixture.environment.clear();
    fixture.models.keys().store_in_file(dialect.name(), &Key::new("from-file").unwrap()).unwrap();
    fixture.send_simple().await.completed();
    let headers = &fixture.seen()[0].headers;
    let sent = headers.get("x-api-key").or_else(|| headers.get("authorization")).unwrap();
    assert_eq!(sent.trim_start_matches("Bearer "), "from-file");
}

#[cfg(unix)]
pub(crate) async fn a_file_of_keys_that_others_can_read_is_refused(dialect: ServerDialect) {
    use std::os::unix::fs::PermissionsExt;
    let mut fixture = Fixture::new(dialect, []);
    fixture.environment.clear();
    fixture.models.keys().store_in_file(dialect.name(), &Key::new("from-file").unwrap()).unwrap();
    fs::set_permissions(fixture.folder.path().join("keys.toml"), fs::Permissions::from_mode(0o644)).unwrap();
    let error = fixture.models.resolve(dialect.name(), Some(MODEL), &fixture.environment).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::NotConfigured);
    assert!(error.message.contains("can be read or changed by other users"), "{error}");
}

#[cfg(not(unix))]
pub(crate) async fn a_file_of_keys_that_others_can_read_is_refused(_dialect: ServerDialect) {}

pub(crate) async fn an_invalid_header_is_reported(dialect: ServerDialect) {
    let headers = vec![("X Team".to_owned(), "secret-value".to_owned())];
    let fixture = Fixture::with_settings(dialect, limits(), |settings| settings.headers = headers, []);
    let error = fixture.models.resolve(dialect.name(), Some(MODEL), &fixture.environment).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::NotConfigured);
    assert!(error.message.contains("\"X Team\"") && !error.message.contains("secret-value"), "{error}");
}

pub(crate) async fn settings_do_not_show_secrets(dialect: ServerDialect) {
    let headers = vec![("X-Token".to_owned(), "secret-value".to_owned())];
    let fixture = Fixture::with_settings(dialect, limits(), |settings| settings.headers = headers, []);
    let shown = format!("{:?} {:?}", fixture.models, fixture.ready().await);
    assert!(!shown.contains("secret-value") && !shown.contains(KEY), "{shown}");
}

pub(crate) async fn a_running_ollama_is_found() {
    let mut fixture = Fixture::new(ServerDialect::Ollama, []);
    fixture.server.has_models(&["qwen3", "gpt-oss"]);
    let found = fixture.models.detect_ollama(&fixture.environment).await;
    let models = vec!["qwen3".to_owned(), "gpt-oss".to_owned()];
    assert_eq!(found, Some(RunningOllama { base_url: fixture.server.url(), version: "0.12.0".to_owned(), models }));
    let nobody = UnusedPort::new();
    fixture.environment.insert("OLLAMA_HOST".to_owned(), nobody.address().to_string());
    assert_eq!(fixture.models.detect_ollama(&fixture.environment).await, None);
}

pub(crate) async fn custom_providers_have_their_own_variables() {
    let server = ModelServer::start();
    server.script([Reply::says("here")]);
    let folder = tempfile::tempdir().unwrap();
    let settings = BTreeMap::from([("my-box".to_owned(), Settings::new(built_in(ServerDialect::OpenAi)))]);
    let models = ModelRegistry::new(settings, folder.path().to_owned(), no_keyring(&folder), limits());
    let environment = BTreeMap::from([
        ("MY_BOX_BASE_URL".to_owned(), server.base_url(ServerDialect::OpenAi)),
        ("MY_BOX_API_KEY".to_owned(), "box-key".to_owned()),
        ("OPENAI_API_KEY".to_owned(), "not-for-the-box".to_owned()),
    ]);
    let ready = models.resolve("my-box", Some(MODEL), &environment).await.unwrap();
    assert_eq!(read_turn(ready.start_turn(&simple_request())).await.completed(), [text_delta("here")]);
    assert_eq!(server.seen()[0].headers["authorization"], "Bearer box-key");
    let error = models.resolve("nobody", Some(MODEL), &environment).await.unwrap_err();
    let known = "anthropic, my-box, ollama, openai";
    assert_eq!(error.message, format!("there is no provider \"nobody\"; known are {known}"));
}
