//! Discovery of slash commands, skills and tools.

use std::path::{Path, PathBuf};

use super::{Execution, OperationError, OperationReply, Result};
use crate::bounded_io::FileTaskError;
use crate::discovery;
use crate::kernel::command::Snapshot;
use crate::protocol::operation_result::{CommandRow, CommandSource, OperationResult, ToolRow};
use crate::provider::playbook;
use crate::tools::{AnyTool, Network};

impl Execution {
    pub(super) async fn slash_commands(&self) -> Result {
        let (cwd, version) = self.working_directory().await?;
        let (directory, home) = (cwd.clone(), self.service.home().to_owned());
        let find = move || (discovery::commands(&cwd, &home), discovery::skills(&cwd, &home));
        let (templates, skills) = self.run_blocking(&directory, find).await?;
        let template = |command: discovery::Command| CommandRow {
            name: command.name,
            description: command.description,
            source: CommandSource::Template,
            location: command.source.as_str().to_owned(),
            path: command.path.to_string_lossy().into_owned(),
        };
        let rows = templates.items.into_iter().map(template).chain(skills.items.into_iter().map(skill_row));
        Ok(OperationReply::at(OperationResult::SlashCommands(rows.collect()), version))
    }

    pub(super) async fn skills(&self) -> Result {
        let (cwd, version) = self.working_directory().await?;
        let home = self.service.home().to_owned();
        let found = self.run_blocking(&cwd.clone(), move || discovery::skills(&cwd, &home)).await?;
        let rows = found.items.into_iter().map(skill_row).collect();
        Ok(OperationReply::at(OperationResult::Skills(rows), version))
    }

    pub(super) async fn tools(&self) -> Result {
        let view = self.view().await?;
        let (snapshot, version) = self.describe(&view).await?;
        Ok(OperationReply::at(OperationResult::Tools(self.tool_rows(&snapshot).await), version))
    }

    /// Returns the tools that the session's provider may use.
    async fn tool_rows(&self, snapshot: &Snapshot) -> Vec<ToolRow> {
        let is_used =
            |tool: &&dyn AnyTool| snapshot.provider() != playbook::NAME || playbook::TOOLS.contains(&tool.name());
        let services = self.service.server().hub().services();
        let rules = services.model_config.run_config(snapshot.opening.cwd.as_ref()).await;
        let network = rules.map_or(Network::Off, |rules| rules.network());
        let row =
            |tool: &dyn AnyTool| ToolRow { name: tool.name().to_owned(), description: tool.description().to_owned() };
        services.tools.available(network).filter(is_used).map(row).collect()
    }

    /// Returns the working directory of the session's tools, and the session's version.
    pub(super) async fn working_directory(&self) -> Result<(PathBuf, u64)> {
        let view = self.view().await?;
        let (snapshot, version) = self.describe(&view).await?;
        Ok((PathBuf::from(&snapshot.opening.cwd), version))
    }

    /// Runs blocking work in a directory, with a deadline.
    pub(super) async fn run_blocking<T: Send + 'static>(
        &self,
        directory: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let files = &self.service.server().hub().services().files;
        files.run_in(directory, work).await.map_err(|why| match why {
            FileTaskError::Panicked => OperationError::Internal,
            FileTaskError::TimedOut(_) | FileTaskError::Busy => OperationError::message(why.to_string()),
        })
    }
}

fn skill_row(skill: discovery::Skill) -> CommandRow {
    CommandRow {
        name: skill.name,
        description: Some(skill.description),
        source: CommandSource::Skill,
        location: skill.source.as_str().to_owned(),
        path: skill.path.to_string_lossy().into_owned(),
    }
}
