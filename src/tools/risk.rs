//! The risk of calls that access files, from their paths alone.

use crate::sandbox::risk::{self, Category, PathContext, ResourceAccess, Risk, RiskAssessment};

/// Assesses a call that reads files or directories.
pub fn assess_reads<'a>(paths: impl IntoIterator<Item = &'a str>, path_context: &PathContext) -> RiskAssessment {
    let read = |path: &str| {
        let path_ref = path_context.resolve_file(path);
        (ResourceAccess::Read(path_ref.clone()), risk::read_and_write_risk(&path_ref, path_context).0)
    };
    risk::assess_tool(Category::Read, paths.into_iter().map(read).collect(), Risk::Low)
}

/// Assesses a call that writes files.
pub fn assess_writes<'a>(paths: impl IntoIterator<Item = &'a str>, path_context: &PathContext) -> RiskAssessment {
    let write = |path: &str| {
        let path_ref = path_context.resolve_file(path);
        (ResourceAccess::Write(path_ref.clone()), risk::read_and_write_risk(&path_ref, path_context).1)
    };
    risk::assess_tool(Category::Write, paths.into_iter().map(write).collect(), Risk::Medium)
}
