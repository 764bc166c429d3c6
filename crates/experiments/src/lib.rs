//! Experiments: what was published of other stores, repeated here, and the figures beside each other.
//!
//! An experiment is a file: a scenario and its workload, and rows, each of them a figure of the run, what was published of
//! it, and the bar. In its `[small]` form, tables replace parts of the scenario and of the workload, so that the same regime
//! fits into a minute on a small machine.
//!
//! 1. [`Experiment::read`] reads a file, strictly; [`all`] those of a folder, in the order of their names.
//! 2. [`Experiment::write`] writes the scenario and the workload that are to be played, as files that can be played by hand too.
//! 3. [`Experiment::judge`] makes [`Found`] rows of what the rounds have left: the median, and the least and most as the noise.
//!
//! Where the scenario is of storage engines ([`Engines`]), the file has stages too, and a row may say of which engine
//! and stage it is, and over which other engine: its figure is their ratio then. An engine that was not played has no
//! rows, and reaches no bar.
//!
//! Where it is of rings ([`Rings`]), nothing is played: figures are of the ring alone, and a row may say of which ring,
//! and over which other.
//!
//! [`scenario`] starts the servers or the engines and does things to them, [`rings`] measures the ring; the load is the
//! crate `bench`'s.
//!
//! Left out: other servers beside ours (a run of `annulet bench` against them, and `bench compare`).

mod figure;
pub mod rings;
pub mod scenario;

pub use figure::Figure;
pub use rings::rows::{Measured, Rings};

use crate::scenario::{Engines, Played, Scenario};
use bench::{Error, Workload};
use results::Results;
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Rounds at most: more say nothing that these do not.
const ROUNDS_MAX: u8 = 20;

/// The names of what [`Experiment::write`] writes.
const SCENARIO: &str = "scenario.toml";
const WORKLOAD: &str = "workload.toml";

/// An experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its file's name without the extension.
    pub name: String,
    /// What it is about.
    pub title: String,
    /// Where its figures were published.
    pub source: String,
    /// What it needs that is not there yet; then it cannot be run.
    pub needs: Option<String>,
    /// How often it is run.
    pub rounds: u8,
    /// What is to be shown.
    pub rows: Vec<Row>,
    /// What it is about.
    pub subject: Subject,
    scenario: Table,
    workload: Table,
}

/// What an experiment is about.
#[derive(Clone, Debug)]
pub enum Subject {
    /// Nodes, that are played as a scenario.
    Nodes,
    /// Storage engines, each played alone.
    Engines(Engines),
    /// The ring alone.
    Rings(Rings),
}

/// A figure that is compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// What it is.
    pub name: String,
    /// Which figure.
    pub figure: AnyFigure,
    /// Of which operation; of all if it is not said.
    pub label: Option<String>,
    /// Of which engine, where there are several; the first if it is not said.
    pub engine: Option<String>,
    /// Of which of the engine's stages; the last if it is not said.
    pub stage: Option<String>,
    /// Of which ring, where there are several; the first if it is not said.
    pub ring: Option<String>,
    /// Over the same figure of which engine, or which ring.
    pub over: Option<String>,
    /// What was published, in the figure's unit.
    pub seed: Option<f64>,
    /// The bar, from below.
    pub at_least: Option<f64>,
    /// The bar, from above.
    pub at_most: Option<f64>,
}

/// A figure of a run, or of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "there is no such figure")]
pub enum AnyFigure {
    /// Of a run.
    Run(Figure),
    /// Of a ring.
    Ring(rings::Figure),
}

/// What a row came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The median of the rounds.
    pub ours: f64,
    /// The least of a round, and the most.
    pub noise: (f64, f64),
    /// Ours over what was published.
    pub ratio: Option<f64>,
    /// Whether the bar is reached; none where there is none.
    pub reached: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: String,
    needs: Option<String>,
    #[serde(default = "one")]
    rounds: u8,
    #[serde(default)]
    scenario: Table,
    #[serde(default)]
    workload: Table,
    #[serde(default, rename = "stage")]
    stages: Vec<Table>,
    #[serde(default)]
    small: Small,
    #[serde(default, rename = "row")]
    rows: Vec<Row>,
}

