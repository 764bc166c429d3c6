//! A start finds damage only where something was silently damaged, fails only for a cause, and after a clean
//! stop has nothing to make good.

use super::answers::Causes;
use super::{Verdict, Violation};
use engine::store::OpenReport;

const DAMAGE: &str = "no damage without a cause";
const START: &str = "a node starts";
const CLEAN: &str = "a clean stop leaves nothing to do";

/// Checks what a start has found. `after_clean_stop`: no other start has been tried since one.
pub fn check_start(report: &OpenReport, after_clean_stop: bool, causes: Causes) -> Verdict {
    if let Some(damage) = report.damage.first().filter(|_| !causes.rotten) {
        return Err(Violation::new(DAMAGE, format!("a start found {damage}")));
    }
    if after_clean_stop && (!report.clean || report.replayed > 0 || !report.torn.is_empty()) {
        return Err(Violation::new(CLEAN, format!("the next start found {report:?}")));
    }
    Ok(())
}

/// Checks that a start had a cause to fail.
pub fn check_failed_start(error: &engine::Error, causes: Causes) -> Verdict {
    let excused = match error {
        engine::Error::Damaged(_) | engine::Error::Malformed(_) | engine::Error::Format { .. } => {
            causes.rotten
        }
        _ => causes.disk_failed || causes.rotten,
    };
    let checker = if matches!(error, engine::Error::Damaged(_)) { DAMAGE } else { START };
    if excused {
        Ok(())
    } else {
        Err(Violation::new(checker, format!("a start failed without a cause: {error}")))
    }
}
