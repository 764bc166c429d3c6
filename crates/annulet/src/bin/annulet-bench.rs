//! The program `annulet-bench`: the load generator, with the drivers of other servers. `annulet bench` runs it.
//!
//! Exit codes: 0 done, 1 it failed or the store was wrong, 2 the command cannot be run as given,
//! 3 a history has no verdict.

use annulet::failure::Failure;
use annulet::{VERSION, bench};
use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

/// Benchmark a store: run a workload, verify every answer, report latency and throughput.
#[derive(Parser)]
#[command(
    name = "annulet-bench",
    bin_name = "annulet bench",
    version = VERSION,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Args {
    #[command(subcommand)]
    command: bench::Command,
}

fn main() -> ExitCode {
    os::give_back_large_blocks();
    let done = bench::run(Args::parse().command);
    // Output that is still buffered may find its reader gone, or no room.
    let done = done.and_then(|()| Ok(std::io::stdout().flush()?));
    let Failure { code, text } = done.err().unwrap_or(Failure { code: 0, text: String::new() });
    if !text.is_empty() {
        // Where nobody listens, the exit code has to do.
        drop(writeln!(std::io::stderr(), "annulet: {text}"));
    }
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_fit_together() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }
}
