//! How a person at a terminal calls this program: words that can be pasted into a shell.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name under which the program is installed.
const NAME: &str = "annulet";

/// What to type for this program: its name if the shell finds it there, else its path.
pub fn name() -> String {
    let Ok(program) = std::env::current_exe() else { return NAME.to_owned() };
    let identity = |path: &Path| path.metadata().ok().map(|file| (file.dev(), file.ino()));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    // The shell takes the first that it finds.
    let found = std::env::split_paths(&paths).map(|folder| folder.join(NAME)).find(|path| path.is_file());
    if found.is_some_and(|path| identity(&path).is_some() && identity(&path) == identity(&program)) {
        return NAME.to_owned();
    }
    let below =
        std::env::current_dir().ok().and_then(|here| program.strip_prefix(here).ok().map(Path::to_path_buf));
    // A path without a slash would be looked for elsewhere.
    let shown = below.map_or(program, |path| PathBuf::from(".").join(path));
    quoted(&shown.display().to_string())
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        for (word, shown) in
            [("./dev", "./dev"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("", "''"), ("$HOME", "'$HOME'")]
        {
            assert_eq!(quoted(word), shown);
        }
    }
}
