//! Experiments of the ring alone: each figure that a row names is measured of each ring.

use super::{Figure, Shape};
use crate::{AnyFigure, Row};
use bench::Control;
use bench::Error;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use toml::Table;

/// More rings than these would be those of another experiment: sizes from 64 to 16,384 are nine, and of each there are
/// four with 1 to 1,000 nodes.
const RINGS_MAX: usize = 64;

/// What came of a round.
pub type Measured = BTreeMap<(Shape, Figure), f64>;

/// Which rings are measured, and what of them.
#[derive(Clone, Debug)]
pub struct Rings {
    /// The first is the one that rows are about where they name none.
    pub shapes: Vec<Shape>,
    /// What rows name, each once.
    pub figures: BTreeSet<Figure>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileScenario {
    rings: Vec<Shape>,
}

impl Rings {
    /// Of an experiment's `[scenario]` and its rows; it has no workload.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse(scenario: &Table, workload: &Table, rows: &[Row]) -> Result<Rings, String> {
        let file: FileScenario = scenario
            .clone()
            .try_into()
            .map_err(|error: toml::de::Error| format!("[scenario]: {}", error.to_string().trim_end()))?;
        if !(1..=RINGS_MAX).contains(&file.rings.len()) {
            return Err(format!("[scenario]: from 1 to {RINGS_MAX} rings"));
        }
        if !workload.is_empty() {
            return Err("[workload]: a ring alone serves no requests".to_owned());
        }
        let figures = rows.iter().filter_map(|row| match row.figure {
            AnyFigure::Ring(figure) => Some(figure),
            AnyFigure::Run(_) => None,
        });
        Ok(Rings { shapes: file.rings, figures: figures.collect() })
    }

    /// That a row is of rings that there are.
    pub(crate) fn check(&self, row: &Row) -> Result<(), String> {
        let wrong = |what: &str| Err(format!("row {:?}: {what}", row.name));
        if row.variant.is_some()
            || row.engine.is_some()
            || row.stage.is_some()
            || row.label.is_some()
            || row.run().is_some()
        {
            return wrong("only rings are measured");
        }
        let mut named = [&row.ring, &row.over].into_iter().flatten();
        match named.find(|name| self.shape(name).is_none()) {
            Some(name) => wrong(&format!("no ring {name:?} is measured")),
            None => Ok(()),
        }
    }

    fn shape(&self, name: &str) -> Option<Shape> {
        self.shapes.iter().copied().find(|shape| shape.to_string() == name)
    }

    /// Measures each figure of each ring, in `folder`.
    ///
    /// # Errors
    /// If one cannot be measured.
    pub fn measure(&self, folder: &Path, control: &Control) -> Result<Measured, Error> {
        let mut measured = Measured::new();
        for &shape in &self.shapes {
            for &figure in self.figures.iter().filter(|_| !control.is_stopped()) {
                measured.insert((shape, figure), figure.measure(shape, folder)?);
            }
        }
        Ok(measured)
    }

    /// What a row is about, in a round.
    pub(crate) fn figure(&self, row: &Row, round: &Measured) -> Option<f64> {
        let AnyFigure::Ring(figure) = row.figure else { return None };
        let of = |name: &str| round.get(&(self.shape(name)?, figure)).copied();
        row.value(&self.shapes.first()?.to_string(), of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Experiment, Form, Subject};

    const TEXT: &str = r#"
title = "a title"
source = "a page"
[scenario]
rings = ["64 x 1", "64 x 10"]
[[row]]
name = "again"
figure = "published-again"
at_most = 0.0
[[row]]
name = "moved"
figure = "join-moved"
ring = "64 x 10"
at_most = 1.2
[[row]]
name = "uneven"
figure = "join-uneven"
ring = "64 x 10"
over = "64 x 1"
"#;

    #[test]
    fn each_figure_is_measured_of_each_ring_and_rows_say_which_they_are_about() {
        let experiment = Experiment::parse("X", TEXT, Form::Full).unwrap();
        let Ok(Subject::Rings(rings)) = &experiment.subject else { panic!("it is of rings") };
        let folder = tempfile::tempdir().unwrap();
        let round = rings.measure(folder.path(), &Control::default()).unwrap();
        assert_eq!(round.len(), 2 * 3);
        let found = experiment.judge_rings(rings, &[round.clone(), round]);
        let [again, moved, uneven] = &found[..] else { panic!("three rows") };
        let reached = [again, moved].map(|found| found.as_ref().map(|it| (it.ours, it.reached)));
        assert_eq!(reached, [Some((0.0, Some(true))), Some((1.0, Some(true)))]);
        // Of two nodes each has half.
        assert_eq!(*uneven, None);
    }

    #[test]
    fn what_is_no_ring_is_refused() {
        for (from, to, part) in [
            ("\"64 x 1\", ", "\"60 x 1\", ", "60"),
            ("\"64 x 1\", ", "\"64 x 65\", ", "1 to 64 nodes"),
            ("rings = [\"64 x 1\", \"64 x 10\"]", "rings = []", "from 1 to 64 rings"),
            ("[[row]]", "[workload]\nduration = \"5s\"\n[[row]]", "[workload]"),
            ("figure = \"published-again\"", "figure = \"throughput\"", "\"again\": only rings"),
            ("figure = \"published-again\"", "figure = \"mood\"", "there is no such figure"),
            ("ring = \"64 x 10\"", "ring = \"128 x 10\"", "no ring \"128 x 10\""),
            ("over = \"64 x 1\"", "over = \"bitcask\"", "no ring \"bitcask\""),
            ("over = \"64 x 1\"", "label = \"get\"", "only rings"),
            ("rings = [", "nodes = 3\nrings = [", "nodes"),
        ] {
            let wrong = Experiment::parse("X", &TEXT.replacen(from, to, 1), Form::Full).unwrap_err();
            assert!(wrong.contains(part), "{to}: {wrong}");
        }
        let run = TEXT.replace("rings = [\"64 x 1\", \"64 x 10\"]", "nodes = 3");
        let run = run + "[workload]\nduration = \"5s\"\noperation = [{ op = \"ping\" }]";
        let wrong = Experiment::parse("X", &run, Form::Full).unwrap_err();
        assert!(wrong.contains("there are no rings"), "{wrong}");
    }
}
