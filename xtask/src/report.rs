//! The report: rows on stdout as they come, and the page in `docs/benchmarks`.

use crate::Result;
use crate::rows::{Row, Spec};
use crate::stats::rounded;
use std::fmt::Write as _;
use std::fs;
use std::io::{Write as _, stdout};
use std::path::Path;

// Text between these two lines of a page is written by hand and kept.
const LEARNT_BEGIN: &str = "<!-- learnt: begin -->";
// The end of it.
const LEARNT_END: &str = "<!-- learnt: end -->";
const LEARNT_NOTHING: &str = "Nothing has been written down yet.";

/// Rows so far.
#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
    remarks: Vec<String>,
}

/// What a page says besides its rows.
pub struct Heading<'a> {
    /// The page's title.
    pub title: &'a str,
    /// Where it was measured.
    pub machine: &'a str,
    /// What was measured.
    pub commit: &'a str,
    /// The command that did it.
    pub command: &'a str,
    /// How; paragraphs.
    pub method: &'a str,
}

impl Report {
    /// Adds a row and prints it.
    pub fn push(&mut self, row: Row) -> Result<()> {
        writeln!(stdout(), "{}", row.json())?;
        self.rows.push(row);
        Ok(())
    }

    /// Tells stderr and the page.
    pub fn remark(&mut self, remark: impl Into<String>) {
        let remark = remark.into();
        eprintln!("figures: {remark}");
        self.remarks.push(remark);
    }

    /// Adds those of `specs` that no row answers as failed: a row that is not there would not be missed.
    pub fn fail_rest(&mut self, specs: Vec<Spec>, why: &str) -> Result<()> {
        for spec in specs {
            if !self.rows.iter().any(|row| row.spec.row == spec.row) {
                self.push(spec.failed(why))?;
            }
        }
        Ok(())
    }

    /// How many rows reached their bars, and which did not, for a person.
    pub fn summary(&self) -> String {
        let missed: Vec<&Row> = self.rows.iter().filter(|row| !row.reached()).collect();
        let mut text = format!("{} of {} rows reached", self.rows.len() - missed.len(), self.rows.len());
        for row in missed {
            let (value, bar) = (value(row), bar(row));
            write!(text, "\n  {}: {value} {}, bar {bar} ({})", row.spec.row, row.spec.unit, row.noise)
                .expect("a String takes everything");
        }
        text
    }

    /// Writes the page, with what an older one has learnt.
    pub fn write(&self, page: &Path, heading: &Heading<'_>) -> Result<()> {
        let old = fs::read_to_string(page).unwrap_or_default();
        if let Some(dir) = page.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(page, self.page(heading, learnt(&old)))?;
        Ok(())
    }

    fn page(&self, heading: &Heading<'_>, learnt: &str) -> String {
        let Heading { title, machine, commit, command, method } = heading;
        let mut page = format!(
            "# {title}\n\nWritten by `{command}`; only the section on what was learnt is by hand.\n\n\
             * Machine: {machine}\n* Commit: {commit}\n\n{method}\n\n## Rows\n\n{}\n## Beside them\n\n{}",
            self.table(),
            self.beside()
        );
        if !self.remarks.is_empty() {
            page.push_str("\n## Remarks\n\n");
            self.remarks.iter().for_each(|remark| page.push_str(&format!("* {remark}\n")));
        }
        page.push_str(&format!("\n## What was learnt\n\n{LEARNT_BEGIN}\n{learnt}\n{LEARNT_END}\n"));
        page
    }

    fn table(&self) -> String {
        let mut table =
            "| row | value | unit | bar | reached | noise |\n|---|---:|---|---|---|---|\n".to_owned();
        for row in &self.rows {
            let reached = if row.reached() { "yes" } else { "**no**" };
            // A bar of a table's cell would end it.
            let noise = row.noise.replace('|', "/").replace('\n', " ");
            table.push_str(&format!(
                "| {} | {} | {} | {} | {reached} | {noise} |\n",
                row.spec.row,
                value(row),
                row.spec.unit,
                bar(row)
            ));
        }
        table
    }

    /// What was measured beside rows, one line for each.
    fn beside(&self) -> String {
        let mut text = String::new();
        for row in self.rows.iter().filter(|row| !row.also.is_empty()) {
            let also: Vec<String> =
                row.also.iter().map(|(name, value)| format!("{name} {}", rounded(*value))).collect();
            text.push_str(&format!("* {}: {}\n", row.spec.row, also.join(", ")));
        }
        text
    }
}

fn value(row: &Row) -> String {
    row.value.map_or("none".to_owned(), |value| rounded(value).to_string())
}

fn bar(row: &Row) -> String {
    row.spec.bar.map_or("-".to_owned(), |bar| bar.to_string())
}

/// What a page has learnt.
fn learnt(page: &str) -> &str {
    let inside = page.split_once(LEARNT_BEGIN).and_then(|(_, rest)| rest.split_once(LEARNT_END));
    inside.map(|(learnt, _)| learnt.trim()).filter(|learnt| !learnt.is_empty()).unwrap_or(LEARNT_NOTHING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Bar;

    fn heading() -> Heading<'static> {
        Heading { title: "T", machine: "M", commit: "C", command: "cargo xtask figures t", method: "How." }
    }

    #[test]
    fn a_page_keeps_what_was_learnt() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("docs/t.md");
        let mut report = Report::default();
        report
            .push(Spec::new("a", "us", Some(Bar::AtMost(2.0))).measured(&[1.0]).also("cores", Some(1.5)))
            .unwrap();
        report.remark("a remark");
        report.write(&path, &heading()).unwrap();
        let first = fs::read_to_string(&path).unwrap();
        assert!(first.contains("| a | 1 | us | <= 2 | yes | 1 run |"), "{first}");
        assert!(first.contains("* a: cores 1.5") && first.contains("* a remark"), "{first}");
        fs::write(&path, first.replace(LEARNT_NOTHING, "Much.\n\nAnd more.")).unwrap();
        report.write(&path, &heading()).unwrap();
        let second = fs::read_to_string(&path).unwrap();
        assert_eq!(second, first.replace(LEARNT_NOTHING, "Much.\n\nAnd more."));
    }

    #[test]
    fn a_row_that_is_missing_has_failed() {
        let mut report = Report::default();
        let spec = |name: &str| Spec::new(name, "us", None);
        report.push(spec("a").measured(&[1.0])).unwrap();
        report.fail_rest(vec![spec("a"), spec("b")], "the server ended").unwrap();
        assert_eq!(report.rows.len(), 2);
        assert!(
            report
                .summary()
                .starts_with("1 of 2 rows reached\n  b: none us, bar - (failed: the server ended)")
        );
    }
}
