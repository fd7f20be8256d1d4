//! Exports a conversation as a self-contained HTML page: it loads nothing, runs no script, and escapes all content.

use std::fmt::Write as _;

use serde_json::Value;

use super::Projection;
use super::entry::Entry;
use crate::protocol::command_protocol::Heading;
use crate::protocol::pi::encode::to_rfc3339;

/// Exports the whole conversation, including messages that a summary replaces.
pub fn export_html(projection: &Projection, heading: &Heading) -> String {
    let title = heading.name.as_deref().unwrap_or(heading.session.as_str());
    let mut page = String::new();
    page.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta http-equiv=\"Content-Security-Policy\" content=\"");
    page.push_str("default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n");
    write_element(&mut page, "title", "", title);
    page.push_str("<style>");
    page.push_str(STYLE);
    page.push_str("</style>\n</head>\n<body>\n<header>\n");
    write_element(&mut page, "h1", "", title);
    let stats = projection.stats();
    let about = format!(
        "{} · {} · {} messages · {} tokens read, {} written · {}",
        heading.session,
        heading.cwd,
        projection.entries().count(),
        stats.input.saturating_add(stats.cache_read).saturating_add(stats.cache_write),
        stats.output,
        to_rfc3339(heading.at),
    );
    write_element(&mut page, "p", "", &about);
    page.push_str("</header>\n<main>\n");
    projection.entries().for_each(|entry| message(&mut page, &entry));
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn message(page: &mut String, entry: &Entry<'_>) {
    let message: Value = serde_json::from_str(&entry.json()).unwrap_or_default();
    let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
    let role = text("role");
    page.push_str("<section class=\"");
    escape(page, &role);
    page.push_str("\" id=\"e");
    escape(page, &entry.id());
    page.push_str("\">\n");
    let label = match role.as_str() {
        // A provider without models is shown by its own name.
        "assistant" => {
            let model = Some(text("model")).filter(|model| !model.is_empty());
            format!("{} · {}", model.unwrap_or_else(|| text("provider")), to_rfc3339(entry.at))
        }
        "toolResult" => format!("{} · {}", text("toolName"), to_rfc3339(entry.at)),
        "bashExecution" => format!("shell · {}", to_rfc3339(entry.at)),
        "compactionSummary" => format!("summary of the messages above · {}", to_rfc3339(entry.at)),
        _ => format!("user · {}", to_rfc3339(entry.at)),
    };
    write_element(page, "h2", "", &label);
    for block in message["content"].as_array().into_iter().flatten() {
        content(page, block);
    }
    for (name, tag, class) in [
        ("command", "pre", "command"),
        ("output", "pre", ""),
        ("summary", "pre", "text"),
        ("errorMessage", "p", "error"),
    ] {
        if let Some(part) = message[name].as_str().filter(|part| !part.is_empty()) {
            write_element(page, tag, class, part);
        }
    }
    page.push_str("</section>\n");
}

fn content(page: &mut String, block: &Value) {
    let text = |name: &str| block[name].as_str().unwrap_or_default();
    match text("type") {
        "text" => write_element(page, "pre", "text", text("text")),
        "thinking" => {
            page.push_str("<details><summary>thinking</summary>\n");
            write_element(page, "pre", "text", text("thinking"));
            page.push_str("</details>\n");
        }
        "toolCall" => {
            let arguments = serde_json::to_string_pretty(&block["arguments"]).unwrap_or_default();
            write_element(page, "pre", "command", &format!("{} {arguments}", text("name")));
        }
        "image" => image(page, text("mimeType"), text("data")),
        _ => {}
    }
}

/// Embeds an image of a raster type; any other is named only.
fn image(page: &mut String, mime: &str, data: &str) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    if IMAGE_TYPES.contains(&mime) && data.bytes().all(plain) {
        page.push_str("<img alt=\"\" src=\"data:");
        page.push_str(mime);
        page.push_str(";base64,");
        page.push_str(data);
        page.push_str("\">\n");
    } else {
        write_element(page, "p", "", &format!("[an image of type {mime}]"));
    }
}

/// Writes an element with escaped text.
fn write_element(page: &mut String, tag: &str, class: &str, text: &str) {
    let _ = if class.is_empty() { write!(page, "<{tag}>") } else { write!(page, "<{tag} class=\"{class}\">") };
    escape(page, text);
    let _ = writeln!(page, "</{tag}>");
}

/// Writes a text with HTML markup and control characters escaped.
fn escape(page: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            // Other control characters are invalid in HTML, and bidi controls could reorder the text that follows.
            '\n' | '\t' => page.push(letter),
            '\r' => {}
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => page.push('\u{fffd}'),
            letter if letter.is_control() => page.push('\u{fffd}'),
            letter => page.push(letter),
        }
    }
}

const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
header p, h2 { color: gray; font-size: 0.8rem; font-weight: normal; }
section { border-left: 3px solid silver; margin: 1rem 0; padding: 0 1rem; }
section.user { border-color: royalblue; }
section.assistant { border-color: seagreen; }
section.compactionSummary { border-style: dashed; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0.5rem 0; }
pre.text { font-family: inherit; }
pre.command { font-weight: bold; }
.error { color: crimson; }
img { max-width: 100%; }
";
