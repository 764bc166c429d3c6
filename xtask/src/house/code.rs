//! Lines of code: neither blank, nor comments, nor tests.

use std::ops::RangeInclusive;
use std::path::Path;
use syn::Item;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use words::{attributes, is_test, is_test_file};

/// Folders of tests and examples, and of builds.
const LEFT_OUT: [&str; 3] = ["examples", "target", "tests"];

/// The lines of items that only tests have.
#[derive(Default)]
struct TestLines(Vec<RangeInclusive<usize>>);

impl<'ast> Visit<'ast> for TestLines {
    fn visit_item(&mut self, item: &'ast Item) {
        match is_test(attributes(item)) {
            true => self.0.push(item.span().start().line..=item.span().end().line),
            false => visit::visit_item(self, item),
        }
    }
}

/// Lines of code in a file, given its path and text.
pub fn lines(path: &str, text: &str) -> syn::Result<usize> {
    let is_left_out = |part: &str| LEFT_OUT.contains(&part);
    let stem = Path::new(path).file_stem().unwrap_or_default().to_string_lossy();
    if path.split('/').any(is_left_out) || is_test_file(&stem) {
        return Ok(0);
    }
    let mut tests = TestLines::default();
    tests.visit_file(&syn::parse_file(text)?);
    let is_tested = |line: usize| tests.0.iter().any(|lines| lines.contains(&line));
    let is_code = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
    Ok(text.lines().zip(1..).filter(|&(line, at)| is_code(line) && !is_tested(at)).count())
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn blank_lines_comments_and_tests_are_no_code() {
        let text = "//! A.\n\n/// B.\nfn b() {\n    // C.\n    c();\n}\n\n#[cfg(test)]\nmod tests {\n    fn d() {}\n}\n";
        assert_eq!(lines("crates/a/src/lib.rs", text).unwrap(), 3);
        assert_eq!(lines("crates/a/src/b_tests.rs", text).unwrap(), 0);
        assert_eq!(lines("crates/a/tests/it/main.rs", text).unwrap(), 0);
    }
}
