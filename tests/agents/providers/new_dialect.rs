//! A dialect that the product does not have: one implementation, and one line that adds it to the list.
//!
//! Its server sends lines: `say TEXT`, then `end INPUT OUTPUT` with the tokens of the turn.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc;

use hyper::header::HeaderName;
use pushd::config::file;
use pushd::config::settings::ProviderKind;
use pushd::provider::dialect::{
    BUILT_IN, Dialect, Dialects, EncodedTurn, ResponseDecoder, ServerContext, SetupText, WindowQuery, kinds,
};
use pushd::provider::endpoint::Endpoint;
use pushd::provider::error::{ModelError, ModelErrorKind};
use pushd::provider::keys::KeyStore;
use pushd::provider::model::{Delta, Entry, Request, StopReason, TurnEnd, Usage};
use pushd::provider::registry::{Environment, ModelRegistry};
use serde_json::json;

use crate::providers::fixture::{limits, no_keyring, read_turn, simple_request, text_delta};

/// The built-in dialects and this one.
pub(crate) fn dialects() -> Dialects {
    let all: Vec<&'static dyn Dialect> = BUILT_IN.iter().copied().chain([&PlainDialect as &dyn Dialect]).collect();
    all.leak()
}

#[derive(Debug)]
struct PlainDialect;

impl Dialect for PlainDialect {
    fn kind(&self) -> ProviderKind {
        ProviderKind { name: "plain", base_url_variable: Some("PLAIN_SERVER"), default_context_window: 9_000 }
    }

    fn setup(&self) -> SetupText {
        SetupText { description: "plain lines", base_url_question: None }
    }

    fn default_base_url(&self) -> &'static str {
        "http://127.0.0.1:1"
    }

    fn authorization(&self, key: &str) -> (HeaderName, String) {
        (HeaderName::from_static("x-plain-key"), key.to_owned())
    }

    fn encode(&self, request: &Request, _server: &ServerContext<'_>) -> EncodedTurn {
        let requested = request.entries.iter().rev().find_map(|entry| match entry {
            Entry::User { text, .. } => Some(text.as_str()),
            Entry::Assistant { .. } | Entry::Result { .. } => None,
        });
        EncodedTurn {
            path: "/turn",
            body: json!({ "model": request.model, "ask": requested }),
            decoder: |_, _| Box::new(PlainDecoder::default()),
        }
    }

    fn models_path(&self) -> &'static str {
        "/list"
    }

    fn parse_models(&self, body: &[u8]) -> Option<Vec<String>> {
        Some(std::str::from_utf8(body).ok()?.lines().map(str::to_owned).collect())
    }

    fn window_queries(&self, endpoint: &Endpoint, _model: &str) -> Vec<WindowQuery> {
        let parse = |body: &[u8], _: &str| std::str::from_utf8(body).ok()?.trim().parse().ok();
        vec![WindowQuery { url: format!("{}/window", endpoint.base_url), body: None, parse }]
    }
}

#[derive(Debug, Default)]
struct PlainDecoder {
    rest: Vec<u8>,
    usage: Option<Usage>,
}

impl ResponseDecoder for PlainDecoder {
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<Delta>) -> Result<(), ModelError> {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let words: Vec<&str> = line.trim_end().split(' ').collect();
            match words.as_slice() {
                ["say", text @ ..] => out.push(Delta::Text(text.join(" "))),
                ["end", input, output] => {
                    let (input, output) = (input.parse().unwrap(), output.parse().unwrap());
                    self.usage = Some(Usage { input, output, ..Usage::default() });
                }
                _ => return Err(ModelError::new(ModelErrorKind::InvalidResponse, "an unknown line")),
            }
        }
        Ok(())
    }

    fn finish(&mut self, _out: &mut Vec<Delta>) -> Result<(), ModelError> {
        let incomplete = || ModelError::new(ModelErrorKind::Interrupted, "no end");
        self.usage.map(|_| ()).ok_or_else(incomplete)
    }

    fn is_done(&self) -> bool {
        self.usage.is_some()
    }

    fn end(&self) -> TurnEnd {
        TurnEnd { stop: StopReason::Done, usage: self.usage.unwrap_or_default(), provider_state: None }
    }
}

/// Starts a server of the dialect; returns its URL and the requests that it receives, as text.
pub(crate) fn serve() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (seen, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Some(request) = read_request(&stream) else { continue };
            let answer = match request.split(' ').nth(1) {
                Some("/turn") => "say Hello,\nsay  world\nend 3 5\n",
                Some("/list") => "one\ntwo\n",
                Some("/window") => "7000\n",
                _ => "",
            };
            // Before the answer, after which the test looks at the requests. Nobody reads them after the test has ended.
            if seen.send(request).is_err() {
                return;
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len());
            (&stream).write_all((head + answer).as_bytes()).unwrap();
        }
    });
    (url, requests)
}

