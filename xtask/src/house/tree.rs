//! The part of a run that reads the source files.

use super::source::{Arrows, Crate, FileId, Function, Kind, Methods};
use super::{Context, code};
use crate::report::Report;
use crate::rows::{Bar, Row, Spec};
use crate::{Result, sys};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use words::texts;

/// The bar of lines of code: 92 % of the tree at edf0747, before less of it was asked for.
const CODE_LINES_MAX: f64 = 0.92 * CODE_LINES_BEFORE;
const CODE_LINES_BEFORE: f64 = 114_300.0;

/// The bar of all lines of the crate `xtask`.
const XTASK_LINES_MAX: f64 = 6500.0;

/// Crates whose circles of files have a bar.
const WITHOUT_CIRCLES: [&str; 4] = ["node", "kv", "membership", "ring"];

/// Crates whose asserts have a bar.
const ASSERTING: [&str; 3] = ["node", "kv", "membership"];

/// The bar of methods of a component.
const COMPONENT_METHODS_MAX: usize = 40;

/// The bar of files in a circle.
const CIRCLE_FILES_MAX: usize = 3;

/// The bar of lines of a function.
const FUNCTION_LINES_MAX: usize = 80;

/// Components and functions that a remark names, if fewer are over the bar. A row names as many files of a circle.
const NAMED: usize = 5;

/// The two central types: the crate, the name, and bars of all and of public methods. Bars of the store come with its
/// own change.
const CENTRAL: [(&str, &str, Option<Bar>, Option<Bar>); 2] =
    [("node", "Shard", Some(Bar::AtMost(60.0)), Some(Bar::AtMost(40.0))), ("engine", "Store", None, None)];

fn methods(of: &str, bar: Option<Bar>) -> Spec {
    Spec::new(format!("{of}/methods"), "methods", bar)
}

fn public_methods(of: &str, bar: Option<Bar>) -> Spec {
    Spec::new(format!("{of}/public methods"), "methods", bar)
}

fn largest_component() -> Spec {
    Spec::new(
        "node/methods of the largest component",
        "methods",
        Some(Bar::AtMost(COMPONENT_METHODS_MAX as f64)),
    )
}

fn largest_circle(of: &str, bar: Option<Bar>) -> Spec {
    Spec::new(format!("{of}/largest circle"), "files", bar)
}

fn longest_function(of: &str) -> Spec {
    Spec::new(format!("{of}/longest function"), "lines", Some(Bar::AtMost(FUNCTION_LINES_MAX as f64)))
}

fn asserts(of: &str) -> Spec {
    Spec::new(format!("{of}/asserts"), "per 1,000 lines", Some(Bar::AtLeast(5.0)))
}

fn code_lines() -> Spec {
    Spec::new("code/lines".to_owned(), "lines of code", Some(Bar::AtMost(CODE_LINES_MAX)))
}

fn xtask_lines() -> Spec {
    Spec::new("xtask/lines".to_owned(), "lines in all", Some(Bar::AtMost(XTASK_LINES_MAX)))
}

/// The bar of circles.
fn circle_bar(of: &str) -> Option<Bar> {
    WITHOUT_CIRCLES.contains(&of).then_some(Bar::AtMost(CIRCLE_FILES_MAX as f64))
}

/// Crates that circles are looked for in.
fn circled() -> impl Iterator<Item = &'static str> {
    WITHOUT_CIRCLES.into_iter().chain(["engine"])
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    let central = CENTRAL.into_iter();
    let mut specs: Vec<Spec> = central
        .flat_map(|(_, name, all, public)| [methods(name, all), public_methods(name, public)])
        .collect();
    specs.push(largest_component());
    specs.extend(circled().map(|of| largest_circle(of, circle_bar(of))));
    specs.extend(WITHOUT_CIRCLES.map(longest_function));
    specs.extend(ASSERTING.map(asserts));
    specs.extend([code_lines(), xtask_lines()]);
    specs
}

/// Fills them, and names in remarks those that are over a bar.
pub fn run(_: &Context, report: &mut Report) -> Result<()> {
    let mut crates = BTreeMap::new();
    for name in circled() {
        crates.insert(
            name,
            Crate::parse(&texts(&sys::workspace()?.join("crates").join(name).join("src"), "rs")?)?,
        );
    }
    for (home, name, all, public) in CENTRAL {
        let counted = central(&crates[home], name).ok_or_else(|| format!("{home} has no struct {name}"))?;
        let files = Some(counted.files.len() as f64);
        report.push(methods(name, all).valued(counted.all as f64, "counted").also("files", files))?;
        report.push(public_methods(name, public).valued(counted.public as f64, "counted"))?;
        report.remark(format!("methods of {name} by file: {}", by_file(&crates[home], &counted)));
    }
    push_components(&crates["node"], report)?;
    for name in circled() {
        push_circles(name, &crates[name], report)?;
    }
    for name in WITHOUT_CIRCLES {
        push_functions(name, &crates[name], report)?;
    }
    for name in ASSERTING {
        report.push(assert_row(name, &crates[name]))?;
    }
    push_code(report)
}

