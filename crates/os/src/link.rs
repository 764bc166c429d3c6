//! Symbolic links that lead nowhere.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// What is wrong if `path`, or a folder on the way to it, is a symbolic link to something that is not there: what the
/// system says of such a path, "not found" or "file exists", misleads.
pub fn dangling_link(path: &Path) -> Option<String> {
    let ancestors: Vec<&Path> = path.ancestors().filter(|it| !it.as_os_str().is_empty()).collect();
    // From the root: the first one that leads nowhere is to blame.
    ancestors.into_iter().rev().find_map(|path| {
        let target = fs::read_link(path).ok()?;
        let is_missing = fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
        let (path, target) = (path.display(), target.display());
        is_missing.then(|| format!("{path} is a symbolic link to {target}, which does not exist"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_that_lead_nowhere_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink("nowhere", at("link")).unwrap();
        symlink(folder.path(), at("sound")).unwrap();
        for path in ["link", "link/below", "sound/link/below"] {
            let said = dangling_link(&at(path)).unwrap();
            assert!(said.ends_with("link is a symbolic link to nowhere, which does not exist"), "{said}");
        }
        for path in ["sound", "sound/new", "new", "new/below"] {
            assert_eq!(dangling_link(&at(path)), None);
        }
        fs::create_dir(at("nowhere")).unwrap();
        assert_eq!(dangling_link(&at("link/below")), None);
    }
}
