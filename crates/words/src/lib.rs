//! The words that people see: `cargo xtask words` measures them and fails where a bar is broken.
//!
//! It is a crate with a program of its own: the gate runs it before anything else needs a build of `xtask`.
//!
//! Texts: pages (`page.rs`), and help, errors and log lines in the source files of the crates (`source.rs`). Left out:
//! the bodies of decisions, benchmark pages below their opening lines, changes of past releases, tables, targets of
//! links, code.
//!
//! A group of texts has a bar of relative pronouns and of vague words for 1,000 words. No line of a page is over 120
//! characters, and no sentence of the README and of the operator pages over 30 words.

mod page;
mod source;

use page::Paragraph;
pub use source::{attributes, is_test, is_test_file};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// A result with an error that is only shown.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A relative clause in place of a noun begins with one of them.
const PRONOUNS: [&str; 6] = ["what", "who", "whoever", "whatever", "whose", "whom"];
/// Words that stand for such a clause without being better.
const VAGUE: [&str; 7] = ["nobody", "somebody", "those that", "those who", "one that", "so many", "so much"];
/// Bars of both for 1,000 words.
const PRONOUNS_MAX: f64 = 2.0;
const VAGUE_MAX: f64 = 2.5;
/// Words of a sentence.
const SENTENCE_MAX: usize = 30;
/// Characters of a line of a page.
const LINE_MAX: usize = 120;

/// The command's options.
#[derive(clap::Args)]
pub struct Options {
    /// List the offences of every group, not only of those over a bar.
    #[arg(long)]
    all: bool,
}

/// Texts that are measured together.
#[derive(Default)]
struct Group {
    name: &'static str,
    /// Whether no sentence may be long.
    is_short: bool,
    words: usize,
    pronouns: Vec<String>,
    vague: Vec<String>,
    sentences: Vec<String>,
    lines: Vec<String>,
}

/// Measures all groups and prints them. An error if a bar is broken.
pub fn run(options: &Options) -> Result<()> {
    let groups = measured(&workspace()?)?;

    println!(
        "{:<24} {:>6} {:>9} {:>6} {:>10} {:>6}",
        "group", "words", "pronouns", "vague", "sentences", "lines"
    );
    for group in &groups {
        println!("{}", group.row());
    }
    for group in &groups {
        let offences = group.bars().into_iter().filter(|(_, is_broken)| *is_broken || options.all);
        offences.flat_map(|(offences, _)| offences).for_each(|offence| println!("{offence}"));
    }
    match groups.iter().flat_map(Group::bars).filter(|(_, is_broken)| *is_broken).count() {
        0 => Ok(()),
        broken => Err(format!("{broken} bars are broken; docs/development.md has them").into()),
    }
}

/// The folder of the workspace from which cargo runs the program. The folder at the time of the build is another one
/// where two clones share a folder of builds.
fn workspace() -> Result<PathBuf> {
    let package = env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo runs this program: cargo run -p words")?;
    Ok(Path::new(&package).ancestors().nth(2).ok_or("this crate is in no workspace")?.to_owned())
}

/// The text of all files with an extension in a folder and below it, by their paths in it. Builds and hidden folders
/// are left out.
pub fn texts(folder: &Path, extension: &str) -> Result<BTreeMap<String, String>> {
    let (mut texts, mut open) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).map_err(|error| format!("{}: {error}", next.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                open.push(path);
            } else if path.extension().is_some_and(|it| it == extension) {
                let name = path.strip_prefix(folder)?.to_string_lossy().into_owned();
                texts.insert(name, fs::read_to_string(&path)?);
            }
        }
    }
    Ok(texts)
}

/// The groups of a workspace.
fn measured(root: &Path) -> Result<Vec<Group>> {
    let new = |name, is_short| Group { name, is_short, ..Group::default() };
    let [mut readme, mut operate] = [new("README", true), new("operator pages", true)];
    let [mut reference, mut develop] = [new("reference pages", false), new("developer pages", false)];
    for (path, text) in texts(root, "md")? {
        let Some(opening) = page::measured(&path, &text) else { continue };
        let group = match path.as_str() {
            "README.md" => &mut readme,
            "docs/development.md" => &mut develop,
            path if path.starts_with("docs/operate/") => &mut operate,
            path if path.starts_with("docs/decisions/") || !path.contains('/') => &mut develop,
            _ => &mut reference,
        };
        page::paragraphs(page::lines(opening)).iter().for_each(|it| group.add(&path, it));
        group.lines.extend(
            page::long_lines(opening, LINE_MAX)
                .map(|(at, length)| format!("{path}:{at}: {length} characters")),
        );
    }

    let [mut help, mut errors] = [new("help", false), new("errors and log lines", false)];
    for entry in fs::read_dir(root.join("crates"))? {
        let folder = entry?.path().join("src");
        for (path, text) in texts(&folder, "rs")? {
            let is_test =
                Path::new(&path).file_stem().is_some_and(|stem| is_test_file(&stem.to_string_lossy()));
            let path = folder.strip_prefix(root)?.join(path).display().to_string();
            let seen = source::Texts::of(&text).map_err(|error| format!("{path}: {error}"))?;
            if !is_test && !path.contains("/tests/") {
                page::paragraphs(seen.help.into_iter()).iter().for_each(|it| help.add(&path, it));
                page::paragraphs(seen.messages.into_iter()).iter().for_each(|it| errors.add(&path, it));
            }
        }
    }
    Ok(vec![readme, operate, reference, develop, help, errors])
}

