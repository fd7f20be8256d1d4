//! Notifications: commands of the user's own configuration.

use serde_json::{Value, json};

use crate::support::home::{Home, wait_until};

#[test]
fn notifiers_get_what_has_happened_and_their_failure_affects_no_run() {
    let home = Home::new();
    let log = home.path().join("notices");
    let command = format!("cat >> '{}'", log.display());
    std::fs::create_dir_all(home.path().join(".config/push")).unwrap();
    home.write(
        ".config/push/config.toml",
        &format!(
            "[notify]\napproval = \"{command}\"\nrun_failed = \"{command}\"\nrun_complete = \"{command}; exit 7\"\n"
        ),
    );
    assert_eq!(home.push(&["run", "$ true"]).code, Some(0));
    assert_eq!(home.push(&["run", "$ false"]).code, Some(1));
    home.push(&["run", "--detach", "$? echo \u{1b}[2J"]);
    let notices = || -> Vec<Value> {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    wait_until("three notices", || notices().len() == 3);
    let find = |event: &str| notices().into_iter().find(|notice| notice["event"] == event).unwrap();
    let (complete, failed, approval) = (find("run_complete"), find("run_failed"), find("approval"));
    assert_eq!((&complete["title"], &complete["approvalId"]), (&json!("Run complete"), &json!(null)));
    assert_eq!(failed["title"], "Run failed");
    assert!(approval["approvalId"].as_str().unwrap().starts_with("appr_"), "{approval}");
    assert!(!approval["text"].as_str().unwrap().contains('\u{1b}'), "{approval}");
}

#[test]
fn a_project_cannot_set_a_notifier() {
    let home = Home::new();
    std::fs::create_dir_all(home.path().join(".push-project/.push")).unwrap();
    home.write(".push-project/.push/config.toml", "[notify]\nrun_complete = \"touch /tmp/x\"\n");
    let cwd = home.path().join(".push-project");
    let out = home.push(&["run", "--cwd", cwd.to_str().unwrap(), "$ true"]);
    assert_ne!(out.code, Some(0));
    assert!(out.err.contains("notify.run_complete") && out.err.contains("reserved for your own"), "{}", out.err);
}

#[test]
fn the_desktop_shows_notices_where_it_can() {
    use std::os::unix::fs::PermissionsExt;

    let home = Home::new();
    for directory in [".config/push", "bin"] {
        std::fs::create_dir_all(home.path().join(directory)).unwrap();
    }
    home.write(".profile", "PATH=$HOME/bin:$PATH\nexport PATH\n");
    home.write(
        "bin/notify-send",
        "#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$HOME/shown.part\" && mv \"$HOME/shown.part\" \"$HOME/shown\"\n",
    );
    let script = home.path().join("bin/notify-send");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    home.write(".config/push/config.toml", "[notify]\ndesktop = true\n");
    assert_eq!(home.push(&["run", "$ echo '--urgency=critical'; false"]).code, Some(1));
    home.wait_for_text("shown", "Run failed");
    let shown = home.read("shown");
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[..3], ["--app-name=push", "--", "Run failed"], "no text is an option: {shown}");
    assert_eq!(lines.len(), 4, "{shown}");
}
