//! The interface of a tool: its definition for models, and what a call of it is, needs and does.
//!
//! [`Tool`] is what a tool implements. [`AnyTool`] and [`Call`] are the same without the type of the arguments, so
//! that tools of all types are in one list; every [`Tool`] has them.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::mpsc;

use super::approval_digest::ApprovalDigest;
use super::approval_question::CallDescription;
use super::context::{ExecutionResult, ToolContext};
use super::error::ToolError;
use crate::sandbox::Chunk;
use crate::sandbox::risk::{Category, Escalation, PathContext, RiskAssessment};

/// A tool that a model may call.
///
/// The debug formats of the tool and of the arguments identify a call in its approval digest, so they must contain
/// everything that decides what the call does.
pub trait Tool: fmt::Debug + Send + Sync + 'static {
    /// The parsed and validated arguments of a call.
    type Args: fmt::Debug + Clone + Send + Sync + 'static;

    /// Returns the name, which is unique among the tools of a daemon.
    fn name(&self) -> &str;

    /// Returns the description for models.
    fn description(&self) -> &str;

    /// Returns the JSON Schema of the arguments, which are an object; [`schema`](super::schema) derives it from a
    /// type.
    fn schema(&self) -> Value;

    /// Returns the category of all calls. Tools of the category network are offered only where it is allowed.
    fn category(&self) -> Category;

    /// Parses the arguments of a call; [`parse_arguments`](super::parse_arguments) does so strictly.
    fn parse(&self, args: &str) -> Result<Self::Args, ToolError>;

    /// Assesses a call by its arguments alone: the resources that it accesses, and their risk.
    fn assess(&self, args: &Self::Args, escalation: Escalation, paths: &PathContext) -> RiskAssessment;

    /// Describes a call for an approval; it reads the workspace and changes nothing.
    ///
    /// `digest` covers the arguments. The tool adds what the approval depends on besides them, such as the contents of
    /// files. A call that cannot succeed has no description, but the error that it would end with.
    fn describe(
        &self,
        args: &Self::Args,
        digest: ApprovalDigest,
        context: &ToolContext,
    ) -> impl Future<Output = Result<CallDescription, ToolError>> + Send;

    /// Makes the call. Output that is to be shown while the call runs is sent to `out`; dropping the future stops the
    /// call.
    fn run(
        &self,
        args: Self::Args,
        context: &ToolContext,
        out: mpsc::Sender<Chunk>,
    ) -> impl Future<Output = ExecutionResult> + Send;

    /// Returns the file paths in the arguments. They are resolved for the decision, and checked against denied paths.
    fn paths<'a>(&self, _args: &'a mut Self::Args) -> Vec<&'a mut String> {
        Vec::new()
    }

    /// Returns the permissions that a call requests beyond the sandbox.
    fn escalation(&self, _args: &Self::Args) -> Escalation {
        Escalation::default()
    }

    /// Resolves the host of a call for its assessment, and pins the addresses. Fails where the network is not allowed.
    fn resolve_addresses(
        &self,
        _args: &Self::Args,
        _context: &ToolContext,
    ) -> impl Future<Output = Result<Vec<IpAddr>, ToolError>> + Send {
        std::future::ready(Ok(Vec::new()))
    }

    /// Computes the digest of an approved call again, before it is made; `None` if [`run`](Tool::run) compares it.
    ///
    /// A tool that adds to the digest in [`describe`](Tool::describe) adds the same here.
    fn recompute_digest(
        &self,
        _args: &Self::Args,
        digest: ApprovalDigest,
        _context: &ToolContext,
    ) -> impl Future<Output = Result<Option<ApprovalDigest>, ToolError>> + Send {
        std::future::ready(Ok(Some(digest)))
    }

    /// Returns whether calls start programs, which need the user's environment.
    fn starts_programs(&self) -> bool {
        false
    }

    /// Returns whether a call that names a directory accesses everything below it.
    fn covers_directories(&self) -> bool {
        false
    }

    /// Returns whether an approval rule for this tool may have a pattern.
    fn takes_rule_pattern(&self) -> bool {
        true
    }

    /// Returns the command that a call runs in the sandbox.
    fn confined_command<'a>(&self, _args: &'a Self::Args) -> Option<&'a str> {
        None
    }

    /// Returns the arguments for a call that the user made: commands run with bash if it is installed.
    fn with_bash(&self, args: Self::Args) -> Self::Args {
        args
    }
}

/// A future that a tool returns.
pub type ToolFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A [`Tool`] with arguments of any type.
pub trait AnyTool: fmt::Debug + Send + Sync {
    /// See [`Tool::name`].
    fn name(&self) -> &str;
    /// See [`Tool::description`].
    fn description(&self) -> &str;
    /// See [`Tool::schema`].
    fn schema(&self) -> Value;
    /// See [`Tool::category`].
    fn category(&self) -> Category;
    /// See [`Tool::starts_programs`].
    fn starts_programs(&self) -> bool;
    /// See [`Tool::covers_directories`].
    fn covers_directories(&self) -> bool;
    /// See [`Tool::takes_rule_pattern`].
    fn takes_rule_pattern(&self) -> bool;
    /// See [`Tool::parse`].
    fn parse(self: Arc<Self>, args: &str) -> Result<Box<dyn Call>, ToolError>;
}

