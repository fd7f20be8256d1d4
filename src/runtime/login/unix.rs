//! Querying a login shell for its environment, on Unix.
//!
//! The shell runs in a process group of its own, without input, with a time limit and bounded output. On failure the
//! whole group is killed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::unistd::{User, geteuid};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::runtime::os::kill_group;

/// Returns the variables of the owner's login shell, or why they cannot be queried.
pub(super) async fn query_shell(home: &Path) -> Result<Vec<(OsString, OsString)>, String> {
    let shell = login_shell();
    let named = shell.display();
    let kind = shell.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if UNSUPPORTED_SHELLS.contains(&kind) {
        return Err(format!("{named} is not supported: it cannot run the POSIX command that prints its environment"));
    }
    let output = run_shell(&shell, home, SHELL_TIMEOUT).await.map_err(|why| format!("{named} {why}"))?;
    parse_variables(&output).ok_or_else(|| format!("{named} did not print its environment"))
}

/// Returns the login shell: `SHELL`, else the one in the user database.
fn login_shell() -> PathBuf {
    let set = std::env::var_os("SHELL").filter(|shell| !shell.is_empty()).map(PathBuf::from);
    let known = || User::from_uid(geteuid()).ok().flatten().map(|user| user.shell);
    set.or_else(known).filter(|shell| shell.is_absolute()).unwrap_or_else(|| PathBuf::from("/bin/sh"))
}

/// Runs the shell and returns its output.
async fn run_shell(shell: &Path, home: &Path, limit: Duration) -> Result<Vec<u8>, String> {
    let mut command = Command::new(shell);
    command.arg("-lc").arg(SCRIPT).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.process_group(0).kill_on_drop(true);
    if home.is_dir() {
        command.current_dir(home);
    }
    for (name, _) in std::env::vars_os() {
        if name.as_bytes().starts_with(b"PUSH") {
            command.env_remove(name);
        }
    }
    let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let stdout = child.stdout.take();
    let outcome = match timeout(limit, collect(&mut child, stdout)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("did not end within {} s", limit.as_secs_f64())),
    };
    if outcome.is_err() {
        kill_group(&mut child).await;
    }
    outcome
}

/// Reads until the shell has ended; its background processes may keep the output open for longer.
async fn collect(child: &mut Child, stdout: Option<ChildStdout>) -> Result<Vec<u8>, String> {
    let Some(mut stdout) = stdout else { return Err("has no output".to_owned()) };
    let (mut read, mut status) = (Vec::new(), None);
    loop {
        let wait = if status.is_some() { DRAIN_TIMEOUT } else { Duration::MAX };
        let open = tokio::select! {
            biased;
            ended = child.wait(), if status.is_none() => {
                status = Some(ended.map_err(|error| format!("cannot be waited for: {error}"))?);
                true
            }
            arrived = timeout(wait, stdout.read_buf(&mut read)) => matches!(arrived, Ok(Ok(bytes)) if bytes > 0),
        };
        if read.len() > MAX_OUTPUT_BYTES {
            return Err(format!("printed more than {MAX_OUTPUT_BYTES} bytes"));
        }
        if !open {
            break;
        }
    }
    let status = match status {
        Some(status) => status,
        None => child.wait().await.map_err(|error| format!("cannot be waited for: {error}"))?,
    };
    if status.success() { Ok(read) } else { Err(format!("failed ({status})")) }
}

/// Parses the variables after the mark; the output of profiles precedes it.
fn parse_variables(output: &[u8]) -> Option<Vec<(OsString, OsString)>> {
    let mark = output.windows(MARK.len()).rposition(|bytes| bytes == MARK)?;
    let entries = output.get(mark + MARK.len()..)?.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
    let variables: Vec<_> = entries
        .filter_map(|entry| {
            let at = entry.iter().position(|byte| *byte == b'=')?;
            let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
            Some((owned(entry.get(..at)?), owned(entry.get(at + 1..)?)))
        })
        .collect();
    (!variables.is_empty()).then_some(variables)
}

