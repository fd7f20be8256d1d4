//! The risk and the accesses of a call, from its tool and its arguments alone.

use super::edit::Edit;
use super::request::Request;
use crate::sandbox::address::{self, AddressClass};
use crate::sandbox::risk::{self, Category, Escalation, PathContext, ResourceAccess, Risk, RiskAssessment};
use crate::sandbox::shell::Limits;

pub(super) fn assess(
    request: &Request,
    escalation: Escalation,
    path_context: &PathContext,
    limits: Limits,
) -> RiskAssessment {
    let read = |path: &str| {
        let path_ref = path_context.resolve_file(path);
        (ResourceAccess::Read(path_ref.clone()), risk::read_and_write_risk(&path_ref, path_context).0)
    };
    let write = |path: &str| {
        let path_ref = path_context.resolve_file(path);
        (ResourceAccess::Write(path_ref.clone()), risk::read_and_write_risk(&path_ref, path_context).1)
    };
    let reading =
        |paths: Vec<&str>| risk::assess_tool(Category::Read, paths.into_iter().map(read).collect(), Risk::Low);
    match request {
        Request::Read(args) => reading(vec![&args.path]),
        Request::List(args) => reading(vec![args.path.as_deref().unwrap_or(".")]),
        Request::Search(args) => reading(vec![args.path.as_deref().unwrap_or(".")]),
        Request::Status(_) => reading(vec!["."]),
        Request::Diff(args) => {
            let paths: Vec<&str> = args.paths.iter().flatten().map(String::as_str).collect();
            reading(if paths.is_empty() { vec!["."] } else { paths })
        }
        Request::Write(args) => risk::assess_tool(Category::Write, vec![write(&args.path)], Risk::Medium),
        Request::Edit(Edit::Replace { path, .. }) => {
            risk::assess_tool(Category::Write, vec![write(path)], Risk::Medium)
        }
        Request::Edit(Edit::Patch(patch)) => {
            let files = patch.files.iter().map(|file| write(&file.path)).collect();
            risk::assess_tool(Category::Write, files, Risk::Medium)
        }
        Request::Exec(args) => {
            risk::assess_command(&args.command, args.cwd.as_deref(), escalation, path_context, limits)
        }
        Request::Commit(args) => {
            let mut accesses = vec![(ResourceAccess::Git("commit".to_owned()), Risk::Medium)];
            // A commit shows a file to everybody who reads the repository, which matters for hidden files.
            let everything = (args.all == Some(true)).then_some(".");
            let paths = args.paths.iter().flatten().map(String::as_str).chain(everything);
            let path_refs = paths.map(|path| path_context.resolve_file(path));
            let hidden =
                path_refs.filter(|path_ref| path_context.hides(path_ref) || path_context.contains_hidden(path_ref));
            accesses.extend(hidden.map(|path_ref| (ResourceAccess::Read(path_ref), Risk::High)));
            risk::assess_tool(Category::Git, accesses, Risk::Medium)
        }
        Request::Fetch(args) => {
            let host = risk::host_of_url(&args.url);
            let named = host.as_deref().map_or(AddressClass::Private, address::classify_host);
            let mut accesses = vec![(ResourceAccess::Network(host), network_risk(named))];
            // A permission for a host name must not give access to this machine or a private network under that
            // name.
            let found = path_context.addresses().iter().map(|found| (found, address::classify_ip(*found)));
            for (address, reached) in found.filter(|(_, reached)| *reached > named) {
                accesses.push((ResourceAccess::Network(Some(address.to_string())), network_risk(reached)));
            }
            let risk = accesses.iter().map(|(_, risk)| *risk).max().unwrap_or(Risk::High);
            risk::assess_tool(Category::Network, accesses, risk)
        }
    }
}

/// The risk of a connection to an address of this class.
const fn network_risk(reached: AddressClass) -> Risk {
    match reached {
        AddressClass::Public => Risk::Medium,
        AddressClass::Private => Risk::High,
        AddressClass::Metadata => Risk::Critical,
    }
}
