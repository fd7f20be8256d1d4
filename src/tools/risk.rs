//! The risk and the accesses of a call, from its tool and its arguments alone.

use super::edit::Edit;
use super::request::Request;
use crate::sandbox::address::{self, Reachability};
use crate::sandbox::judge::{self, Category, Judgement, Place, Risk, What, Wish};
use crate::sandbox::shell::Limits;

pub(super) fn judge(request: &Request, wish: Wish, place: &Place, limits: Limits) -> Judgement {
    let read = |path: &str| {
        let spot = place.file(path);
        (What::Read(spot.clone()), judge::risks(&spot, place).0)
    };
    let write = |path: &str| {
        let spot = place.file(path);
        (What::Write(spot.clone()), judge::risks(&spot, place).1)
    };
    let looking =
        |paths: Vec<&str>| judge::tool(Category::Read, paths.into_iter().map(read).collect(), Risk::Low);
    match request {
        Request::Read(args) => looking(vec![&args.path]),
        Request::List(args) => looking(vec![args.path.as_deref().unwrap_or(".")]),
        Request::Search(args) => looking(vec![args.path.as_deref().unwrap_or(".")]),
        Request::Status(_) => looking(vec!["."]),
        Request::Diff(args) => {
            let paths: Vec<&str> = args.paths.iter().flatten().map(String::as_str).collect();
            looking(if paths.is_empty() { vec!["."] } else { paths })
        }
        Request::Write(args) => judge::tool(Category::Write, vec![write(&args.path)], Risk::Medium),
        Request::Edit(Edit::Replace { path, .. }) => {
            judge::tool(Category::Write, vec![write(path)], Risk::Medium)
        }
        Request::Edit(Edit::Patch(patch)) => {
            let files = patch.files.iter().map(|file| write(&file.path)).collect();
            judge::tool(Category::Write, files, Risk::Medium)
        }
        Request::Exec(args) => judge::command(&args.command, args.cwd.as_deref(), wish, place, limits),
        Request::Commit(args) => {
            let mut touches = vec![(What::Git("commit".to_owned()), Risk::Medium)];
            // A commit shows a file to everybody who reads the repository, which matters for hidden files.
            let everything = (args.all == Some(true)).then_some(".");
            let paths = args.paths.iter().flatten().map(String::as_str).chain(everything);
            let spots = paths.map(|path| place.file(path));
            let hidden = spots.filter(|spot| place.hides(spot) || place.holds_hidden(spot));
            touches.extend(hidden.map(|spot| (What::Read(spot), Risk::High)));
            judge::tool(Category::Git, touches, Risk::Medium)
        }
        Request::Fetch(args) => {
            let host = judge::host(&args.url);
            let named = host.as_deref().map_or(Reachability::Private, address::of_host);
            let mut touches = vec![(What::Network(host), of_reaching(named))];
            // A permission for a host name must not give access to this machine or a private network under that
            // name.
            for found in place.addresses() {
                let reached = address::of_address(*found);
                if reached > named {
                    touches.push((What::Network(Some(found.to_string())), of_reaching(reached)));
                }
            }
            let risk = touches.iter().map(|(_, risk)| *risk).max().unwrap_or(Risk::High);
            judge::tool(Category::Network, touches, risk)
        }
    }
}

/// The risk of a connection to an address of this class.
const fn of_reaching(reached: Reachability) -> Risk {
    match reached {
        Reachability::Public => Risk::Medium,
        Reachability::Private => Risk::High,
        Reachability::Metadata => Risk::Critical,
    }
}
