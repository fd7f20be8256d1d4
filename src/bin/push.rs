//! push: the client, with the daemon and the keeper of its steps inside it.

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

/// Becomes the daemon, and tells the client that started it how that went.
fn serve(serve: Serve) -> ExitCode {
    let mut announcement = serve.announcement;
    let ended = runtime::start(serve.pi, || {
        // A client that did not wait for the word needs none.
        let _ = announcement.take().map(|announcement| announcement.ready());
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            observe::report(&error);
            if let Some(announcement) = announcement.take_if(|_| error.is_in_use()) {
                // A client that did not wait for the word needs none.
                let _ = announcement.in_use();
            }
            ExitCode::FAILURE
        }
    }
}
