//! `sandbox_fetch`: fetches a URL as text.
//!
//! Only GET requests to the requested host: a redirect to another host is an error that names the target. No
//! cookies, credentials or proxies are used. A host is assessed by the addresses it resolves to, and the connection
//! uses only these addresses, also after redirects.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, LOCATION, USER_AGENT};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::ServerName;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::addresses::worst_class;
use super::context::ToolContext;
use super::error::{ToolError, ToolErrorKind};
use super::{ApprovalDigest, CallDescription, Category, ExecutionResult, Network, Tool, parse_arguments, schema};
use crate::sandbox::Chunk;
use crate::sandbox::address::{self, AddressClass};
use crate::sandbox::output::Excerpt;
use crate::sandbox::risk::{self, Escalation, PathContext, ResourceAccess, Risk, RiskAssessment};

pub(super) const NAME: &str = "sandbox_fetch";
const DESCRIPTION: &str = "Fetch a URL with HTTP GET and return its body as text, after a line with status, \
    type and size. Redirects are followed on the same host. Only text is returned; long bodies are shortened.";

/// How many bytes of an error page are returned.
const ERROR_PAGE_MAX: usize = 2000;

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// The http or https URL.
    url: String,
}

impl Args {
    /// Refuses an invalid URL.
    fn validate(self) -> Result<Self, ToolError> {
        parse_url(&self.url)?;
        Ok(self)
    }
}

/// The tool.
#[derive(Debug)]
pub(super) struct Fetch;

impl Tool for Fetch {
    type Args = Args;

    fn name(&self) -> &str {
        NAME
    }

    fn description(&self) -> &str {
        DESCRIPTION
    }

    fn schema(&self) -> Value {
        schema::<Args>()
    }

    fn category(&self) -> Category {
        Category::Network
    }

    fn parse(&self, args: &str) -> Result<Self::Args, ToolError> {
        parse_arguments::<Args>(NAME, args)?.validate()
    }

    fn assess(&self, args: &Self::Args, _escalation: Escalation, paths: &PathContext) -> RiskAssessment {
        let host = risk::host_of_url(&args.url);
        let named = host.as_deref().map_or(AddressClass::Private, address::classify_host);
        let mut accesses = vec![(ResourceAccess::Network(host), network_risk(named))];
        // A permission for a host name must not give access to this machine or a private network under that name.
        let found = paths.addresses().iter().map(|found| (found, address::classify_ip(*found)));
        for (address, reached) in found.filter(|(_, reached)| *reached > named) {
            accesses.push((ResourceAccess::Network(Some(address.to_string())), network_risk(reached)));
        }
        let risk = accesses.iter().map(|(_, risk)| *risk).max().unwrap_or(Risk::High);
        risk::assess_tool(Category::Network, accesses, risk)
    }

    fn escalation(&self, _args: &Self::Args) -> Escalation {
        Escalation { network: true, unconfined: false }
    }

    async fn resolve_addresses(&self, args: &Self::Args, context: &ToolContext) -> Result<Vec<IpAddr>, ToolError> {
        let uri = host_to_resolve(args, context)?;
        with_timeout(context, context.addresses.resolve_and_pin(uri.host().unwrap_or_default())).await
    }

    async fn describe(
        &self,
        args: &Self::Args,
        digest: ApprovalDigest,
        context: &ToolContext,
    ) -> Result<CallDescription, ToolError> {
        let found = pinned_addresses(args, context).await?;
        let details = json!({ "url": args.url, "addresses": found });
        let digest = bind_address_class(digest, &found);
        let summary = format!("GET {}", args.url);
        Ok(CallDescription::new("Approve fetching", summary, details, digest).with_addresses(found))
    }

    async fn recompute_digest(
        &self,
        args: &Self::Args,
        digest: ApprovalDigest,
        context: &ToolContext,
    ) -> Result<Option<ApprovalDigest>, ToolError> {
        Ok(Some(bind_address_class(digest, &pinned_addresses(args, context).await?)))
    }