impl Group {
    fn add(&mut self, path: &str, paragraph: &Paragraph) {
        for sentence in paragraph.sentences() {
            let words: Vec<String> =
                sentence.iter().map(|(_, word)| page::bare(word).to_lowercase()).collect();
            self.words += words.len();
            let of = |at: usize, text: &str| format!("{path}:{}: {text}", sentence[at].0);
            for (at, word) in words.iter().enumerate() {
                let pair = words.get(at + 1).map_or(String::new(), |next| format!("{word} {next}"));
                self.pronouns.extend(PRONOUNS.contains(&&**word).then(|| of(at, word)));
                let vague = VAGUE.into_iter().filter(|vague| [word, &pair].contains(&&(*vague).to_owned()));
                self.vague.extend(vague.map(|vague| of(at, vague)));
            }
            if words.len() > SENTENCE_MAX {
                self.sentences.push(of(0, &format!("{} words from \"{}\"", words.len(), sentence[0].1)));
            }
        }
    }

    fn rate(&self, offences: &[String]) -> f64 {
        offences.len() as f64 * 1000.0 / self.words.max(1) as f64
    }

    /// The offences of each bar, and whether it is broken.
    fn bars(&self) -> [(&[String], bool); 4] {
        [
            (&self.pronouns, self.rate(&self.pronouns) > PRONOUNS_MAX),
            (&self.vague, self.rate(&self.vague) > VAGUE_MAX),
            (&self.sentences, self.is_short && !self.sentences.is_empty()),
            (&self.lines, !self.lines.is_empty()),
        ]
    }

    fn row(&self) -> String {
        let Group { name, words, sentences, lines, .. } = self;
        let (pronouns, vague) = (self.rate(&self.pronouns), self.rate(&self.vague));
        format!(
            "{name:<24} {words:>6} {pronouns:>9.2} {vague:>6.2} {:>10} {:>6}",
            sentences.len(),
            lines.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line that must count says so.
    #[test]
    fn prose_counts_and_code_tables_and_targets_do_not() {
        let mut group = Group::default();
        let text = include_str!("fixture.md");
        page::paragraphs(page::lines(text)).iter().for_each(|it| group.add("p", it));
        let lines_with = |mark: &str| {
            let marks = text.lines().zip(1..).flat_map(|(line, at)| line.matches(mark).map(move |_| at));
            marks.map(|at| format!("p:{at}")).collect::<Vec<String>>()
        };
        let places = |offences: &[String]| {
            offences.iter().filter_map(|it| Some(it.split_once(": ")?.0.to_owned())).collect::<Vec<String>>()
        };
        assert_eq!(places(&group.pronouns), lines_with("PRONOUN"));
        assert_eq!(places(&group.vague), lines_with("VAGUE"));
        assert_eq!(places(&group.sentences), lines_with("LONG"));
        let long: Vec<String> = page::long_lines(text, LINE_MAX).map(|(at, _)| format!("p:{at}")).collect();
        assert_eq!(long, lines_with("WIDE"));
    }

    #[test]
    fn help_and_messages_count_and_tests_and_panics_do_not() {
        let seen = source::Texts::of(include_str!("fixture.rs.txt")).unwrap();
        let texts =
            |lines: Vec<(usize, String)>| lines.into_iter().map(|(_, it)| it).filter(|it| !it.is_empty());
        let help = [
            "A command",
            "of two lines",
            "An option, in seconds",
            "A place for files",
            "An option of the table",
        ];
        assert_eq!(texts(seen.help).collect::<Vec<_>>(), help);
        let messages = ["no such file: ", "a line of the log", "a  text of words", "a text that is returned"];
        assert_eq!(texts(seen.messages).collect::<Vec<_>>(), messages.map(str::trim));
    }

    #[test]
    fn bars_are_broken_by_the_words_of_a_group() {
        let group = Group {
            words: 1000,
            pronouns: vec![String::new(); 2],
            vague: vec![String::new(); 3],
            ..Group::default()
        };
        assert_eq!(group.bars().map(|(_, is_broken)| is_broken), [false, true, false, false]);
    }
}
