//! A page that is made of sections: one for each part of a set, written by the run that measured it.
//!
//! For a set whose parts take too long to be measured in one go. A run replaces the sections of the parts that it ran and
//! leaves the others as they were, so each section says itself where, of what and by which command it was measured. The
//! page is all the state there is: a section is what stands between the two lines that name its part.

use crate::Result;
use crate::report::{LEARNT_BEGIN, LEARNT_END, learnt};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// What such a page says besides its sections.
pub struct Frame<'a> {
    /// The page's title.
    pub title: &'a str,
    /// The command that writes it.
    pub command: &'a str,
    /// How things are measured; paragraphs.
    pub method: &'a str,
    /// Each part's name and the names of its rows, in the order of their sections.
    pub parts: &'a [(String, Vec<String>)],
}

/// Puts `text` into the page as the section of `part`.
pub fn write(page: &Path, frame: &Frame<'_>, part: &str, text: &str) -> Result<()> {
    let old = fs::read_to_string(page).unwrap_or_default();
    if let Some(dir) = page.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(page, with_section(&old, frame, part, text))?;
    Ok(())
}

fn with_section(old: &str, frame: &Frame<'_>, part: &str, text: &str) -> String {
    let Frame { title, command, method, parts } = frame;
    let mut page = format!(
        "# {title}\n\nWritten by `{command}`, each section by a run of its own; only the section on what was learnt is by \
         hand.\n\n{method}\n"
    );
    for (name, rows) in *parts {
        let (begin, end) = marks(name);
        let missing = || format!("Not measured yet: {}.", rows.join("; "));
        let text = if name == part {
            text.trim().to_owned()
        } else {
            section(old, name).map_or_else(missing, str::to_owned)
        };
        write!(page, "\n## {name}\n\n{begin}\n{text}\n{end}\n").expect("a String takes everything");
    }
    let learnt = learnt(old);
    write!(page, "\n## What was learnt\n\n{LEARNT_BEGIN}\n{learnt}\n{LEARNT_END}\n")
        .expect("a String takes everything");
    page
}

/// What a page says of a part, if it was measured.
fn section<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let (begin, end) = marks(name);
    let (_, rest) = page.split_once(&begin)?;
    let (text, _) = rest.split_once(&end)?;
    Some(text.trim()).filter(|text| !text.starts_with("Not measured yet"))
}

/// The lines around a part's section.
fn marks(name: &str) -> (String, String) {
    (format!("<!-- part {name}: begin -->"), format!("<!-- part {name}: end -->"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_replaces_its_own_section_and_no_other() {
        let parts = [("a".to_owned(), vec!["a/x".to_owned()]), ("b".to_owned(), vec!["b/y".to_owned()])];
        let frame = Frame { title: "T", command: "cargo xtask figures t", method: "How.", parts: &parts };
        let first = with_section("", &frame, "b", "| b/y | 1 |\n");
        assert!(first.contains("## a\n\n<!-- part a: begin -->\nNot measured yet: a/x.\n"), "{first}");
        assert_eq!(section(&first, "b"), Some("| b/y | 1 |"));
        assert_eq!(section(&first, "a"), None);

        let first = first.replace("Nothing has been written down yet.", "Much.");
        let second = with_section(&first, &frame, "a", "| a/x | 2 |");
        assert_eq!(section(&second, "a"), Some("| a/x | 2 |"));
        assert_eq!(section(&second, "b"), Some("| b/y | 1 |"));
        assert!(second.contains("\nMuch.\n"), "{second}");
        assert_eq!(with_section(&second, &frame, "a", "| a/x | 2 |"), second);
    }
}
