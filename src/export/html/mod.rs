//! One self-contained HTML page.
//!
//! Everything from the session is escaped. The policy of the page allows nothing but its own style and script, named by
//! their hashes, and embedded images, so that content which got through would neither run nor load anything. The page
//! is readable without its script, which adds the search.

mod calls;
mod escape;
mod markdown;

use data_encoding::BASE64;
use sha2::{Digest, Sha256};

use self::calls::{render_approval, render_call};
use self::escape::{escape, text};
use self::markdown::{LineBreaks, render_markdown};
use super::entry::{run_outcome_name, timestamp};
use super::{
    Attachment, Block, Content, Delivery, Entry, NoticeLevel, Renderer, RunSummary, Survey, Usage, dollars, grouped,
};
use crate::display::format::{count, duration};
use crate::kernel::time::Now;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The image types that a page embeds. An SVG image is a document of its own.
const IMAGE_TYPES: [&str; 4] = ["image/gif", "image/jpeg", "image/png", "image/webp"];

/// Writes a page.
#[derive(Debug, Default)]
pub struct HtmlRenderer;

impl Renderer for HtmlRenderer {
    fn begin(&mut self, survey: &Survey, out: &mut String) {
        let policy = format!(
            "default-src 'none'; style-src '{}'; script-src '{}'; img-src data:; base-uri 'none'; form-action 'none'",
            hash(STYLE),
            hash(SCRIPT)
        );
        let title = text(survey.title());
        *out += &format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n"
        );
        render_facts(survey, out);
        *out += "</header>\n";
        *out += TOOLBAR;
        *out += "<main>\n";
    }

    fn entry(&mut self, entry: &Entry, out: &mut String) {
        match &entry.content {
            Content::UserMessage { text, by, delivery, images } => {
                let name = match delivery {
                    Delivery::Prompt => "User",
                    Delivery::Steering => "User, while the run was active",
                };
                open_entry("user", name, by, entry, out);
                render_markdown(text, LineBreaks::Kept, out);
                images.iter().for_each(|image| render_image(image, out));
                *out += "</article>\n";
            }
            Content::AssistantMessage { model, blocks, usage, interrupted } => {
                open_entry("assistant", "Assistant", model, entry, out);
                blocks.iter().for_each(|block| render_block(block, out));
                if *interrupted {
                    *out += "<p class=\"note bad\">interrupted</p>\n";
                }
                render_usage(usage.as_ref(), out);
                *out += "</article>\n";
            }
            Content::UserCommand { call } => {
                open_entry("command", "User command", "", entry, out);
                render_call(call, out);
                *out += "</article>\n";
            }
            Content::Approval { approval } => {
                open_entry("gate", "Approval", &approval.title, entry, out);
                render_approval(approval, out);
                *out += "</article>\n";
            }
            Content::RunEnded(run) => render_run(run, entry, out),
            Content::Summary { text, tokens_before } => {
                let about = format!("of about {} tokens", grouped(*tokens_before));
                open_entry("summary", "Summary", &about, entry, out);
                render_markdown(text, LineBreaks::Joined, out);
                *out += "</article>\n";
            }
            Content::Notice { level, code, text: said } => {
                let class = match level {
                    NoticeLevel::Info => "info",
                    NoticeLevel::Warning => "warning",
                    NoticeLevel::Error => "error",
                };
                *out += &format!("<article class=\"entry notice {class}\" id=\"e{}\"><p>", entry.seq);
                *out += &text(said);
                if !code.is_empty() {
                    *out += &format!(" <code>{}</code>", text(code));
                }
                *out += &format!(" {}</p></article>\n", time(entry.at));
            }
        }
    }

    fn end(&mut self, survey: &Survey, out: &mut String) {
        let info = &survey.session;
        let events = count(info.events, "event");
        *out += &format!("</main>\n<footer><p>{events} of session <code>{}</code>", text(&info.session_id));
        if info.discarded_events > 0 {
            let discarded = grouped(info.discarded_events);
            *out += &format!("; {discarded} of them belong to abandoned branches and are not shown");
        }
        *out += &format!(".</p></footer>\n<script>{SCRIPT}</script>\n</body>\n</html>\n");
    }
}

/// The controls. Those that need the script are hidden without it.
const TOOLBAR: &str = "\
<nav aria-label=\"Page\">
<input type=\"search\" id=\"search\" placeholder=\"Search\" aria-label=\"Search\" autocomplete=\"off\" spellcheck=\"false\" hidden>
<output id=\"found\" for=\"search\"></output>
<button type=\"button\" id=\"unfold\" hidden>Unfold all</button>
<fieldset><legend>Colours</legend>
<label><input type=\"radio\" name=\"theme\" id=\"theme-auto\" checked>Auto</label>
<label><input type=\"radio\" name=\"theme\" id=\"theme-light\">Light</label>
<label><input type=\"radio\" name=\"theme\" id=\"theme-dark\">Dark</label>
</fieldset>
</nav>
";

