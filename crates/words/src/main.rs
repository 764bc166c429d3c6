//! The program of [`words`]: the same as `cargo xtask words`, without a build of `xtask`.

use clap::Parser;
use std::process::ExitCode;

/// Measure the words of pages, help and messages; fail where a bar is broken.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: words::Options,
}

fn main() -> ExitCode {
    match words::run(&Cli::parse().options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("words: {failure}");
            ExitCode::FAILURE
        }
    }
}
