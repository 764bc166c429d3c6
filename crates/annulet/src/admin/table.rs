//! Tables for people.

use serde_json::Value;

/// Rows under a heading, in columns as wide as their widest cell.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let all = || {
        std::iter::once(heading.iter().map(|cell| (*cell).to_owned()).collect()).chain(rows.iter().cloned())
    };
    let width = |column: usize| all().map(|row: Vec<String>| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let line = |row: Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all().map(line).collect::<Vec<_>>().join("\n")
}

/// A value as a cell.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_stand_below_each_other() {
        let rows = [vec!["a".to_owned(), cell(&json!(10))], vec!["longer".to_owned(), cell(&json!(null))]];
        assert_eq!(table(&["name", "n"], &rows), "name    n\na       10\nlonger  -");
        assert_eq!((cell(&json!(true)), cell(&json!(""))), ("yes".to_owned(), "-".to_owned()));
    }
}