/// Returns the source expression of an inline style or script.
fn hash(inline: &str) -> String {
    format!("sha256-{}", BASE64.encode(&Sha256::digest(inline.as_bytes())))
}

fn render_facts(survey: &Survey, out: &mut String) {
    let info = &survey.session;
    *out += "<dl>\n";
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            *out += &format!("<div><dt>{name}</dt><dd>{value}</dd></div>\n");
        }
    };
    fact("Session", format!("<code>{}</code>", text(&info.session_id)));
    fact(
        "Forked from",
        info.parent_session_id.as_deref().map(|id| format!("<code>{}</code>", text(id))).unwrap_or_default(),
    );
    fact("Directory", if info.cwd.is_empty() { String::new() } else { format!("<code>{}</code>", text(&info.cwd)) });
    fact("Model", text(format!("{} {}", info.provider, info.model).trim()));
    fact("Started", info.started_at.map(time).unwrap_or_default());
    fact("Last event", info.updated_at.map(time).unwrap_or_default());
    let runs = &info.runs;
    let outcomes = [
        (runs.success, "successful", "good"),
        (runs.failed, "failed", "bad"),
        (runs.cancelled, "cancelled", "faint"),
        (runs.denied, "denied", "bad"),
    ];
    let outcomes = outcomes.into_iter().filter(|(number, _, _)| *number > 0);
    let outcomes = outcomes.map(|(number, word, class)| format!("<span class=\"{class}\">{number} {word}</span>"));
    fact("Runs", outcomes.collect::<Vec<_>>().join(", "));
    let (input, output) = (grouped(info.usage.input_tokens), grouped(info.usage.output_tokens));
    fact("Tokens", if info.usage.turns == 0 { String::new() } else { format!("{input} in, {output} out") });
    fact("Cost", info.usage.cost_micro_usd.map(dollars).unwrap_or_default());
    *out += "</dl>\n";
}

fn open_entry(class: &str, name: &str, by: &str, entry: &Entry, out: &mut String) {
    let seq = entry.seq;
    *out += &format!("<article class=\"entry {class}\" id=\"e{seq}\">\n<h2><span class=\"who\">{name}</span>");
    if !by.is_empty() {
        *out += &format!(" <span class=\"by\">{}</span>", text(by));
    }
    *out += &format!(" <a class=\"at\" href=\"#e{seq}\">{}</a></h2>\n", time(entry.at));
}

fn render_block(block: &Block, out: &mut String) {
    match block {
        Block::Thinking { text } => {
            *out += "<details class=\"thinking\"><summary>Thinking</summary>\n";
            render_markdown(text, LineBreaks::Kept, out);
            *out += "</details>\n";
        }
        Block::Text { text } => render_markdown(text, LineBreaks::Joined, out),
        Block::ToolCall(call) => render_call(call, out),
    }
}

fn render_usage(usage: Option<&Usage>, out: &mut String) {
    if let Some(usage) = usage.and_then(Usage::text) {
        *out += &format!("<p class=\"usage\">{}</p>\n", text(&usage));
    }
}

/// Embeds an image of a safe type; names any other.
fn render_image(image: &Attachment, out: &mut String) {
    let is_base64 = BASE64.decode_len(image.data.len()).is_ok()
        && image.data.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
    if is_base64 && IMAGE_TYPES.contains(&image.mime_type.as_str()) {
        *out += &format!("<img alt=\"attached image\" src=\"data:{};base64,", image.mime_type);
        *out += &image.data;
        *out += "\">\n";
    } else {
        *out += &format!("<p class=\"note\">[image: {}]</p>\n", text(&image.mime_type));
    }
}

fn render_run(run: &RunSummary, entry: &Entry, out: &mut String) {
    let (name, seq) = (run_outcome_name(run.outcome), entry.seq);
    *out += &format!("<article class=\"entry run {name}\" id=\"e{seq}\">\n<h2><span class=\"who\">Run {name}</span>");
    let mut facts = vec![format!("exit code {}", run.exit_code)];
    facts.extend(run.duration_ms.map(duration));
    facts.extend(run.usage.text());
    *out += &format!(" <span class=\"by\">{}</span>", text(&facts.join(" · ")));
    *out += &format!(" <a class=\"at\" href=\"#e{seq}\">{}</a></h2>\n", time(entry.at));
    if !run.summary.is_empty() {
        *out += &format!("<p>{}</p>\n", text(&run.summary));
    }
    for check in &run.checks {
        let (class, word) = if check.passed { ("good", "passed") } else { ("bad", "failed") };
        let (id, output) = (text(&check.id), text(&check.output));
        *out += &format!(
            "<details class=\"check\"><summary>check <code>{id}</code> <span class=\"{class}\">{word}</span></summary>\
             <pre>{output}</pre></details>\n"
        );
    }
    *out += "</article>\n";
}

/// Returns a time for people and for programs.
fn time(at: Now) -> String {
    let exact = timestamp(at);
    let shown = exact.get(..19).unwrap_or(&exact).replace('T', " ");
    format!("<time datetime=\"{}\">{} UTC</time>", escape(&exact), escape(&shown))
}
