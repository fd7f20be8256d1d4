//! Finds an ollama that runs, and the models it has.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long the whole question may take: it is asked before anybody is.
const PATIENCE: Duration = Duration::from_millis(1500);
/// The longest answer that is read.
const LONGEST: u64 = 1024 * 1024;

/// Returns the models of the ollama at an address as `OLLAMA_HOST` has it; none when none answers there.
pub(super) async fn models(host: Option<&str>) -> Option<Vec<String>> {
    let address = address(host)?;
    let answer = timeout(PATIENCE, ask(&address)).await.ok()?.ok()?;
    read(&answer)
}

/// Returns what to connect to; an ollama behind TLS is not looked for.
fn address(host: Option<&str>) -> Option<String> {
    let host = host.map(str::trim).filter(|host| !host.is_empty()).unwrap_or("127.0.0.1");
    let host = match host.split_once("://") {
        Some(("http", rest)) => rest,
        Some(_) => return None,
        None => host,
    };
    let host = host.split('/').next().unwrap_or_default();
    let has_port = host.rsplit_once(':').is_some_and(|(before, port)| {
        !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && (!before.contains(':') || before.ends_with(']'))
    });
    let host = if has_port { host.to_owned() } else { format!("{host}:11434") };
    // What listens everywhere is reached here.
    Some(host.replacen("0.0.0.0:", "127.0.0.1:", 1))
}

async fn ask(address: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /api/tags HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).await?;
    Ok(answer)
}

fn read(answer: &[u8]) -> Option<Vec<String>> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    if head.split(' ').nth(1) != Some("200") {
        return None;
    }
    let body: Value = serde_json::from_str(body.trim()).ok()?;
    let models = body.get("models")?.as_array()?;
    Some(models.iter().filter_map(|model| model.get("name")?.as_str()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_what_ollama_takes_for_one() {
        for (host, expected) in [
            (None, Some("127.0.0.1:11434")),
            (Some(""), Some("127.0.0.1:11434")),
            (Some("0.0.0.0"), Some("127.0.0.1:11434")),
            (Some("box:99"), Some("box:99")),
            (Some("http://box/"), Some("box:11434")),
            (Some("[::1]"), Some("[::1]:11434")),
            (Some("[::1]:5"), Some("[::1]:5")),
            (Some("https://box"), None),
        ] {
            assert_eq!(address(host).as_deref(), expected, "{host:?}");
        }
    }

    #[test]
    fn only_a_list_of_models_is_one() {
        let ok = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"models\":[{\"name\":\"a:1\"},{\"x\":1}]}";
        assert_eq!(read(ok), Some(vec!["a:1".to_owned()]));
        for answer in
            [&b""[..], b"HTTP/1.1 404 No\r\n\r\n{\"models\":[]}", b"HTTP/1.1 200 OK\r\n\r\n<html>", b"\xff"]
        {
            assert_eq!(read(answer), None);
        }
    }

    #[tokio::test]
    async fn a_server_is_asked_and_silence_is_no_answer() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            assert!(request.starts_with(b"GET /api/tags "));
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"models\":[{\"name\":\"m\"}]}").await.unwrap();
        };
        let (found, ()) = tokio::join!(models(Some(&host)), serve);
        assert_eq!(found, Some(vec!["m".to_owned()]));
        drop(listener);
        assert_eq!(models(Some(&host)).await, None);
    }
}
