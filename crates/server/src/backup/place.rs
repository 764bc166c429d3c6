//! The folders and names of backups.
//!
//! Invariant: a folder that an operator names is below the one of the node's configuration.

use std::path::{Component, Path, PathBuf};
use time::UtcDateTime;

/// `folder` below `root`, if it is there: relative to it, or with it at its beginning.
pub(super) fn below(root: &Path, folder: &Path) -> Option<PathBuf> {
    let rest = folder.strip_prefix(root).unwrap_or(folder);
    let is_plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
    is_plain.then(|| root.join(rest))
}

/// The names of the folders in a folder; none if it is not there.
pub(super) fn folders_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let folder = |entry: std::fs::DirEntry| {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        entry.file_name().into_string().ok().filter(|_| is_folder)
    };
    entries.filter_map(|entry| folder(entry.ok()?)).collect()
}

/// The name of a backup that was given none: the time, so that names are in the order of the backups, and the node.
pub(super) fn default_name(unix_seconds: u64, node: &str) -> String {
    let time = UtcDateTime::from_unix_timestamp(unix_seconds.cast_signed()).unwrap_or(UtcDateTime::MAX);
    let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
    let (hour, minute, second) = time.as_hms();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@+:".contains(c);
    let node: String = node.chars().map(|c| if plain(c) { c } else { '_' }).take(96).collect();
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z-{node}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::backup::check_name;

    #[test]
    fn backups_lie_below_the_configured_folder() {
        let root = Path::new("/b/root");
        let at = |folder: &str| below(root, Path::new(folder));
        assert_eq!(at("daily"), Some(PathBuf::from("/b/root/daily")));
        assert_eq!(at("/b/root/daily/x"), Some(PathBuf::from("/b/root/daily/x")));
        assert_eq!(at("/b/root"), Some(PathBuf::from("/b/root/")));
        for outside in ["/etc", "..", "daily/../..", "/b/root/../x", "/b/rootless"] {
            assert_eq!(at(outside), None, "{outside}");
        }
    }

    #[test]
    fn a_name_is_the_time_and_the_node() {
        assert_eq!(default_name(0, "a@h"), "19700101T000000Z-a@h");
        assert_eq!(default_name(951_827_696, "a/b@h"), "20000229T123456Z-a_b@h");
        assert_eq!(default_name(4_107_542_399, "n"), "21000228T235959Z-n");
        assert!(check_name(&default_name(1, &"x".repeat(300))).is_ok());
    }
}
