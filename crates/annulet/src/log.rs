//! The log: lines on standard error, as many as `ANNULET_LOG` asks for.

use crate::failure::{FAILED, Failure};
use tracing_subscriber::filter::LevelFilter;

const VARIABLE: &str = "ANNULET_LOG";

/// Starts logging. To be called once.
pub fn start() -> Result<(), Failure> {
    let asked = std::env::var(VARIABLE).unwrap_or_default();
    let level = match &*asked {
        "" => Some(LevelFilter::INFO),
        word => word.parse().ok(),
    };
    let Some(level) = level else {
        let text = format!("{VARIABLE}: {asked:?} is none of off, error, warn, info, debug, trace");
        return Err(Failure::new(FAILED, text));
    };
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false).init();
    Ok(())
}
