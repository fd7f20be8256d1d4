//! push: the client. The same executable is also the daemon and the supervisor of its steps.

use std::process::ExitCode;

use pushd::cli::{self, Serve};
use pushd::sandbox::keeper;
use pushd::{observe, runtime};

fn main() -> ExitCode {
    if let Some(ended) = keeper::main_if_asked() {
        return ended;
    }
    cli::main(serve)
}

/// Runs the daemon in this process and announces the result to the client that started it.
fn serve(serve: Serve) -> ExitCode {
    let mut announcement = serve.announcement;
    let ended = runtime::start(serve.pi, || {
        // The client may have exited already; then nobody reads the announcement.
        let _ = announcement.take().map(|announcement| announcement.ready());
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            observe::report(&error);
            if let Some(announcement) = announcement.take_if(|_| error.is_in_use()) {
                // The client may have exited already; then nobody reads the announcement.
                let _ = announcement.in_use();
            }
            ExitCode::FAILURE
        }
    }
}