    async fn run(&self, args: Self::Args, context: &ToolContext, _out: mpsc::Sender<Chunk>) -> ExecutionResult {
        fetch(&args, context).await.into()
    }
}

/// Returns the pinned addresses of the host.
async fn pinned_addresses(args: &Args, context: &ToolContext) -> Result<Vec<IpAddr>, ToolError> {
    let uri = host_to_resolve(args, context)?;
    with_timeout(context, context.addresses.pinned_or_resolve(uri.host().unwrap_or_default())).await
}

/// The risk of a connection to an address of this class.
const fn network_risk(reached: AddressClass) -> Risk {
    match reached {
        AddressClass::Public => Risk::Medium,
        AddressClass::Private => Risk::High,
        AddressClass::Metadata => Risk::Critical,
    }
}

fn host_to_resolve(args: &Args, context: &ToolContext) -> Result<Uri, ToolError> {
    check_network_allowed(context)?;
    let uri = parse_url(&args.url)?;
    let host = uri.host().unwrap_or_default();
    // A lookup would send a secret in the host name to the resolver.
    if (context.redact)(host) != host {
        let message = "the host name contains a secret value and is not resolved";
        return Err(ToolError::new(ToolErrorKind::BadArguments, message));
    }
    Ok(uri)
}

/// Adds the address class to the approval digest.
///
/// The addresses themselves may differ: many names resolve to different addresses each time.
fn bind_address_class(call_digest: ApprovalDigest, addresses: &[IpAddr]) -> ApprovalDigest {
    call_digest.add_bytes(worst_class(addresses).as_str().as_bytes())
}

fn check_network_allowed(context: &ToolContext) -> Result<(), ToolError> {
    match context.network {
        Network::Allowed => Ok(()),
        Network::Off => Err(ToolError::new(ToolErrorKind::NetworkOff, "network access is not allowed for tools")),
    }
}

/// Runs a future with the timeout of a fetch.
async fn with_timeout<T>(
    context: &ToolContext,
    doing: impl Future<Output = Result<T, ToolError>>,
) -> Result<T, ToolError> {
    match tokio::time::timeout(context.limits.fetch_timeout, doing).await {
        Ok(done) => done,
        Err(_) => {
            let message = format!("timed out after {} seconds", context.limits.fetch_timeout.as_secs());
            Err(ToolError::new(ToolErrorKind::TimeLimit, message))
        }
    }
}

fn parse_url(url: &str) -> Result<Uri, ToolError> {
    let bad = |why: &str| ToolError::new(ToolErrorKind::BadArguments, format!("invalid url: {why}"));
    let uri: Uri = url.split('#').next().unwrap_or_default().parse().map_err(|_| bad("it cannot be parsed"))?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        Some(_) | None => return Err(bad("it must begin with http:// or https://")),
    }
    match uri.authority() {
        Some(authority) if authority.as_str().contains('@') => {
            Err(bad("it must not contain a user name or a password"))
        }
        Some(authority) if authority.host().is_empty() => Err(bad("it has no host")),
        Some(authority) if !is_unambiguous_host(authority.host()) => {
            Err(bad("its host is neither a name of letters, digits, dots and dashes nor an IP address"))
        }
        Some(_) => Ok(uri),
        None => Err(bad("it has no host")),
    }
}

/// Whether a host is unambiguous: not encoded, and without look-alike characters.
fn is_unambiguous_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
    }
}

async fn fetch(args: &Args, context: &ToolContext) -> Result<String, ToolError> {
    check_network_allowed(context)?;
    let uri = parse_url(&args.url)?;
    with_timeout(context, async {
        let host = uri.host().unwrap_or_default().to_owned();
        let addresses = context.addresses.for_connection(&host, context.approved_digest.is_some()).await?;
        fetch_with_redirects(uri, &addresses, context).await
    })
    .await
}