fn read_request(stream: &std::net::TcpStream) -> Option<String> {
    let mut lines = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    lines.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8_lossy(&body))
}

#[tokio::test]
async fn it_is_configured_authorized_asked_and_understood() {
    let (url, requests) = serve();
    let text = format!("provider = 'mine'\n[providers.mine]\nkind = 'plain'\nbase_url = '{url}'\nmodel = 'one'\n");
    let settings = file::parse(&text, Path::new("c.toml"), &kinds(dialects())).unwrap().settings;
    let folder = tempfile::tempdir().unwrap();
    let keys = KeyStore::new(folder.path().to_owned(), no_keyring(&folder));
    let models = ModelRegistry::from_config(dialects(), &settings.providers, keys, limits());
    let environment = Environment::from([("MINE_API_KEY".to_owned(), "k1".to_owned())]);
    assert_eq!(models.list_models("mine", None, None, &environment).await.unwrap(), ["one", "two"]);
    let model = models.resolve("mine", None, &environment).await.unwrap();
    assert_eq!(model.window(), 9_000, "before the server is asked");
    model.look_up_window().await;
    assert_eq!(model.window(), 7_000);
    let turn = read_turn(model.start_turn(&simple_request())).await;
    assert_eq!((turn.end.usage.input, turn.end.usage.output), (3, 5));
    assert_eq!(turn.completed(), [text_delta("Hello, world")]);
    let seen: Vec<String> = requests.try_iter().collect();
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert!(seen.iter().all(|request| request.contains("x-plain-key: k1\r\n")), "{seen:?}");
    assert!(seen[2].starts_with("POST /turn ") && seen[2].contains(r#""ask":"Hello?""#), "{seen:?}");
}

#[tokio::test]
async fn its_provider_is_built_in_with_its_own_variable() {
    let (url, _requests) = serve();
    let folder = tempfile::tempdir().unwrap();
    let keys = KeyStore::new(folder.path().to_owned(), no_keyring(&folder));
    let models = ModelRegistry::from_config(dialects(), &Default::default(), keys, limits());
    let environment = Environment::from([("PLAIN_SERVER".to_owned(), url)]);
    assert_eq!(models.list_models("plain", None, None, &environment).await.unwrap(), ["one", "two"]);
}

/// A daemon in this process, whose list of dialects has one more than the product's.
#[cfg(unix)]
#[test]
fn a_run_of_the_daemon_uses_it() {
    use crate::support::daemon::Client;

    let (url, _requests) = serve();
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".push");
    std::fs::create_dir(&folder).unwrap();
    let variable = |name: &str| match name {
        "HOME" => Some(home.path().as_os_str().to_owned()),
        "PUSH_CONFIG" => Some(folder.join("config.toml").into_os_string()),
        _ => None,
    };
    let paths = pushd::config::paths::Paths::from_environment(&variable).unwrap();
    std::fs::write(
        &paths.config,
        format!("provider = 'plain'\nmodel = 'one'\n[providers.plain]\nbase_url = '{url}'\n"),
    )
    .unwrap();
    let socket = paths.socket.clone();
    let config = pushd::runtime::Config {
        paths,
        limits: pushd::config::limits::Limits::default(),
        homes: vec![home.path().to_owned()],
        toolchains: Vec::new(),
        listeners: Vec::new(),
        protocols: pushd::runtime::protocols::BUILT_IN,
        tools: pushd::tools::ToolSet::builtin(),
        dialects: dialects(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let daemon = runtime.spawn(pushd::runtime::run(config, move || ready.send(()).unwrap()));
    is_ready.recv_timeout(std::time::Duration::from_secs(60)).expect("the daemon listens");
    let mut client = Client::connect(&socket);
    let session = client.start(home.path());
    client.prompt(&session, "Hello?");
    let events = client.events_until("run_complete");
    let text: String = events.iter().filter(|event| event["type"] == "assistant_token").map(delta_text).collect();
    assert_eq!(text, "Hello, world");
    assert_eq!(events.last().unwrap()["payload"]["outcome"], "success", "{events:?}");
    client.get("drain", json!({}));
    runtime.block_on(daemon).unwrap().unwrap();
}

#[cfg(unix)]
fn delta_text(event: &serde_json::Value) -> &str {
    event["payload"]["text"].as_str().unwrap()
}
