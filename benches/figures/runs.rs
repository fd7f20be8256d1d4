//! Overhead of a run with one step.

use std::process::{Command, Stdio};
use std::time::Instant;

use super::daemon::Home;
use super::table::{Table, median};

const WARM: usize = 40;
const COLD: usize = 15;

/// `push run` with and without a running daemon, compared with the bare command.
pub(crate) fn measure(table: &mut Table) {
    let bare = median((0..WARM).map(|_| time(Command::new("sh").args(["-c", "true"]))).collect());
    let home = Home::with_daemon();
    let warm = (0..WARM).map(|_| time(&mut home.push(&["run", "$ true"])));
    let warm = median(warm.collect());
    table.compare("push run '$ true', daemon running", "ms", warm, ("sh -c true", bare));
    drop(home);
    let home = Home::new();
    let cold = (0..COLD).map(|_| {
        let took = time(&mut home.push(&["run", "$ true"]));
        let stopped = home.push(&["daemon", "stop"]).output().expect("the client").status;
        assert!(stopped.success(), "the daemon does not stop");
        took
    });
    let cold = median(cold.collect());
    table.compare("push run '$ true', no daemon", "ms", cold, ("sh -c true", bare));
}

fn time(command: &mut Command) -> f64 {
    let begun = Instant::now();
    let status = command.stdout(Stdio::null()).status().expect("a command");
    assert!(status.success(), "{command:?}: {status}");
    begun.elapsed().as_secs_f64() * 1e3
}