/// Fetches a page from one of the addresses, and follows redirects on the same host.
async fn fetch_with_redirects(mut uri: Uri, addresses: &[IpAddr], context: &ToolContext) -> Result<String, ToolError> {
    for _ in 0..=context.limits.redirects {
        let response = get(&uri, addresses).await?;
        if !response.status().is_redirection() || !response.headers().contains_key(LOCATION) {
            return read_page(&uri, response, context).await;
        }
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let next = resolve_redirect(&uri, location.unwrap_or_default())?;
        let upgraded = uri.scheme_str() == Some("http") && next.scheme_str() == Some("https");
        let same_scheme = uri.scheme_str() == next.scheme_str();
        let same_port = uri.port_u16() == next.port_u16() || upgraded;
        if uri.host() != next.host() || !same_port || !(same_scheme || upgraded) {
            let message = format!("{uri} redirects to another host; fetch the URL in `detail` separately");
            return Err(ToolError::new(ToolErrorKind::RedirectedAway, message).with_detail(next.to_string()));
        }
        uri = next;
    }
    let message = format!("more than {} redirects", context.limits.redirects);
    Err(ToolError::new(ToolErrorKind::NetworkFailed, message))
}

/// Resolves the location of a redirect against `base`.
fn resolve_redirect(base: &Uri, location: &str) -> Result<Uri, ToolError> {
    let (scheme, authority) = (base.scheme_str().unwrap_or("https"), base.authority().map_or("", |name| name.as_str()));
    let whole = if location.contains("://") {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{location}")
    };
    parse_url(&whole)
        .map_err(|_| ToolError::new(ToolErrorKind::NetworkFailed, format!("invalid redirect to {location:?}")))
}

/// Requests a page from the first address that accepts a connection; the host name of the request stays the same.
async fn get(uri: &Uri, addresses: &[IpAddr]) -> Result<Response<Incoming>, ToolError> {
    let mut failed = ToolError::new(ToolErrorKind::NetworkFailed, format!("cannot fetch {uri}"));
    for address in addresses {
        match get_at(uri, *address).await? {
            Ok(response) => return Ok(response),
            Err(error) => {
                failed = ToolError::new(ToolErrorKind::NetworkFailed, format!("cannot fetch {uri}"))
                    .with_detail(error_chain(&error));
                if !error.is_connect() {
                    break;
                }
            }
        }
    }
    Err(failed)
}

/// Requests a page from one address. The outer error is an invalid request.
async fn get_at(uri: &Uri, address: IpAddr) -> Result<Result<Response<Incoming>, Error>, ToolError> {
    let bad = |error: String| ToolError::new(ToolErrorKind::BadArguments, error);
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    // The certificate must match the host name, whatever the address; plain HTTP needs none, and its host may not
    // be a valid server name.
    let named = match uri.scheme_str() {
        Some("https") => ServerName::try_from(host.to_owned()).map_err(|error| bad(error.to_string()))?,
        Some(_) | None => ServerName::from(address),
    };
    let https = HttpsConnectorBuilder::new()
        .with_webpki_roots()
        .https_or_http()
        .with_server_name_resolver(FixedServerNameResolver::new(named))
        .enable_http1()
        .build();
    let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(https);
    let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let socket_address = SocketAddr::new(address, uri.port_u16().unwrap_or(usual));
    let at = Uri::builder()
        .scheme(uri.scheme_str().unwrap_or("https"))
        .authority(socket_address.to_string())
        .path_and_query(uri.path_and_query().map_or("/", |path| path.as_str()))
        .build()
        .map_err(|error| bad(error.to_string()))?;
    let request = Request::get(at)
        .header(HOST, uri.authority().map_or("", |authority| authority.as_str()))
        .header(ACCEPT, "text/*, application/json, */*;q=0.1")
        .header(USER_AGENT, concat!("push/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(|error| bad(error.to_string()))?;
    Ok(client.request(request).await)
}

fn error_chain(error: &Error) -> String {
    let mut chain = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        chain.push_str(&format!(": {error}"));
        source = error.source();
    }
    chain
}

async fn read_page(uri: &Uri, response: Response<Incoming>, context: &ToolContext) -> Result<String, ToolError> {
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or("unknown type").to_owned();
    let (bytes, truncated) = read_body(response.into_body(), context.limits.fetch_bytes).await?;
    if !is_text(&kind) || memchr::memchr(0, &bytes).is_some() {
        return Err(ToolError::new(ToolErrorKind::NotText, format!("{uri} is not text: its content type is {kind}")));
    }
    let text = (context.redact)(&String::from_utf8_lossy(&bytes));
    if status.is_client_error() || status.is_server_error() {
        let mut excerpt = Excerpt::new(ERROR_PAGE_MAX);
        excerpt.push(&text);
        return Err(
            ToolError::new(status_error_kind(status), format!("{uri} answered {status}")).with_detail(excerpt.finish())
        );
    }
    let mut excerpt = Excerpt::new(context.limits.result_bytes);
    excerpt.push(&text);
    let size = if truncated { format!("more than {}", bytes.len()) } else { bytes.len().to_string() };
    Ok(format!("[{} {kind}, {size} bytes, {uri}]\n{}", status.as_u16(), excerpt.finish()))
}

/// A status that may change later is a retryable network error; others are final.
fn status_error_kind(status: StatusCode) -> ToolErrorKind {
    let passing = status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429);
    if passing { ToolErrorKind::NetworkFailed } else { ToolErrorKind::HttpStatus }
}

