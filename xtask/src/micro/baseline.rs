//! The counts that are committed, and how new ones compare with them.

use crate::Result;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// A case fails above this share of its baseline. Counts repeat to a thousandth; a reordered branch moves some
/// cases by one or two per cent.
pub const REGRESSION_MAX: f64 = 0.03;

/// Instructions per operation of each case, and what they were counted with.
pub struct Baseline {
    /// Counts of another toolchain cannot be compared.
    pub toolchain: String,
    /// By case.
    pub instructions: BTreeMap<String, f64>,
}

impl Baseline {
    /// Reads the file that [`Baseline::write`] wrote.
    pub fn read(path: &Path) -> Result<Baseline> {
        let wrong =
            |what: &str| format!("{}: {what}; cargo xtask micro --bless writes it anew", path.display());
        let text = std::fs::read_to_string(path).map_err(|failure| wrong(&failure.to_string()))?;
        let value: Value = serde_json::from_str(&text).map_err(|failure| wrong(&failure.to_string()))?;
        let toolchain = value["toolchain"].as_str().ok_or_else(|| wrong("no toolchain"))?.to_owned();
        let cases = value["instructions_per_operation"].as_object().ok_or_else(|| wrong("no counts"))?;
        let mut instructions = BTreeMap::new();
        for (name, count) in cases {
            let count = count.as_f64().ok_or_else(|| wrong("a count that is no number"))?;
            instructions.insert(name.clone(), count);
        }
        Ok(Baseline { toolchain, instructions })
    }

    /// Writes the file, one case a line.
    pub fn write(&self, path: &Path) -> Result<()> {
        let cases: Map<String, Value> =
            self.instructions.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
        let value = json!({ "toolchain": self.toolchain, "instructions_per_operation": cases });
        std::fs::write(path, serde_json::to_string_pretty(&value)? + "\n")?;
        Ok(())
    }
}

/// A case beside its baseline.
#[derive(Debug, PartialEq)]
enum Row {
    /// Within the limit; the ratio to the baseline.
    Same(f64),
    /// Dearer than the limit allows.
    Dearer(f64),
    /// Cheaper by more than the limit: to be blessed, or the next change may lose it again unseen.
    Cheaper(f64),
    /// Not in the baseline.
    New,
    /// In the baseline, but not measured.
    Gone,
    /// Counted with another toolchain.
    Incomparable,
}

/// How a run compares with the baseline. Prints as a table.
pub struct Verdict {
    rows: Vec<(String, Option<f64>, Row)>,
    /// The baseline's toolchain and this one's, if they differ.
    toolchains: Option<(String, String)>,
}

impl Verdict {
    /// Compares. With `some_only` it is no matter that cases were not measured.
    pub fn of(before: &Baseline, now: &Baseline, some_only: bool) -> Verdict {
        let differ = before.toolchain != now.toolchain;
        let toolchains = differ.then(|| (before.toolchain.clone(), now.toolchain.clone()));
        let mut rows: Vec<_> = now
            .instructions
            .iter()
            .map(|(name, &count)| {
                let row = match before.instructions.get(name) {
                    _ if differ => Row::Incomparable,
                    None => Row::New,
                    Some(&was) => compare(was, count),
                };
                (name.clone(), Some(count), row)
            })
            .collect();
        let gone = before.instructions.keys().filter(|name| !now.instructions.contains_key(*name));
        if !some_only && !differ {
            rows.extend(gone.map(|name| (name.clone(), None, Row::Gone)));
        }
        Verdict { rows, toolchains }
    }

    /// How many cases fail: dearer ones, and those that are on one side only.
    pub fn failures(&self) -> usize {
        let fails = |row: &Row| matches!(row, Row::Dearer(_) | Row::New | Row::Gone);
        self.rows.iter().filter(|(_, _, row)| fails(row)).count()
    }
}

fn compare(was: f64, count: f64) -> Row {
    let ratio = count / was;
    if ratio > 1.0 + REGRESSION_MAX {
        Row::Dearer(ratio)
    } else if ratio < 1.0 - REGRESSION_MAX {
        Row::Cheaper(ratio)
    } else {
        Row::Same(ratio)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count, row) in &self.rows {
            let count = count.map_or("-".to_owned(), |count| format!("{count:.1}"));
            let against = match row {
                Row::Same(ratio) => format!("{:+.1} %", (ratio - 1.0) * 100.0),
                Row::Dearer(ratio) => format!("{:+.1} %  FAILED: dearer", (ratio - 1.0) * 100.0),
                Row::Cheaper(ratio) => format!("{:+.1} %  cheaper: bless it", (ratio - 1.0) * 100.0),
                Row::New => "FAILED: not in the baseline".to_owned(),
                Row::Gone => "FAILED: in the baseline, but there is no such case".to_owned(),
                Row::Incomparable => String::new(),
            };
            writeln!(f, "{name:<24} {count:>10}  {against}")?;
        }
        if let Some((before, now)) = &self.toolchains {
            writeln!(f, "NOT COMPARED: the baseline was counted with\n  {before}\nand this is\n  {now}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(toolchain: &str, cases: &[(&str, f64)]) -> Baseline {
        let instructions = cases.iter().map(|&(name, count)| (name.to_owned(), count)).collect();
        Baseline { toolchain: toolchain.to_owned(), instructions }
    }

    #[test]
    fn only_what_is_dearer_than_the_limit_or_on_one_side_fails() {
        let before = baseline("a", &[("get", 1000.0), ("put", 1000.0), ("head", 1000.0), ("gone", 1.0)]);
        let now = baseline("a", &[("get", 1029.0), ("put", 1031.0), ("head", 900.0), ("new", 1.0)]);
        let verdict = Verdict::of(&before, &now, false);
        assert_eq!(verdict.failures(), 3, "{verdict}");
        let text = verdict.to_string();
        assert!(text.contains("+3.1 %  FAILED") && text.contains("-10.0 %  cheaper"), "{text}");
        assert_eq!(Verdict::of(&before, &now, true).failures(), 2);
    }

    #[test]
    fn another_toolchain_is_not_compared_and_says_so() {
        let verdict = Verdict::of(&baseline("a", &[("get", 1.0)]), &baseline("b", &[("get", 9.0)]), false);
        assert_eq!(verdict.failures(), 0);
        assert!(verdict.to_string().contains("NOT COMPARED"));
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("micro.json");
        baseline("rustc 1", &[("get", 12.5), ("put", 7.0)]).write(&path).unwrap();
        let read = Baseline::read(&path).unwrap();
        assert_eq!((read.toolchain.as_str(), read.instructions["get"]), ("rustc 1", 12.5));
        std::fs::write(&path, "{}").unwrap();
        assert!(Baseline::read(&path).err().unwrap().to_string().contains("--bless"));
    }
}
