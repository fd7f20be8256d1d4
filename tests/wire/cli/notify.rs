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