/// A call of a tool with arguments of any type. Its debug format is that of the tool, with the arguments in
/// parentheses.
pub trait Call: fmt::Debug + Send + Sync {
    /// Returns the tool.
    fn tool(&self) -> &dyn AnyTool;
    /// Returns a copy of the call.
    fn copy(&self) -> Box<dyn Call>;
    /// See [`Tool::paths`].
    fn paths(&mut self) -> Vec<&mut String>;
    /// See [`Tool::escalation`].
    fn escalation(&self) -> Escalation;
    /// See [`Tool::assess`].
    fn assess(&self, escalation: Escalation, paths: &PathContext) -> RiskAssessment;
    /// See [`Tool::confined_command`].
    fn confined_command(&self) -> Option<&str>;
    /// See [`Tool::with_bash`].
    fn with_bash(self: Box<Self>) -> Box<dyn Call>;
    /// See [`Tool::resolve_addresses`].
    fn resolve_addresses<'a>(&'a self, context: &'a ToolContext) -> ToolFuture<'a, Result<Vec<IpAddr>, ToolError>>;
    /// See [`Tool::describe`].
    fn describe<'a>(
        &'a self,
        digest: ApprovalDigest,
        context: &'a ToolContext,
    ) -> ToolFuture<'a, Result<CallDescription, ToolError>>;
    /// See [`Tool::recompute_digest`].
    fn recompute_digest<'a>(
        &'a self,
        digest: ApprovalDigest,
        context: &'a ToolContext,
    ) -> ToolFuture<'a, Result<Option<ApprovalDigest>, ToolError>>;
    /// See [`Tool::run`].
    fn run<'a>(self: Box<Self>, context: &'a ToolContext, out: mpsc::Sender<Chunk>) -> ToolFuture<'a, ExecutionResult>;
}

impl<T: Tool> AnyTool for T {
    fn name(&self) -> &str {
        Tool::name(self)
    }

    fn description(&self) -> &str {
        Tool::description(self)
    }

    fn schema(&self) -> Value {
        Tool::schema(self)
    }

    fn category(&self) -> Category {
        Tool::category(self)
    }

    fn starts_programs(&self) -> bool {
        Tool::starts_programs(self)
    }

    fn covers_directories(&self) -> bool {
        Tool::covers_directories(self)
    }

    fn takes_rule_pattern(&self) -> bool {
        Tool::takes_rule_pattern(self)
    }

    fn parse(self: Arc<Self>, args: &str) -> Result<Box<dyn Call>, ToolError> {
        let args = Tool::parse(&*self, args)?;
        Ok(Box::new(TypedCall { tool: self, args }))
    }
}

/// A tool and the arguments of a call.
struct TypedCall<T: Tool> {
    tool: Arc<T>,
    args: T::Args,
}

impl<T: Tool> fmt::Debug for TypedCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&call_text(&*self.tool, &self.args))
    }
}

/// Returns the text that identifies a call in its approval digest.
pub(super) fn call_text<T: Tool>(tool: &T, args: &T::Args) -> String {
    format!("{tool:?}({args:?})")
}

impl<T: Tool> Call for TypedCall<T> {
    fn tool(&self) -> &dyn AnyTool {
        &*self.tool
    }

    fn copy(&self) -> Box<dyn Call> {
        Box::new(Self { tool: Arc::clone(&self.tool), args: self.args.clone() })
    }

    fn paths(&mut self) -> Vec<&mut String> {
        self.tool.paths(&mut self.args)
    }

    fn escalation(&self) -> Escalation {
        self.tool.escalation(&self.args)
    }

    fn assess(&self, escalation: Escalation, paths: &PathContext) -> RiskAssessment {
        self.tool.assess(&self.args, escalation, paths)
    }

    fn confined_command(&self) -> Option<&str> {
        self.tool.confined_command(&self.args)
    }

    fn with_bash(self: Box<Self>) -> Box<dyn Call> {
        let Self { tool, args } = *self;
        let args = tool.with_bash(args);
        Box::new(Self { tool, args })
    }

    fn resolve_addresses<'a>(&'a self, context: &'a ToolContext) -> ToolFuture<'a, Result<Vec<IpAddr>, ToolError>> {
        Box::pin(self.tool.resolve_addresses(&self.args, context))
    }

    fn describe<'a>(
        &'a self,
        digest: ApprovalDigest,
        context: &'a ToolContext,
    ) -> ToolFuture<'a, Result<CallDescription, ToolError>> {
        Box::pin(self.tool.describe(&self.args, digest, context))
    }

    fn recompute_digest<'a>(
        &'a self,
        digest: ApprovalDigest,
        context: &'a ToolContext,
    ) -> ToolFuture<'a, Result<Option<ApprovalDigest>, ToolError>> {
        Box::pin(self.tool.recompute_digest(&self.args, digest, context))
    }

    fn run<'a>(self: Box<Self>, context: &'a ToolContext, out: mpsc::Sender<Chunk>) -> ToolFuture<'a, ExecutionResult> {
        let Self { tool, args } = *self;
        Box::pin(async move { tool.run(args, context, out).await })
    }
}
