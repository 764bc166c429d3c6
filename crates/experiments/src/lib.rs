//! Experiments: what was published of other stores, repeated here, and the figures beside each other.
//!
//! An experiment is a file: a scenario and its workload, and rows. A row is a figure of the run beside the published
//! one, and a bar. In its smaller forms, tables replace parts of the scenario and of the workload, so that the same
//! regime fits into less time on a small machine ([`Form`]).
//!
//! 1. [`Experiment::read`] reads a file, strictly; [`all`] those of a folder, in the order of their names.
//! 2. A round plays its [`Variants`] or its [`Engines`], or measures its [`Rings`]. Scenarios and workloads are written
//!    as files that can be played by hand too.
//! 3. [`Experiment::judge`] makes [`Found`] rows of the results of all rounds: the median, and the least and most
//!    as the noise.
//!
//! A row may say of which variant it is, or of which engine and stage, and over which other one: its figure is their
//! ratio then. A variant or an engine that was not played has no rows, and reaches no bar.
//!
//! Where the experiment is of rings, nothing is played: figures are of the ring alone, and a row may say of which ring,
//! and over which other.
//!
//! [`scenario`] starts the servers or the engines and does things to them, [`rings`] measures the ring; the load is the
//! crate `bench`'s.
//!
//! Left out: other servers beside ours, but for etcd (a run of `annulet bench` against them, and `bench compare`).

mod figure;
mod form;
mod played;
pub mod rings;
mod row;
pub mod scenario;
mod variants;

pub use figure::Figure;
pub use form::Form;
pub use played::{Played, RESULTS};
pub use rings::rows::{Measured, Rings};
pub use row::{AnyFigure, Found, Row};
pub use variants::Variants;

use crate::form::File;
use crate::scenario::Engines;
use bench::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// An experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its file's name without the extension.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// Where its figures were published.
    pub source: String,
    /// How often it is run.
    pub rounds: u8,
    /// What is to be shown.
    pub rows: Vec<Row>,
    /// What it is about, or why it cannot be run: words that follow its name.
    pub subject: Result<Subject, String>,
}

/// What an experiment is about.
#[derive(Clone, Debug)]
pub enum Subject {
    /// Nodes, whose variants are played as scenarios.
    Nodes(Variants),
    /// Storage engines, each played alone.
    Engines(Engines),
    /// The ring alone.
    Rings(Rings),
}

/// The files of a folder's experiments, in the order of their names.
///
/// # Errors
/// If it cannot be read, or has none.
pub fn all(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let wrong = Error::file(folder);
    let entries: Result<Vec<_>, _> = fs::read_dir(folder).and_then(Iterator::collect);
    let mut files: Vec<PathBuf> =
        entries.map_err(wrong)?.into_iter().map(|entry: fs::DirEntry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|it| it == "toml"));
    files.sort();
    match files.is_empty() {
        true => Err(Error::Unusable(format!("{} has no experiments", folder.display()))),
        false => Ok(files),
    }
}

impl Experiment {
    /// Reads a file, in this form.
    ///
    /// # Errors
    /// [`Error::Unusable`] if anything in it makes no sense, its scenario and its workload included.
    pub fn read(path: &Path, form: Form) -> Result<Experiment, Error> {
        let text = fs::read_to_string(path).map_err(Error::file(path))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Experiment::parse(&name, &text, form)
            .map_err(|what| Error::Unusable(format!("{}: {what}", path.display())))
    }

    pub(crate) fn parse(name: &str, text: &str, form: Form) -> Result<Experiment, String> {
        let mut file = File::parse(text, form)?;
        let subject = match file.obstacle.take() {
            Some(obstacle) => Err(obstacle),
            None => Ok(Subject::of(&mut file)?),
        };
        Ok(Experiment {
            name: name.to_owned(),
            title: file.title,
            source: file.source,
            rounds: file.rounds,
            rows: file.rows,
            subject,
        })
    }

    /// What each row came to over the rounds, each of which has played engines or variants; `None` where a run has no
    /// such figure, or was not played.
    pub fn judge(&self, rounds: &[Vec<Played>]) -> Vec<Option<Found>> {
        let (first, last_stage) = match &self.subject {
            Ok(Subject::Nodes(variants)) => (variants.first(), ""),
            Ok(Subject::Engines(engines)) => (&*engines.names[0], engines.last()),
            Ok(Subject::Rings(_)) | Err(_) => ("", ""),
        };
        let figure = |row: &Row, round: &[Played]| {
            let stage = row.stage.as_deref().unwrap_or(last_stage);
            row.value(first, |name| {
                let played = round.iter().find(|it| it.name == name && it.stage == stage)?;
                row.run()?.of_played(played, row.label.as_deref())
            })
        };
        let figures = |row: &Row| rounds.iter().map(|round| figure(row, round)).collect();
        self.rows.iter().map(|row| row.judge(figures(row))).collect()
    }

    /// The same, where each round has measured rings.
    pub fn judge_rings(&self, rings: &Rings, rounds: &[Measured]) -> Vec<Option<Found>> {
        let figures = |row: &Row| rounds.iter().map(|round| rings.figure(row, round)).collect();
        self.rows.iter().map(|row| row.judge(figures(row))).collect()
    }
}