/// Counts the code of all crates, and all lines of this one.
fn push_code(report: &mut Report) -> Result<()> {
    let root = sys::workspace()?;
    let mut all = texts(&root.join("crates"), "rs")?;
    all.extend(texts(&root.join("fuzz"), "rs")?);
    let own = texts(&root.join("xtask"), "rs")?;
    let in_all = own.values().map(|text| text.lines().count()).sum::<usize>();
    all.extend(own.into_iter().map(|(path, text)| (format!("xtask/{path}"), text)));

    let counts = all.iter().map(|(path, text)| code::lines(path, text));
    let lines = counts.sum::<syn::Result<usize>>()?;
    report.push(code_lines().valued(lines as f64, "counted"))?;
    report.push(xtask_lines().valued(in_all as f64, "counted"))
}

/// The struct of this name with the most methods.
fn central(parsed: &Crate, name: &str) -> Option<Methods> {
    let named = |it: &Methods| it.name == name && it.kind == Some(Kind::Struct);
    parsed.methods().into_iter().filter(named).max_by_key(|it| it.all)
}

/// The files with methods of a type, those with most methods first.
fn by_file(parsed: &Crate, counted: &Methods) -> String {
    let mut files: Vec<(&str, usize)> =
        counted.files.iter().map(|(&file, &count)| (parsed.path(file), count)).collect();
    files.sort_by_key(|&(path, count)| (Reverse(count), path));
    listed(files.into_iter().map(|(path, count)| format!("{path} {count}")))
}

fn push_components(parsed: &Crate, report: &mut Report) -> Result<()> {
    let is_component = |it: &Methods| it.name != "Shard" && it.kind == Some(Kind::Struct);
    let mut components: Vec<Methods> = parsed.methods().into_iter().filter(is_component).collect();
    components.sort_by_key(|it| Reverse(it.all));
    let largest = components.first().ok_or("node has no struct with methods")?;
    let over = components.iter().filter(|it| it.all > COMPONENT_METHODS_MAX).count();
    let note = format!("{} in {}", largest.name, parsed.path(largest.file));
    let row = largest_component()
        .valued(largest.all as f64, note)
        .also("public", Some(largest.public as f64))
        .also("over_the_bar", Some(over as f64));
    report.push(row)?;

    let named = components.iter().take(over.max(NAMED));
    let named = named.map(|it| format!("{} {} ({})", it.name, it.all, parsed.path(it.file)));
    report.remark(format!("largest components of node: {}", listed(named)));
    Ok(())
}

fn push_circles(name: &str, parsed: &Crate, report: &mut Report) -> Result<()> {
    let circles = parsed.circles();
    let (size, note) = match circles.first() {
        None => (1, "no circle".to_owned()),
        Some(circle) => {
            let names = circle.iter().map(|&file| parsed.path(file).to_owned()).take(NAMED);
            let rest = if circle.len() > NAMED { ", ..." } else { "" };
            (circle.len(), format!("{}{rest}", listed(names)))
        }
    };
    let over = || circles.iter().filter(|circle| circle.len() > CIRCLE_FILES_MAX);
    let in_circles: usize = circles.iter().map(|circle| circle.len()).sum();
    let row = largest_circle(name, circle_bar(name))
        .valued(size as f64, note)
        .also("circles", Some(circles.len() as f64))
        .also("circles_over_three", Some(over().count() as f64))
        .also("files_in_circles", Some(in_circles as f64));
    report.push(row)?;

    let arrows = parsed.arrows();
    for circle in over() {
        let files = circle.iter().map(|&file| parsed.path(file).to_owned());
        report.remark(format!("circle of {} files in {name}: {}", circle.len(), listed(files)));
        if circle_bar(name).is_some() {
            report.remark(format!("its arrows: {}", arrows_within(parsed, &arrows, circle)));
        }
    }
    Ok(())
}

/// Each file of a circle, and the others of it that it uses.
fn arrows_within(parsed: &Crate, arrows: &Arrows, circle: &BTreeSet<FileId>) -> String {
    let line = |file: &FileId| {
        let used = arrows.get(file).into_iter().flatten().filter(|used| circle.contains(used));
        let used: Vec<&str> = used.map(|&used| parsed.path(used)).collect();
        format!("{} -> {}", parsed.path(*file), used.join(" "))
    };
    circle.iter().map(line).collect::<Vec<_>>().join("; ")
}

fn push_functions(name: &str, parsed: &Crate, report: &mut Report) -> Result<()> {
    let mut functions: Vec<_> = parsed.functions().collect();
    functions.sort_by_key(|(_, function)| Reverse(function.lines));
    let place = |(file, function): (FileId, &Function)| {
        format!("{} in {}:{}", function.name, parsed.path(file), function.line)
    };
    let &longest = functions.first().ok_or_else(|| format!("{name} has no function"))?;
    let over = functions.iter().filter(|(_, function)| function.lines > FUNCTION_LINES_MAX).count();
    let row = longest_function(name)
        .valued(longest.1.lines as f64, place(longest))
        .also("functions", Some(functions.len() as f64))
        .also("over_the_bar", Some(over as f64));
    report.push(row)?;

    let named = functions.iter().take(over.max(NAMED));
    let named = named.map(|&it| format!("{} {}", it.1.lines, place(it)));
    report.remark(format!("longest functions of {name}: {}", listed(named)));
    Ok(())
}

fn listed(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn assert_row(name: &str, parsed: &Crate) -> Row {
    let (count, lines) = (parsed.asserts() as f64, parsed.lines() as f64);
    asserts(name)
        .valued(count * 1000.0 / lines, "counted")
        .also("asserts", Some(count))
        .also("lines", Some(lines))
}