fn one() -> u8 {
    1
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Small {
    rounds: Option<u8>,
    #[serde(default)]
    scenario: Table,
    #[serde(default)]
    workload: Table,
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
    /// Reads a file, in its small form if that is wanted.
    ///
    /// # Errors
    /// [`Error::Unusable`] if anything in it makes no sense, its scenario and its workload included.
    pub fn read(path: &Path, is_small: bool) -> Result<Experiment, Error> {
        let text = fs::read_to_string(path).map_err(Error::file(path))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Experiment::parse(&name, &text, is_small)
            .map_err(|what| Error::Unusable(format!("{}: {what}", path.display())))
    }

    pub(crate) fn parse(name: &str, text: &str, is_small: bool) -> Result<Experiment, String> {
        let mut file: File = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        if is_small {
            merge(&mut file.scenario, file.small.scenario);
            merge(&mut file.workload, file.small.workload);
            file.rounds = file.small.rounds.unwrap_or(file.rounds);
        }
        if !(1..=ROUNDS_MAX).contains(&file.rounds) {
            return Err(format!("rounds: from 1 to {ROUNDS_MAX}"));
        }
        let is_about = |what: &str| file.scenario.contains_key(what) && file.needs.is_none();
        let subject = if is_about("engines") {
            Subject::Engines(Engines::parse(&file.scenario, &file.workload, &file.stages)?)
        } else if !file.stages.is_empty() {
            return Err("[[stage]] goes with `engines` in [scenario]".to_owned());
        } else if is_about("rings") {
            Subject::Rings(Rings::parse(&file.scenario, &file.workload, &file.rows)?)
        } else {
            file.scenario.insert("workload".to_owned(), Value::from(WORKLOAD));
            Subject::Nodes
        };
        let experiment = Experiment {
            name: name.to_owned(),
            title: file.title,
            source: file.source,
            needs: file.needs,
            rounds: file.rounds,
            rows: file.rows,
            subject,
            scenario: file.scenario,
            workload: file.workload,
        };
        if experiment.needs.is_none() {
            experiment.check()?;
        }
        Ok(experiment)
    }

    /// Everything that can be found out before anything is started.
    fn check(&self) -> Result<(), String> {
        if self.rows.is_empty() {
            return Err("there is no [[row]]".to_owned());
        }
        match &self.subject {
            Subject::Nodes => self.check_nodes(),
            Subject::Engines(engines) => self.check_engines(engines),
            Subject::Rings(rings) => self.rows.iter().try_for_each(|row| rings.check(row)),
        }
    }

    fn check_nodes(&self) -> Result<(), String> {
        Scenario::parse(&self.scenario.to_string()).map_err(|what| format!("[scenario]: {what}"))?;
        let workload =
            Workload::parse(&self.workload.to_string(), "[workload]").map_err(|error| error.to_string())?;
        let labels = workload.labels();
        for row in &self.rows {
            row.check_run()?;
            if row.engine.is_some() || row.stage.is_some() || row.over.is_some() {
                return Err(format!("row {:?}: there are no engines", row.name));
            }
            if let Some(label) = row.label.as_ref().filter(|label| !labels.contains(label)) {
                return Err(format!("row {:?}: no operation is called {label:?}", row.name));
            }
        }
        Ok(())
    }

    /// That each row is of an engine, a stage and an operation that there are.
    fn check_engines(&self, engines: &Engines) -> Result<(), String> {
        for row in &self.rows {
            row.check_run()?;
            let wrong = |what: String| format!("row {:?}: {what}", row.name);
            let mut named = [&row.engine, &row.over].into_iter().flatten();
            if let Some(name) = named.find(|name| !engines.names.contains(name)) {
                return Err(wrong(format!("no engine {name:?} is played")));
            }
            let stage = row.stage.as_deref().unwrap_or(engines.last());
            let labels = engines.labels(stage).map_err(|what| wrong(format!("stage {stage:?}: {what}")))?;
            if let Some(label) = row.label.as_ref().filter(|label| !labels.contains(label)) {
                return Err(wrong(format!("no operation of stage {stage:?} is called {label:?}")));
            }
        }
        Ok(())
    }

    /// Writes the scenario and its workload into a folder, and says where the scenario is.
    ///
    /// # Errors
    /// If they cannot be written; [`Error::Unusable`] if the experiment cannot be run.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, Error> {
        if let Some(needs) = &self.needs {
            return Err(Error::Unusable(format!(
                "{} needs {needs}, which this version does not have",
                self.name
            )));
        }
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let put = |name: &str, table: &Table| {
            let path = folder.join(name);
            fs::write(&path, table.to_string()).map_err(Error::file(&path)).map(|()| path)
        };
        put(WORKLOAD, &self.workload)?;
        put(SCENARIO, &self.scenario)
    }

    /// What each row came to over the rounds; `None` where a run has no such figure.
    pub fn judge(&self, rounds: &[Results]) -> Vec<Option<Found>> {
        let figures =
            |row: &Row| rounds.iter().map(|results| row.run()?.of(results, row.label.as_deref())).collect();
        self.rows.iter().map(|row| row.judge(figures(row))).collect()
    }

    /// The same, where each round has played engines.
    pub fn judge_engines(&self, engines: &Engines, rounds: &[Vec<Played>]) -> Vec<Option<Found>> {
        let figure = |row: &Row, round: &[Played]| {
            let stage = row.stage.as_deref().unwrap_or(engines.last());
            let of = |engine: &str| {
                let played = round.iter().find(|it| it.engine == engine && it.stage == stage)?;
                row.run()?.of_played(played, row.label.as_deref())
            };
            let ours = of(row.engine.as_deref().unwrap_or(&engines.names[0]))?;
            match &row.over {
                Some(over) => of(over).filter(|theirs| *theirs != 0.0).map(|theirs| ours / theirs),
                None => Some(ours),
            }
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

impl Row {
    /// What it is counted in: nothing, if it is a ratio.
    pub fn unit(&self) -> &'static str {
        match self.figure {
            _ if self.over.is_some() => "",
            AnyFigure::Run(figure) => figure.unit(),
            AnyFigure::Ring(figure) => figure.unit(),
        }
    }

    /// Its figure of a run, if it is one.
    fn run(&self) -> Option<Figure> {
        match self.figure {
            AnyFigure::Run(figure) => Some(figure),
            AnyFigure::Ring(_) => None,
        }
    }

    /// That it is of a run.
    fn check_run(&self) -> Result<(), String> {
        match self.ring.is_none() && self.run().is_some() {
            true => Ok(()),
            false => Err(format!("row {:?}: there are no rings", self.name)),
        }
    }

    fn judge(&self, figures: Option<Vec<f64>>) -> Option<Found> {
        let mut figures = figures?;
        figures.sort_by(f64::total_cmp);
        let (first, last) = (*figures.first()?, *figures.last()?);
        let ours = (figures[(figures.len() - 1) / 2] + figures[figures.len() / 2]) / 2.0;
        let bars = [self.at_least.map(|bar| ours >= bar), self.at_most.map(|bar| ours <= bar)];
        Some(Found {
            ours,
            noise: (first, last),
            ratio: self.seed.filter(|seed| *seed != 0.0).map(|seed| ours / seed),
            reached: bars.into_iter().flatten().reduce(|one, other| one && other),
        })
    }
}

/// Puts what is in `parts` into `whole`: tables by their keys, anything else in its place.
pub(crate) fn merge(whole: &mut Table, parts: Table) {
    for (key, part) in parts {
        match (whole.get_mut(&key), part) {
            (Some(Value::Table(whole)), Value::Table(part)) => merge(whole, part),
            (_, part) => drop(whole.insert(key, part)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
[small]
rounds = 1
workload = { duration = "5s", keys = { count = 10 } }
[[row]]
name = "rate"
figure = "throughput"
seed = 10.0
at_least = 20.0
"#;

    #[test]
    fn the_small_form_replaces_what_it_names() {
        let (full, small) =
            (Experiment::parse("X", TEXT, false).unwrap(), Experiment::parse("X", TEXT, true).unwrap());
        assert_eq!((full.rounds, small.rounds), (3, 1));
        let folder = tempfile::tempdir().unwrap();
        let scenario = Scenario::read(&small.write(folder.path()).unwrap()).unwrap();
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
            let wrong = Experiment::parse("X", &TEXT.replace(from, to), false).unwrap_err();
            assert!(wrong.contains(part), "{to}: {wrong}");
        }
        let text = TEXT.replace("rounds = 3", "needs = \"secondary indexes\"");
        let experiment = Experiment::parse("X", &text, false).unwrap();
        let wrong = experiment.write(Path::new("nowhere")).unwrap_err().to_string();
        assert!(wrong.contains("X needs secondary indexes"), "{wrong}");
    }

    #[test]
    fn rows_are_judged_by_the_median_of_their_rounds() {
        let row = Experiment::parse("X", TEXT, false).unwrap().rows.remove(0);
        let found = row.judge(Some(vec![30.0, 10.0, 25.0])).unwrap();
        assert_eq!(
            (found.ours, found.noise, found.ratio, found.reached),
            (25.0, (10.0, 30.0), Some(2.5), Some(true))
        );
        assert_eq!(row.judge(Some(vec![10.0, 20.0])).unwrap().reached, Some(false));
        let both = Row { at_most: Some(28.0), ..row.clone() };
        assert_eq!(both.judge(Some(vec![29.0])).unwrap().reached, Some(false));
        let open = Row { at_least: None, seed: Some(0.0), ..row };
        assert_eq!(open.judge(Some(vec![29.0])).map(|it| (it.ratio, it.reached)), Some((None, None)));
        assert_eq!(open.judge(None), None);
    }

    #[test]
    fn examples_of_the_documentation_are_read() {
        let page = include_str!("../../../docs/bench.md");
        let examples = page.split("```toml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
        let (mut experiments, mut scenarios) = (0, 0);
        for example in examples {
            if example.contains("[[row]]") {
                for is_small in [false, true] {
                    Experiment::parse("example", example, is_small).unwrap();
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
            for is_small in [false, true] {
                Experiment::read(file, is_small).unwrap();
            }
        }
    }
}