/// Reads up to `most` bytes, and returns whether there were more.
async fn read_body(mut body: Incoming, most: usize) -> Result<(Vec<u8>, bool), ToolError> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ToolError::new(ToolErrorKind::NetworkFailed, "the connection broke during the response")
                .with_detail(error.to_string())
        })?;
        let Some(data) = frame.data_ref() else { continue };
        let fitting = data.len().min(most - bytes.len());
        bytes.extend_from_slice(&data[..fitting]);
        if fitting < data.len() {
            return Ok((bytes, true));
        }
    }
    Ok((bytes, false))
}

fn is_text(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let texts = ["json", "xml", "javascript", "yaml", "toml", "x-sh", "sql", "graphql", "ecmascript"];
    kind == "unknown type"
        || kind.starts_with("text/")
        || kind.strip_prefix("application/").is_some_and(|kind| {
            texts.iter().any(|text| kind == *text || kind.ends_with(&format!("+{text}")) || kind == format!("x-{text}"))
        })
        || kind == "image/svg+xml"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_urls_are_accepted() {
        for url in ["http://a.org", "https://a.org:8443/x?y#z", "http://[::1]/", "http://127.1/", "http://A.ORG./"] {
            assert!(parse_url(url).is_ok(), "{url}");
        }
        for url in [
            "",
            "a.org",
            "ftp://a.org/",
            "file:///etc/passwd",
            "https://me:pw@a.org/",
            "http://",
            "https:///x",
            "http://good@127.0.0.1/",
            "http://127%2e0%2e0%2e1/",
            "http://%31%32%37.1/",
            "http://１２７.0.0.1/",
            "http://bücher.example/",
            "http://[::1%25lo]/",
            "http://[::1",
            "http://a.org\\@127.0.0.1/",
        ] {
            assert_eq!(parse_url(url).unwrap_err().kind, ToolErrorKind::BadArguments, "{url}");
        }
    }

    #[test]
    fn a_redirect_is_resolved_against_its_origin() {
        let base: Uri = "https://a.org:8443/x/y?z".parse().unwrap();
        for (location, whole) in [
            ("/q", "https://a.org:8443/q"),
            ("q?r=1", "https://a.org:8443/x/q?r=1"),
            ("//b.org/q", "https://b.org/q"),
            ("http://c.org/", "http://c.org/"),
        ] {
            assert_eq!(resolve_redirect(&base, location).unwrap().to_string(), whole, "{location}");
        }
        assert!(resolve_redirect(&base, "gopher://x/").is_err());
    }

    #[test]
    fn text_is_recognised_by_its_content_type() {
        for kind in ["text/html; charset=utf-8", "application/json", "application/ld+json", "image/svg+xml"] {
            assert!(is_text(kind), "{kind}");
        }
        for kind in ["image/png", "application/octet-stream", "application/zip"] {
            assert!(!is_text(kind), "{kind}");
        }
    }
}
