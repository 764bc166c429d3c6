//! The tables of options in `docs/options.md` are those of [`SETTINGS`].
//!
//! A section of the page is `<!-- options: NAME NAME -->`, a table of these options, and `<!-- end -->`. The page
//! decides on sections and their order. To write the tables anew:
//! `cargo test -p server write_options_page -- --ignored`.

use super::*;
use std::fmt::Write;
use std::fs;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/options.md");
const BEGIN: &str = "<!-- options: ";
const BEGIN_END: &str = " -->\n";
const END: &str = "<!-- end -->";

/// The page with new tables, and the names of all options in it.
fn rendered(page: &str) -> (String, Vec<&str>) {
    let mut sections = page.split(BEGIN);
    let mut text = sections.next().unwrap().to_owned();
    let mut all = Vec::new();
    for section in sections {
        let (names, rest) = section.split_once(BEGIN_END).expect("the marker ends");
        let (_, after) = rest.split_once(END).expect("the section ends");
        let names: Vec<&str> = names.split(' ').collect();
        write!(text, "{BEGIN}{}{BEGIN_END}{}{END}{after}", names.join(" "), table(&names)).unwrap();
        all.extend(names);
    }
    (text, all)
}

fn table(names: &[&str]) -> String {
    let default = Config::default();
    let mut table = "| option | value | default | description |\n|---|---|---|---|\n".to_owned();
    for name in names {
        let setting = SETTINGS.iter().find(|setting| setting.name == *name).expect(name);
        let shown = match setting.show(&default) {
            none if none.is_empty() => "-".to_owned(),
            shown => format!("`{shown}`"),
        };
        let forms: Vec<String> = setting.form().split('|').map(|form| format!("`{form}`")).collect();
        let bounds = setting.bounds().map_or(String::new(), |bounds| format!(" from {bounds}"));
        let (flag, forms) = (setting.flag(), forms.join(", "));
        writeln!(table, "| `--{flag}` | {forms}{bounds} | {shown} | {} |", setting.help).unwrap();
    }
    table
}

#[test]
fn options_page_has_all_options_as_they_are() {
    let page = fs::read_to_string(PAGE).unwrap();
    let (rendered, mut names) = rendered(&page);
    let stale = rendered.lines().zip(page.lines()).find(|(new, old)| new != old);
    assert_eq!(
        stale, None,
        "docs/options.md: `cargo test -p server write_options_page -- --ignored` writes it anew"
    );
    let mut all: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    names.sort_unstable();
    all.sort_unstable();
    assert_eq!(names, all, "each option is in one section of docs/options.md");
}

#[test]
#[ignore = "writes docs/options.md"]
fn write_options_page() {
    let page = fs::read_to_string(PAGE).unwrap();
    fs::write(PAGE, rendered(&page).0).unwrap();
}
