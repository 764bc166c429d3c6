//! `annulet backup`: backups of nodes.
//!
//! * `create.rs`: asks running nodes for theirs, or reads a stopped one's folder. `verify.rs`: reads a backup back.
//!   `restore.rs`: makes a data folder of one. `bar.rs`: how far it is, for people.

mod bar;
mod create;
mod restore;
mod verify;

use crate::failure::{FAILED, Failure, UNUSABLE};
use ::backup::Error;

/// Commands for backups.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Back up running nodes, or the data folder of a stopped node. Files of an earlier backup in the same folder are
    /// not copied again.
    Create(create::Args),
    /// Cancel the running backup of a node.
    Stop(create::Stop),
    /// Verify a backup: read every byte and check its stores.
    Verify(verify::Args),
    /// Restore a backup into a new data folder.
    Restore(restore::Args),
}

/// Does it.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Create(args) => create::run(args),
        Command::Stop(args) => args.run(),
        Command::Verify(args) => verify::run(args),
        Command::Restore(args) => restore::run(args),
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match error {
            Error::NotBackup(_) | Error::Taken(_) | Error::NoRoom { .. } => UNUSABLE,
            Error::Damaged { .. }
            | Error::Stopped
            | Error::NotReady(_)
            | Error::Disk(_)
            | Error::Store(_) => FAILED,
        };
        Failure::new(code, error.to_string())
    }
}

/// Bytes, for people.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut number, mut unit) = (bytes as f64, 0);
    while number >= 1024.0 && unit + 1 < UNITS.len() {
        (number, unit) = (number / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{number:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_digit_behind_the_point() {
        let sizes = [0, 1023, 1024, 1536, 10 << 30, 3 << 50].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "10.0 GiB", "3072.0 TiB"]);
    }
}
