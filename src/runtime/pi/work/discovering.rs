//! What there is to use: slash commands, skills and tools.

use std::path::{Path, PathBuf};

use super::{Done, Failure, Job, Result};
use crate::bounded_io::FileTaskError;
use crate::discovery;
use crate::kernel::command::Snapshot;
use crate::protocol::pi::encode::{self, CommandRow, SkillRow, ToolRow};
use crate::protocol::pi::error_text;
use crate::provider::playbook;
use crate::tools::{AnyTool, Network};

impl Job {
    pub(super) async fn commands(&self) -> Result {
        let (cwd, version) = self.place().await?;
        let home = self.bureau.home().to_owned();
        let place = cwd.clone();
        let look = move || (discovery::commands(&cwd, &home), discovery::skills(&cwd, &home));
        let found = self.away(&place, look).await?;
        let templates = found.0.items.into_iter().map(|command| CommandRow {
            name: command.name,
            description: command.description,
            source: "template".to_owned(),
            location: Some(command.source.as_str().to_owned()),
            path: Some(command.path.to_string_lossy().into_owned()),
        });
        let skills = found.1.items.into_iter().map(|skill| CommandRow {
            name: format!("skill:{}", skill.name),
            description: Some(skill.description),
            source: "skill".to_owned(),
            location: Some(skill.source.as_str().to_owned()),
            path: Some(skill.path.to_string_lossy().into_owned()),
        });
        let rows: Vec<_> = templates.chain(skills).collect();
        Ok(Done::at(encode::commands(&rows), version))
    }

    pub(super) async fn skills(&self) -> Result {
        let (cwd, version) = self.place().await?;
        let home = self.bureau.home().to_owned();
        let found = self.away(&cwd.clone(), move || discovery::skills(&cwd, &home)).await?;
        let row = |skill: discovery::Skill| SkillRow {
            name: skill.name,
            description: skill.description,
            file: skill.path.to_string_lossy().into_owned(),
            source: skill.source.as_str().to_owned(),
        };
        let rows: Vec<_> = found.items.into_iter().map(row).collect();
        Ok(Done::at(encode::skills(&rows), version))
    }

    pub(super) async fn tools(&self) -> Result {
        let seat = self.seat().await?;
        let (snapshot, version) = self.describe(&seat).await?;
        Ok(Done::at(encode::tools(&self.tool_rows(&snapshot).await), version))
    }

    /// Returns the tools that the session's provider may use.
    async fn tool_rows(&self, snapshot: &Snapshot) -> Vec<ToolRow> {
        let is_used =
            |tool: &&dyn AnyTool| snapshot.provider() != playbook::NAME || playbook::TOOLS.contains(&tool.name());
        let services = self.bureau.server().hub().services();
        let rules = services.model_config.run_config(snapshot.opening.cwd.as_ref()).await;
        let network = rules.map_or(Network::Off, |rules| rules.network());
        let row =
            |tool: &dyn AnyTool| ToolRow { name: tool.name().to_owned(), description: tool.description().to_owned() };
        services.tools.available(network).filter(is_used).map(row).collect()
    }

    /// Returns where the session's tools work, and its version.
    pub(super) async fn place(&self) -> Result<(PathBuf, u64)> {
        let seat = self.seat().await?;
        let (snapshot, version) = self.describe(&seat).await?;
        Ok((PathBuf::from(&snapshot.opening.cwd), version))
    }

    /// Does something at a place that may wait for the disk, or for a mount that does not answer.
    pub(super) async fn away<T: Send + 'static>(
        &self,
        place: &Path,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let files = &self.bureau.server().hub().services().files;
        files.run_in(place, work).await.map_err(|why| match why {
            FileTaskError::Panicked => Failure::said(error_text::INTERNAL),
            FileTaskError::TimedOut(_) | FileTaskError::Busy => Failure::said(why.to_string()),
        })
    }
}
