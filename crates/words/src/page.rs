//! Prose of pages: paragraphs and sentences. Code, tables, comments and the targets of links are no prose.

/// Words and their lines.
pub struct Paragraph(Vec<(usize, String)>);

/// The part of a page that is measured; none of a page that is a record of the past.
pub fn measured<'a>(path: &str, text: &'a str) -> Option<&'a str> {
    let up_to =
        |marks: &[&str]| marks.iter().filter_map(|mark| text.find(mark)).min().map_or(text, |at| &text[..at]);
    match path.strip_prefix("docs/") {
        None if path == "CHANGELOG.md" => {
            Some(text.match_indices("\n## ").nth(1).map_or(text, |(at, _)| &text[..at]))
        }
        None => (!path.contains('/')).then_some(text),
        Some(page) if page.ends_with("README.md") && !page.contains("/sample/") => Some(text),
        Some(page) if page.starts_with("decisions/") => None,
        Some(page) if page.starts_with("benchmarks/") => {
            Some(up_to(&["\nMeasured by ", "\nWritten by ", "\n## "]))
        }
        Some(_) => Some(text),
    }
}

/// Its lines and their numbers.
pub fn lines(text: &str) -> impl Iterator<Item = (usize, String)> {
    (1..).zip(text.lines().map(str::to_owned))
}

/// Lines of prose and headings that are too long without the targets of links.
pub fn long_lines(text: &str, max: usize) -> impl Iterator<Item = (usize, usize)> {
    let lengths = prose(lines(text)).map(|(at, line)| (at, without_targets(&line).chars().count()));
    lengths.filter(move |&(_, length)| length > max)
}

/// Lines outside code, tables and comments; those as blank lines.
fn prose(lines: impl Iterator<Item = (usize, String)>) -> impl Iterator<Item = (usize, String)> {
    let (mut is_fenced, mut may_be_code) = (false, true);
    lines.map(move |(at, line)| {
        let text = line.trim_start();
        let is_fence = text.starts_with("```");
        is_fenced ^= is_fence;
        let is_code = is_fence || is_fenced || may_be_code && line.starts_with("    ");
        may_be_code = line.is_empty() || is_code;
        let is_prose = !is_code && !text.starts_with('|') && !text.starts_with("<!--");
        (at, if is_prose { line } else { String::new() })
    })
}

/// Joins lines: a blank one, a heading and an item of a list end a paragraph.
pub fn paragraphs(lines: impl Iterator<Item = (usize, String)>) -> Vec<Paragraph> {
    let (mut all, mut is_open) = (Vec::<Paragraph>::new(), false);
    for (at, line) in prose(lines) {
        let text = line.trim_start();
        let is_heading = text.starts_with('#');
        let is_item = ["* ", "- "].iter().any(|mark| text.starts_with(mark))
            || text.split_once(". ").is_some_and(|(number, _)| number.parse::<u8>().is_ok());
        if !is_open || is_heading || is_item {
            all.push(Paragraph(Vec::new()));
        }
        is_open = !text.is_empty() && !is_heading;
        let words = without_code(&without_targets(text));
        let words = words.split_whitespace().filter(|word| word.contains(char::is_alphanumeric));
        all.last_mut().expect("one is open").0.extend(words.map(|word| (at, word.to_owned())));
    }
    all
}

/// A line without the targets of its links: `[text](target)` becomes `[text]`.
fn without_targets(line: &str) -> String {
    let mut parts = line.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "]" + part.split_once(')').map_or("", |(_, rest)| rest))
}

/// A line in which each piece of code is one word.
fn without_code(line: &str) -> String {
    let pieces = line.split('`').enumerate().map(|(at, piece)| if at % 2 == 1 { "code" } else { piece });
    pieces.collect()
}

/// A word without the marks around it.
pub fn bare(word: &str) -> &str {
    word.trim_matches(|letter: char| !letter.is_alphanumeric())
}

impl Paragraph {
    /// A sentence ends at a full stop, a question mark or an exclamation mark, if a capital letter or a digit follows.
    pub fn sentences(&self) -> impl Iterator<Item = &[(usize, String)]> {
        let ends = |word: &str| word.trim_end_matches([')', '*', '"', '\'', ']']).ends_with(['.', '?', '!']);
        let begins = |word: &str| !bare(word).starts_with(char::is_lowercase) || word.starts_with("code");
        let split = self.0.chunk_by(move |(_, one), (_, next)| !(ends(one) && begins(next)));
        split.filter(|sentence| !sentence.is_empty())
    }
}
