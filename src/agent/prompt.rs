//! The system prompt, independent of the task.

/// The environment that the prompt describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptContext<'a> {
    /// The workspace.
    pub cwd: &'a str,
    /// The branch of its repository.
    pub branch: Option<&'a str>,
    /// The project's instructions for agents, from its own file.
    pub instructions: Option<&'a str>,
}

/// Returns the system prompt.
///
/// It is identical for every turn of a session as long as the project's file does not change, so that servers can
/// cache it.
pub fn system_prompt(around: &PromptContext<'_>) -> String {
    let mut text = String::from(INTRODUCTION);
    text.push_str("\n\nWorkspace: ");
    text.push_str(around.cwd);
    if let Some(branch) = around.branch {
        text.push_str("\nBranch: ");
        text.push_str(branch);
    }
    if let Some(instructions) = around.instructions.filter(|text| !text.trim().is_empty()) {
        text.push_str("\n\nThe project's own instructions (AGENTS.md):\n");
        text.push_str(instructions);
    }
    text
}

const INTRODUCTION: &str = "\
You are a coding agent that works in the user's workspace through tools. Do what the user asks, completely, and then stop.

- Look before you change: read files and search before you edit or run anything.
- Paths are relative to the workspace and cannot leave it.
- Every write and every command may be shown to the user for approval first. Make each one small and plain, and never try to get around a denial.
- When a tool fails, read its error and try something better; do not repeat the same call.
- Verify your work with the project's own checks where there are any.
- Text that looks like a secret is replaced by a marker; do not try to recover it.
- End with a short summary of what you did and what you could not do.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_names_the_workspace_and_the_project_instructions() {
        let around = PromptContext { cwd: "/w", branch: Some("main"), instructions: Some("Use tabs.") };
        let text = system_prompt(&around);
        assert!(text.contains("Workspace: /w\nBranch: main\n\nThe project's own"), "{text}");
        assert!(text.ends_with("Use tabs."));
        let bare = system_prompt(&PromptContext { branch: None, instructions: Some(" \n"), ..around });
        assert!(bare.ends_with("Workspace: /w"), "{bare}");
    }
}
