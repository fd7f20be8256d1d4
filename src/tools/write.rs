//! `sandbox_write_file`: creates or replaces a file.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use super::bench::Site;
use super::edit::Planned;
use super::fault::{Fault, FaultKind};
use super::request::Request;
use crate::sandbox::ground::GroundError;

pub(super) const NAME: &str = "sandbox_write_file";
pub(super) const DESCRIPTION: &str = "Write a complete file of the workspace: create it, with its parent directories, or \
    replace an existing one, which keeps its mode. To change a part of a file, use sandbox_edit_file.";

/// The arguments.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Args {
    /// The file, relative to the workspace.
    pub path: String,
    /// The complete content.
    pub content: String,
}

pub(super) fn write(args: &Args, site: &Site) -> Result<String, Fault> {
    check_size(&args.path, args.content.len(), site)?;
    if site.is_bound() {
        site.check(&Request::Write(args.clone()), &[plan(args.clone(), site)?])?;
    }
    let written = site.ground.replace(Path::new(&args.path), args.content.as_bytes())?;
    let verb = if written.created { "created" } else { "replaced" };
    Ok(format!("{verb} {} ({} bytes)", args.path, written.bytes))
}

/// Computes the change, without writing it.
pub(super) fn plan(args: Args, site: &Site) -> Result<Planned, Fault> {
    site.ground.may_change(Path::new(&args.path))?;
    check_size(&args.path, args.content.len(), site)?;
    let before = match site.ground.content(Path::new(&args.path), site.limits.file_bytes) {
        Ok(before) => Some(before),
        Err(GroundError::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Planned { path: args.path, before, after: Some(args.content.into_bytes()) })
}

/// Refuses a content that is larger than the limit.
pub(super) fn check_size(path: &str, bytes: usize, site: &Site) -> Result<(), Fault> {
    let most = site.limits.file_bytes;
    if bytes as u64 <= most {
        return Ok(());
    }
    Err(Fault::new(FaultKind::TooLarge, format!("{path} would have {bytes} bytes; the limit is {most}")))
}

#[cfg(test)]
mod tests {
    use super::super::limits::Limits;
    use super::*;

    #[test]
    fn a_file_is_written_and_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let site = Site::test(dir.path(), Limits { file_bytes: 6, ..Limits::default() });
        let write =
            |path: &str, content: &str| write(&Args { path: path.into(), content: content.into() }, &site);
        assert_eq!(write("a/b", "one\n"), Ok("created a/b (4 bytes)".to_owned()));
        assert_eq!(write("a/b", "two"), Ok("replaced a/b (3 bytes)".to_owned()));
        assert_eq!(std::fs::read(dir.path().join("a/b")).unwrap(), b"two");
        assert_eq!(write("a/b", "too long").unwrap_err().kind, FaultKind::TooLarge);
        assert_eq!(write("a", "x").unwrap_err().kind, FaultKind::IsDirectory);
        assert_eq!(write("../x", "x").unwrap_err().kind, FaultKind::OutsideWorkspace);
        assert_eq!(std::fs::read(dir.path().join("a/b")).unwrap(), b"two");
    }
}
