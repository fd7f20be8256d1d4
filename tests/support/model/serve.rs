//! The HTTP side of the server: enough for a well-behaved client.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::dialects::{ResponsePart, content_type, encode, huge, said, spoken_at};
use super::script::{Delivery, Fault, Reply, Turn};
use super::{ReceivedRequest, ServerDialect, Shared, WindowReport};

/// What happens to a connection after a response.
#[derive(PartialEq, Eq)]
enum AfterResponse {
    Keep,
    Close,
}

/// Serves until it is dropped.
pub(super) async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        shared.connections.send_modify(|count| *count += 1);
        stream.set_nodelay(true).unwrap();
        connections.spawn(connection(stream, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

/// The whole response in parts, for callers that send them themselves: the head, each event, and the end.
pub(crate) fn spoken(dialect: ServerDialect, turn: &Turn) -> Vec<Vec<u8>> {
    let part = |out| {
        let ResponsePart::Event(bytes) = out else { panic!("{out:?} is not spoken") };
        let mut held = Vec::new();
        frame(&mut held, turn.delivery, &bytes);
        held
    };
    let head = head(dialect, "transfer-encoding: chunked").into_bytes();
    let events = encode(dialect, turn).into_iter().map(part);
    [head].into_iter().chain(events).chain([b"0\r\n\r\n".to_vec()]).collect()
}

async fn connection(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut buffer = Vec::new();
    while let Some(seen) = read_request(&mut stream, &mut buffer).await {
        let answer = match (seen.method.as_str(), spoken_at(&seen.path)) {
            ("POST", Some(dialect)) => {
                let too_long = shared.refuse_too_long(&seen.body);
                shared.seen.lock().unwrap().push(seen);
                let reply = too_long.unwrap_or_else(|| shared.next_reply());
                reply_to(&mut stream, dialect, reply).await
            }
            _ => {
                let body = lookup(&seen, &shared);
                shared.seen.lock().unwrap().push(seen);
                plain(&mut stream, body).await
            }
        };
        match answer {
            Ok(AfterResponse::Keep) => {}
            Ok(AfterResponse::Close) => return,
            Err(_) => {
                shared.hangups.send_modify(|count| *count += 1);
                return;
            }
        }
    }
}

/// Answers a request that needs no model.
fn lookup(seen: &ReceivedRequest, shared: &Shared) -> Reply {
    let models = shared.models.lock().unwrap().clone();
    let window = *shared.window.lock().unwrap();
    let tokens_for = |report| window.filter(|window| window.report == report).map(|window| window.tokens);
    let listed = tokens_for(WindowReport::InTheList);
    let list =
        |name: &str| -> Value { models.iter().map(|model| json!({ name: model, "max_model_len": listed })).collect() };
    let path = seen.path.split('?').next().unwrap_or_default();
    match path {
        "/api/version" => Reply::status(200, r#"{"version":"0.12.0"}"#),
        "/api/tags" => Reply::status(200, &json!({ "models": list("name") }).to_string()),
        "/v1/models" => Reply::status(200, &json!({ "data": list("id") }).to_string()),
        "/props" if tokens_for(WindowReport::InProperties).is_some() => {
            let settings = json!({ "n_ctx": tokens_for(WindowReport::InProperties) });
            Reply::status(200, &json!({ "default_generation_settings": settings }).to_string())
        }
        "/api/show" if listed.is_some() => {
            Reply::status(200, &json!({ "model_info": { "llama.context_length": listed } }).to_string())
        }
        _ => Reply::status(404, "404 page not found"),
    }
}

async fn reply_to(stream: &mut TcpStream, dialect: ServerDialect, reply: Reply) -> std::io::Result<AfterResponse> {
    match reply {
        Reply::Turn(turn) => {
            let (framing, after) = match turn.delivery {
                Delivery::UntilClose => ("connection: close", AfterResponse::Close),
                Delivery::Events | Delivery::Bytes | Delivery::Fast | Delivery::Paced(_) => {
                    ("transfer-encoding: chunked", AfterResponse::Keep)
                }
            };
            stream.write_all(head(dialect, framing).as_bytes()).await?;
            match deliver(stream, dialect, &turn).await? {
                AfterResponse::Keep => Ok(after),
                AfterResponse::Close => Ok(AfterResponse::Close),
            }
        }
        Reply::Plain { .. } => plain(stream, reply).await,
        Reply::NotHttp => {
            stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await?;
            Ok(AfterResponse::Close)
        }
        Reply::Never => until_closed(stream).await,
        Reply::HeadOnly => {
            stream.write_all(head(dialect, "transfer-encoding: chunked").as_bytes()).await?;
            until_closed(stream).await
        }
        Reply::HangUp => Ok(AfterResponse::Close),
        Reply::Reset => reset(stream),
    }
}

/// The head of a successful response.
fn head(dialect: ServerDialect, framing: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {}\r\n{framing}\r\n\r\n", content_type(dialect))
}

async fn plain(stream: &mut TcpStream, reply: Reply) -> std::io::Result<AfterResponse> {
    let Reply::Plain { status, headers, body } = reply else { panic!("{reply:?} is not plain") };
    let mut head = format!("HTTP/1.1 {status} Status\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(&[head.as_bytes(), &body].concat()).await?;
    Ok(AfterResponse::Keep)
}

async fn deliver(stream: &mut TcpStream, dialect: ServerDialect, turn: &Turn) -> std::io::Result<AfterResponse> {
    let mut held = Vec::new();
    for out in encode(dialect, turn) {
        let bytes = match out {
            ResponsePart::Event(bytes) => bytes,
            ResponsePart::Fault(Fault::Garbage) => match dialect {
                ServerDialect::Ollama => b"{\"message\": ]\n".to_vec(),
                ServerDialect::OpenAi | ServerDialect::Anthropic => b"data: {\"choices\": ]\n\n".to_vec(),
            },
            ResponsePart::Fault(Fault::HugeLine(bytes)) => huge(dialect, bytes),
            ResponsePart::Fault(fault) => {
                stream.write_all(&held).await?;
                return fail(stream, dialect, turn.delivery, &fault).await;
            }
        };
        frame(&mut held, turn.delivery, &bytes);
        match turn.delivery {
            Delivery::Fast if held.len() < FAST_BYTES => continue,
            Delivery::Paced(pause) => tokio::time::sleep(pause).await,
            Delivery::Fast | Delivery::Events | Delivery::Bytes | Delivery::UntilClose => {}
        }
        stream.write_all(&held).await?;
        held.clear();
    }
    if turn.delivery != Delivery::UntilClose {
        held.extend_from_slice(b"0\r\n\r\n");
    }
    stream.write_all(&held).await?;
    Ok(AfterResponse::Keep)
}

fn frame(held: &mut Vec<u8>, delivery: Delivery, bytes: &[u8]) {
    let size = match delivery {
        Delivery::UntilClose => return held.extend_from_slice(bytes),
        Delivery::Bytes => 1,
        Delivery::Events | Delivery::Fast | Delivery::Paced(_) => bytes.len(),
    };
    for chunk in bytes.chunks(size) {
        write!(held, "{:x}\r\n", chunk.len()).unwrap();
        held.extend_from_slice(chunk);
        held.extend_from_slice(b"\r\n");
    }
}

async fn fail(
    stream: &mut TcpStream,
    dialect: ServerDialect,
    delivery: Delivery,
    fault: &Fault,
) -> std::io::Result<AfterResponse> {
    let mut held = Vec::new();
    match fault {
        Fault::Cut => {}
        Fault::CutInsideCharacter => {
            let event = said(dialect, "caf\u{e9} \u{20ac}");
            let euro = event.windows(3).position(|bytes| bytes == "\u{20ac}".as_bytes()).unwrap();
            frame(&mut held, delivery, &event[..=euro]);
        }
        Fault::Reset => return reset(stream),
        Fault::EndEarly => {
            if delivery != Delivery::UntilClose {
                held.extend_from_slice(b"0\r\n\r\n");
            }
        }
        Fault::Stall => return until_closed(stream).await,
        Fault::Garbage | Fault::HugeLine(_) | Fault::Error { .. } => panic!("{fault:?} is an event"),
    }
    stream.write_all(&held).await?;
    Ok(AfterResponse::Close)
}

/// Waits until the client disconnects.
async fn until_closed(stream: &mut TcpStream) -> std::io::Result<AfterResponse> {
    let mut rest = [0; 64];
    while stream.read(&mut rest).await? > 0 {}
    Err(std::io::ErrorKind::ConnectionAborted.into())
}

fn reset(stream: &TcpStream) -> std::io::Result<AfterResponse> {
    stream.set_zero_linger()?;
    Ok(AfterResponse::Close)
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<ReceivedRequest> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer[..head_end].to_vec()).unwrap();
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let header = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    let headers: BTreeMap<String, String> = lines.map(header).collect();
    let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let end = head_end + 4 + length;
    while buffer.len() < end {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = serde_json::from_slice(&buffer[head_end + 4..end]).unwrap_or(Value::Null);
    buffer.drain(..end);
    Some(ReceivedRequest { method, path, headers, body })
}

/// How much is written at once with [`Delivery::Fast`].
const FAST_BYTES: usize = 32 * 1024;
