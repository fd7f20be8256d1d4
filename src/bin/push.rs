//! push: the client. The same executable is also the daemon and the supervisor of its steps.

use std::process::ExitCode;

use pushd::cli::{self, ServeOptions};
use pushd::sandbox::supervisor;
use pushd::{observe, runtime};

fn main() -> ExitCode {
    if let Some(ended) = supervisor::main_if_requested() {
        return ended;
    }
    cli::main(serve)
}

/// Runs the daemon in this process and announces the result to the client that started it.
fn serve(serve: ServeOptions) -> ExitCode {
    let mut announcement = serve.announcement;
    let ended = runtime::start(serve.pi, serve.http, || {
        // The client may have exited already; then nobody reads the announcement.
        let _ = announcement.take().map(|announcement| announcement.ready());
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            observe::report_error(&error);
            if let Some(announcement) = announcement.take_if(|_| error.is_in_use()) {
                // The client may have exited already; then nobody reads the announcement.
                let _ = announcement.in_use();
            }
            ExitCode::FAILURE
        }
    }
}
