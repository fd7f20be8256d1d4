//! `push export`: every format from a real daemon, and its page in a real browser with hostile content.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use serde_json::Value;

use crate::support::home::Home;
use crate::support::skip::skip;

#[test]
fn a_session_is_exported_in_every_format() {
    let home = Home::new();
    home.ok(&["run", "--yes", "--name", "release", "Prose *here*.\n\n$ echo one\n"]);
    let lines = home.ok(&["export", "release", "--format", "jsonl"]);
    assert_eq!(lines, home.ok(&["log", "release", "--jsonl"]), "events are those of the log");
    let json: Value = serde_json::from_str(&home.ok(&["export", "@last", "-f", "json"])).unwrap();
    assert_eq!(json["session"]["name"], "release");
    assert_eq!(json["session"]["runs"]["success"], 1);
    assert_eq!(json["session"]["events"], lines.lines().count());
    let markdown = home.ok(&["export", "release", "--format", "md"]);
    assert!(markdown.starts_with("# release\n") && markdown.contains("```sh\necho one\n```"), "{markdown}");
    assert_eq!(home.ok(&["export", "release", "-o", "page.html"]), "");
    let page = home.read("page.html");
    assert!(page.contains("<em>here</em>") && page.contains("<pre>one</pre>"), "{page}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2, "no temporary file is left beside .push and the page");
    let refused = home.push(&["export", "release", "-o", "page.txt"]);
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert_eq!(home.push(&["export", "nobody", "-f", "md"]).code, Some(64));
}

/// What a page must neither run nor load; `PORT` is a listener of the test.
const HOSTILE: &str = r#"<script>document.title='owned'</script>
</script><script>fetch('http://127.0.0.1:PORT/script')</script>
<img src="http://127.0.0.1:PORT/img" onerror="document.title='owned'">
"><svg onload="document.title='owned'"><iframe src="http://127.0.0.1:PORT/frame"></iframe>
</style><style>@import 'http://127.0.0.1:PORT/style'; *{background:url(http://127.0.0.1:PORT/url)}</style>
<link rel=stylesheet href=http://127.0.0.1:PORT/link><meta http-equiv=refresh content="0;url=http://127.0.0.1:PORT/meta">
<base href="http://127.0.0.1:PORT/"><form action="http://127.0.0.1:PORT/form"><input autofocus onfocus="document.title='owned'">
[link](javascript:document.title='owned') ![image](http://127.0.0.1:PORT/markdown.png) <javascript:document.title='owned'>
<a href="javascript:document.title='owned'">a</a> <video src=http://127.0.0.1:PORT/v poster=http://127.0.0.1:PORT/p></video>
</pre></details></article></main></body></html><script>document.title='owned'</script>

$ printf '%s\n' '</pre><script>document.title="owned"</script><img src=http://127.0.0.1:PORT/output>' '</title><script>document.title="owned"</script>'
"#;

#[test]
fn a_page_with_hostile_content_runs_nothing_and_loads_nothing() {
    if !has_chromium() {
        return skip("chromium is not installed: the exported page is not opened in a browser");
    }
    let log = RequestLog::start();
    let port = log.port.to_string();
    let home = Home::new();
    let hostile = HOSTILE.replace("PORT", &port);
    home.push(&["run", "--yes", "--name", "</title><script>document.title='owned'</script>", &hostile]);
    home.ok(&["export", "@last", "-o", "page.html"]);
    let page = home.read("page.html");
    let dom = dump_dom(&home, "page.html");
    assert!(dom.contains("<title>&lt;/title&gt;&lt;script&gt;"), "the title was changed: {dom}");
    assert!(dom.contains("id=\"search\"") && !dom.contains("id=\"search\" placeholder=\"Search\" aria-label=\"Search\" autocomplete=\"off\" spellcheck=\"false\" hidden"),
        "the script of the page has run: {dom}");
    assert_eq!(log.requests(), [""; 0], "a request left the page");

    // Even markup that got through does nothing.
    let injected = "<script>document.title='owned'</script><img src=\"http://127.0.0.1:PORT/x\" onerror=\"document.title='owned'\">\
        <style>body{background:url(http://127.0.0.1:PORT/y)}</style><p style=\"background:url(http://127.0.0.1:PORT/z)\">p</p>\
        <iframe src=\"http://127.0.0.1:PORT/f\"></iframe>"
        .replace("PORT", &port);
    home.write("injected.html", &page.replace("</main>", &format!("{injected}</main>")));
    let dom = dump_dom(&home, "injected.html");
    assert!(dom.contains("<title>&lt;/title&gt;&lt;script&gt;"), "an injected script has run: {dom}");
    assert_eq!(log.requests(), [""; 0], "a request left the page with injected markup");

    // The same markup without the policy of the page shows that the test would notice.
    home.write("control.html", &format!("<title>before</title>{injected}"));
    let dom = dump_dom(&home, "control.html");
    assert!(dom.contains("<title>owned</title>"), "{dom}");
    assert_ne!(log.requests(), [""; 0], "a page without a policy sends requests");
}

/// A server that records requests; a page may have whatever it answers.
struct RequestLog {
    port: u16,
    connections: Arc<Mutex<Vec<JoinHandle<String>>>>,
}

impl RequestLog {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&connections);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = thread::spawn(move || answer(stream.unwrap()));
                log.lock().unwrap().push(connection);
            }
        });
        Self { port, connections }
    }

    /// Returns the first lines of the requests that were sent until now; the browser has ended.
    fn requests(&self) -> Vec<String> {
        let mut probe = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        probe.write_all(b"probe\n").unwrap();
        // Connections are accepted in order, so those of the browser are known once the probe is answered.
        probe.read_exact(&mut [0]).unwrap();
        let connections = std::mem::take(&mut *self.connections.lock().unwrap());
        let mut requests: Vec<String> = connections.into_iter().map(|connection| connection.join().unwrap()).collect();
        // A connection without a request is one that the browser opened ahead of a forbidden request.
        requests.retain(|line| !line.is_empty() && line != "probe\n");
        requests
    }
}

/// Answers the request of a connection and returns its first line.
fn answer(mut stream: TcpStream) -> String {
    let mut line = String::new();
    // A browser that has ended may have reset the connection.
    let _ = BufReader::new(stream.try_clone().unwrap()).read_line(&mut line);
    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    line
}

fn has_chromium() -> bool {
    Command::new("chromium").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Opens a page in a browser and returns its document after its scripts have run.
fn dump_dom(home: &Home, name: &str) -> String {
    let profile = home.path().join("profile");
    let url = format!("file://{}", home.path().join(name).display());
    let output = home
        .program(
            "chromium",
            &["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"],
        )
        .args(["--disable-background-networking", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", Path::display(&profile)))
        .arg(url)
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && dom.contains("</html>"), "{output:?}");
    dom
}