/// The script that the shell runs.
const SCRIPT: &str = r"printf '\0push-login-environment\0' && /usr/bin/env -0";
const MARK: &[u8] = b"\0push-login-environment\0";
/// Programs that cannot run the script, or are not shells. `fish` can: it has `-lc`, `&&` and the escapes of
/// `printf`.
const UNSUPPORTED_SHELLS: [&str; 5] = ["csh", "tcsh", "nologin", "false", "nu"];
/// The time limit of the shell.
const SHELL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the rest of the output is awaited after the shell has ended.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
/// The maximum size of its output.
const MAX_OUTPUT_BYTES: usize = 2 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use nix::sys::signal::killpg;
    use nix::unistd::Pid;
    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn a_shell_is_asked_whatever_its_profile_prints() {
        let folder = TempDir::new().unwrap();
        let shell = script(&folder, "echo Welcome=x\nexport TOLD='two\nlines'\nexec /bin/sh -c \"$2\"\n");
        let output = run_shell(&shell, folder.path(), SHELL_TIMEOUT).await.unwrap();
        let variables = parse_variables(&output).unwrap();
        let variable = variables.iter().find(|(name, _)| name == "TOLD").unwrap();
        assert_eq!(variable.1, "two\nlines");
        assert!(variables.iter().all(|(name, _)| name != "Welcome"));
    }

    #[tokio::test]
    async fn fish_is_asked_where_it_is_installed() {
        let Some(fish) = ["/usr/bin/fish", "/usr/local/bin/fish", "/opt/homebrew/bin/fish"]
            .into_iter()
            .map(PathBuf::from)
            .find(|path| path.exists())
        else {
            return;
        };
        assert!(!UNSUPPORTED_SHELLS.contains(&"fish"));
        let folder = TempDir::new().unwrap();
        let output = run_shell(&fish, folder.path(), SHELL_TIMEOUT).await.unwrap();
        let variables = parse_variables(&output).unwrap();
        assert!(variables.iter().any(|(name, value)| name == "PATH" && !value.is_empty()), "{variables:?}");
    }

    #[tokio::test]
    async fn a_background_process_does_not_delay_the_answer() {
        let folder = TempDir::new().unwrap();
        let shell = script(&folder, "sleep 6 &\nexec /bin/sh -c \"$2\"\n");
        assert!(parse_variables(&run_shell(&shell, folder.path(), SHELL_TIMEOUT).await.unwrap()).is_some());
    }

    #[tokio::test]
    async fn a_shell_that_hangs_fails_or_floods_is_killed_with_its_group_and_named() {
        let folder = TempDir::new().unwrap();
        for (text, why) in [
            ("echo $$ > pid\nsleep 60 & wait\n", "did not end within 0.3 s"),
            ("exit 3\n", "failed"),
            ("exec cat /dev/zero\n", "printed more than"),
        ] {
            let limit = if text.contains("sleep") { Duration::from_millis(300) } else { SHELL_TIMEOUT };
            let shell = script(&folder, text);
            let error = run_shell(&shell, folder.path(), limit).await.unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let pid: i32 = fs::read_to_string(folder.path().join("pid")).unwrap().trim().parse().unwrap();
        let ended = async {
            while killpg(Pid::from_raw(pid), None).is_ok() {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), ended).await.expect("its group is ended");
        assert!(
            run_shell(&folder.path().join("none"), folder.path(), SHELL_TIMEOUT).await.unwrap_err().contains("started")
        );
    }

    #[test]
    fn output_without_the_mark_is_no_environment() {
        assert_eq!(parse_variables(b"PATH=/bin\0HOME=/h\0"), None);
        assert_eq!(parse_variables(MARK), None);
        let two = [MARK, b"A=1\0B=\0C\0=x\0"].concat();
        let names: Vec<_> = parse_variables(&two).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["A", "B", ""]);
    }

    fn script(folder: &TempDir, text: &str) -> PathBuf {
        let path = folder.path().join("shell");
        // Written by a child process: a concurrent fork would inherit a descriptor that is open for writing.
        let text = format!("#!/bin/sh\n{text}");
        let written = std::process::Command::new("/bin/sh")
            .arg("-c")
            .arg("printf '%s' \"$1\" > \"$2.new\" && chmod 755 \"$2.new\" && mv \"$2.new\" \"$2\"")
            .args(["sh", &text])
            .arg(&path)
            .status()
            .unwrap();
        assert!(written.success() && fs::metadata(&path).unwrap().permissions().mode() & 0o100 != 0);
        path
    }
}