impl Subject {
    /// Of a file, with everything that can be found out before anything is started.
    fn of(file: &mut File) -> Result<Subject, String> {
        let (rows, is_about) = (&file.rows, |what: &str| file.scenario.contains_key(what));
        if rows.is_empty() {
            return Err("there is no [[row]]".to_owned());
        }
        if !is_about("engines") && !file.stages.is_empty() {
            return Err("[[stage]] goes with `engines` in [scenario]".to_owned());
        }
        if (is_about("engines") || is_about("rings")) && !file.variants.is_empty() {
            return Err("[[variant]] goes with nodes".to_owned());
        }
        if is_about("engines") {
            let engines = Engines::parse(&file.scenario, &file.workload, &file.stages)?;
            rows.iter().try_for_each(|row| engines.check(row))?;
            return Ok(Subject::Engines(engines));
        }
        if is_about("rings") {
            let rings = Rings::parse(&file.scenario, &file.workload, rows)?;
            rows.iter().try_for_each(|row| rings.check(row))?;
            return Ok(Subject::Rings(rings));
        }
        let (scenario, workload) = (file.scenario.clone(), file.workload.clone());
        let variants = Variants::parse(scenario, workload, file.variants.clone())?;
        rows.iter().try_for_each(|row| variants.check(row))?;
        Ok(Subject::Nodes(variants))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use bench::Workload;

    const TEXT: &str = r#"
title = "a title"
source = "a page"
rounds = 3
[scenario]
nodes = 3
options = { durability = "sync" }
[workload]
duration = "60s"
keys = { kind = "uniform", count = 1000 }
operation = [{ op = "get" }]
[middle]
rounds = 2
[small]
rounds = 1
workload = { duration = "5s", keys = { count = 10 } }
[[row]]
name = "rate"
figure = "throughput"
seed = 10.0
at_least = 20.0
"#;

    fn variants(experiment: &Experiment) -> &Variants {
        match &experiment.subject {
            Ok(Subject::Nodes(variants)) => variants,
            other => panic!("it is of nodes: {other:?}"),
        }
    }

    #[test]
    fn the_small_form_replaces_what_it_names() {
        let [full, middle, small] = Form::ALL.map(|form| Experiment::parse("X", TEXT, form).unwrap());
        assert_eq!((full.rounds, middle.rounds, small.rounds), (3, 2, 1));
        let folder = tempfile::tempdir().unwrap();
        let scenario = Scenario::read(&variants(&small).write("", folder.path(), &[]).unwrap()).unwrap();
        assert_eq!((scenario.nodes, &scenario.options["durability"][..]), (3, "sync"));
        let workload = Workload::read(&scenario.workload).unwrap();
        assert_eq!(workload.duration, Some(std::time::Duration::from_secs(5)));
        assert!(
            workload.text.contains("count = 10\n") && workload.text.contains("uniform"),
            "{}",
            workload.text
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anything_starts() {
        for (from, to, part) in [
            ("nodes = 3", "nodes = 99", "[scenario]: nodes"),
            ("op = \"get\"", "op = \"got\"", "[workload]"),
            ("figure = \"throughput\"", "figure = \"mood\"", "mood"),
            ("rounds = 3", "rounds = 0", "rounds"),
            ("seed = 10.0", "label = \"put\"", "\"put\""),
            ("seed = 10.0", "color = 1", "color"),
        ] {
            let wrong = Experiment::parse("X", &TEXT.replace(from, to), Form::Full).unwrap_err();
            assert!(wrong.contains(part), "{to}: {wrong}");
        }
        let obstacle = |text: &str| Experiment::parse("X", text, Form::Middle).unwrap().subject.err();
        let needy = TEXT.replace("rounds = 3", "needs = \"secondary indexes\"");
        assert!(obstacle(&needy).unwrap().starts_with("needs secondary indexes,"));
        let lacking = TEXT.replace("[middle]\nrounds = 2", "");
        assert_eq!((obstacle(TEXT), obstacle(&lacking).as_deref()), (None, Some("has no middle form")));
    }

    #[test]
    fn examples_of_the_documentation_are_read() {
        let page = include_str!("../../../docs/bench.md");
        let examples = page.split("```toml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
        let (mut experiments, mut scenarios) = (0, 0);
        for example in examples {
            if example.contains("[[row]]") {
                for form in Form::ALL {
                    Experiment::parse("example", example, form).unwrap();
                }
                experiments += 1;
            } else if example.contains("workload = ") {
                Scenario::parse(example).unwrap();
                scenarios += 1;
            }
        }
        assert!(experiments > 0 && scenarios > 0);
    }

    #[test]
    fn those_of_this_version_can_be_read() {
        let files = all(Path::new("../../experiments")).unwrap();
        assert!(files.len() >= 6, "{files:?}");
        for file in &files {
            for form in Form::ALL {
                Experiment::read(file, form).unwrap();
            }
        }
    }
}
