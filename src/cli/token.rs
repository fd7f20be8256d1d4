//! `push token`: bearer tokens for clients that connect by WebSocket.
//!
//! Tokens are managed without the daemon, which reads them for every new connection. The daemon opens a port beyond
//! the loopback interface only if a token exists.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::context::{Context, now};
use super::exit::{CliError, Exit};
use super::ids;
use super::sanitize::sanitize_line;
use super::sessions::age;
use super::table::{Column, plain, table};
use crate::token::{TokenRecord, TokenRole, TokenStore};

/// Create, list or revoke tokens for clients that connect by WebSocket
#[derive(Debug, Args)]
#[command(after_help = "\
A program sends its token as `Authorization: Bearer TOKEN`, a web page as the subprotocol `bearer.TOKEN` in addition to `pi`.

Examples:
  push token new --name laptop
  push token list
  push token revoke tok_01H")]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    verb: TokenVerb,
}

#[derive(Debug, Subcommand)]
enum TokenVerb {
    New(NewArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
}

/// Create a token and print it; it is shown only once
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  push token new --name laptop > token\n  push token new --name editor --role owner"
)]
struct NewArgs {
    /// A name for the token
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// What its holder may do: observer (read), prompter (also start sessions, send and cancel), approver (also
    /// decide approvals) or owner (everything)
    #[arg(long, value_name = "ROLE", default_value = "approver", value_parser = parse_role)]
    role: TokenRole,
}

/// List the ids and names of tokens
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  push token list --json | jq -r '.tokens[].tokenId'")]
struct ListArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Revoke a token: new connections with it are refused; open connections stay
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  push token revoke tok_01H")]
struct RevokeArgs {
    /// Its id, or a unique prefix of it
    id: String,
}

/// Creates, lists or revokes tokens.
pub(crate) async fn run(args: TokenArgs, context: &mut Context) -> Result<Exit, CliError> {
    let tokens = TokenStore::new(&context.paths()?.state);
    match args.verb {
        TokenVerb::New(args) => new(&args, &tokens, context)?,
        TokenVerb::List(args) => list(&args, &tokens, context)?,
        TokenVerb::Revoke(args) => revoke(&args, &tokens, context)?,
    }
    Ok(Exit::SUCCESS)
}

fn parse_role(name: &str) -> Result<TokenRole, String> {
    let known = TokenRole::ALL.into_iter().find(|role| role.name() == name);
    known.ok_or_else(|| "a role is owner, approver, prompter or observer".to_owned())
}

fn new(args: &NewArgs, tokens: &TokenStore, context: &mut Context) -> Result<(), CliError> {
    let (token, secret) = tokens.add(args.name.as_deref(), args.role, now())?;
    context.console.line(&secret)?;
    let (id, role) = (&token.token_id, token.role.name());
    context.console.note(&format!("created {id} with the role {role}; it is shown only once, pushd stores its digest"));
    Ok(())
}

fn list(args: &ListArgs, tokens: &TokenStore, context: &mut Context) -> Result<(), CliError> {
    let known = tokens.list()?;
    if args.json {
        let rows: Vec<Value> = known.iter().map(row).collect();
        context.console.json(&json!({"tokens": rows}))?;
        return Ok(());
    }
    if known.is_empty() {
        context.console.notice("no tokens; `push token new` creates one");
    }
    let cells = |token: &TokenRecord| {
        let since = age(now().saturating_sub(token.created_at));
        let name = sanitize_line(token.name.as_deref().unwrap_or("-"));
        [sanitize_line(ids::short(&token.token_id)), token.role.name().to_owned(), since, name].map(plain)
    };
    let rows: Vec<_> = known.iter().map(cells).collect();
    let columns = [Column::whole("ID"), Column::whole("ROLE"), Column::whole("AGE"), Column::shortened("NAME", 4)];
    context.console.text(&table(columns, &rows, &context.console))?;
    Ok(())
}

fn row(token: &TokenRecord) -> Value {
    json!({"tokenId": token.token_id, "name": token.name, "role": token.role.name(), "createdAt": token.created_at})
}

fn revoke(args: &RevokeArgs, tokens: &TokenStore, context: &mut Context) -> Result<(), CliError> {
    let known: Vec<String> = tokens.list()?.into_iter().map(|token| token.token_id).collect();
    let id = ids::resolve("token", "tok_", &args.id, &known)?;
    tokens.revoke(&id)?;
    context.console.line(&format!("revoked {}", sanitize_line(&id)))?;
    Ok(())
}
