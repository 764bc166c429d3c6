//! The variants of an experiment of nodes: the same scenario and workload, with other parts in each.
//!
//! 1. [`Variants::parse`] makes the scenario and the workload of each, and checks them.
//! 2. A round plays all of them, one after the other ([`Variants::write`] makes the files), since a machine changes by
//!    the hour: figures of one round compare.
//!
//! An experiment without variants is a single one without a name. Its files lie in the folder of the round, those of a
//! variant with a name in a folder of their own there.

use crate::form::{Share, VariantParts, merge};
use crate::scenario::Scenario;
use crate::{Figure, Played, Row};
use bench::{Error, Workload};
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Variants at most: more would take longer than a machine stays as it is.
const VARIANTS_MAX: usize = 16;

/// The greatest share of a throughput: beyond it, an open loop is only a longer queue.
const SHARE_MAX: f64 = 10.0;

/// The names of the files of [`Variants::write`], and of the history that the run writes.
const SCENARIO: &str = "scenario.toml";
const WORKLOAD: &str = "workload.toml";
pub(crate) const HISTORY: &str = "history.jsonl";

/// The key of a workload's history.
const HISTORY_KEY: &str = "history";

/// The variants of an experiment.
#[derive(Clone, Debug)]
pub struct Variants(Vec<Variant>);

#[derive(Clone, Debug)]
struct Variant {
    /// Its name; empty if it is the only one.
    name: String,
    scenario: Table,
    workload: Table,
    /// The labels of its operations.
    labels: Vec<String>,
    /// Its rate as a share of the throughput of a variant before it; that of the workload if it is not said.
    rate: Option<Share>,
}

impl Variants {
    /// Of an experiment's `[scenario]`, its `[workload]` and each `[[variant]]`.
    ///
    /// # Errors
    /// The fault, and its variant.
    pub(crate) fn parse(
        scenario: Table,
        workload: Table,
        parts: Vec<VariantParts>,
    ) -> Result<Variants, String> {
        if parts.is_empty() {
            return Ok(Variants(vec![Variant::parse(String::new(), scenario, workload, None)?]));
        }
        if parts.len() > VARIANTS_MAX {
            return Err(format!("{VARIANTS_MAX} variants at most"));
        }
        let is_name = |it: &str| !it.is_empty() && it.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let mut variants: Vec<Variant> = Vec::new();
        for part in parts {
            let wrong = |what: String| format!("variant {:?}: {what}", part.name);
            if !is_name(&part.name) {
                return Err(wrong("a name has letters, digits and hyphens".to_owned()));
            }
            if variants.iter().any(|it| it.name == part.name) {
                return Err(wrong("there are two of this name".to_owned()));
            }
            if let Some(rate) = &part.rate {
                let is_share = rate.share > 0.0 && rate.share <= SHARE_MAX;
                if !is_share || variants.iter().all(|it| it.name != rate.of) {
                    let what = format!("rate: a share up to {SHARE_MAX} of a variant that is played before");
                    return Err(wrong(what));
                }
            }
            let (mut scenario, mut workload) = (scenario.clone(), workload.clone());
            merge(&mut scenario, part.scenario);
            merge(&mut workload, part.workload);
            variants.push(
                Variant::parse(part.name.clone(), scenario, workload, part.rate.clone()).map_err(wrong)?,
            );
        }
        Ok(Variants(variants))
    }

    /// Their names, in the order in which they are played; a single one may have an empty name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|variant| &*variant.name)
    }

    /// The one of rows that name none.
    pub(crate) fn first(&self) -> &str {
        &self.0[0].name
    }

    /// That a row is of variants and an operation that there are.
    pub(crate) fn check(&self, row: &Row) -> Result<(), String> {
        let figure = row.check_run()?;
        if row.engine.is_some() || row.stage.is_some() {
            return Err(row.wrong("there are no engines"));
        }
        let named = row.variant.as_deref().unwrap_or(self.first());
        for name in [Some(named), row.over.as_deref()].into_iter().flatten() {
            let variant = self.0.iter().find(|it| it.name == name);
            let variant = variant.ok_or_else(|| row.wrong(&format!("there is no variant {name:?}")))?;
            row.check_label(&variant.labels, "")?;
            let needs_history = matches!(figure, Figure::Violations | Figure::Undecided);
            if needs_history && !variant.workload.contains_key(HISTORY_KEY) {
                return Err(row.wrong("the workload has no `history`"));
            }
        }
        Ok(())
    }

    /// Writes the scenario and the workload of a variant into a folder, and returns the path of the scenario. A history
    /// will lie there, too. `played` are the variants that the round has played before.
    ///
    /// # Errors
    /// If they cannot be written; [`Error::Unusable`] if the rate is a share of a variant that was not measured.
    ///
    /// # Panics
    /// If there is no such variant.
    pub fn write(&self, name: &str, folder: &Path, played: &[Played]) -> Result<PathBuf, Error> {
        let variant = self.0.iter().find(|it| it.name == name).expect("the name is one of these");
        let mut workload = variant.workload.clone();
        if let Some(history) = workload.get_mut(HISTORY_KEY) {
            *history = Value::from(folder.join(HISTORY).display().to_string());
        }
        if let Some(rate) = &variant.rate {
            let throughput = played.iter().find(|it| it.name == rate.of);
            let throughput = throughput.and_then(|it| Figure::Throughput.of_played(it, None));
            let throughput = throughput.filter(|it| *it > 0.0);
            let missing =
                || Error::Unusable(format!("{:?}, of which it has a share, was not measured", rate.of));
            let load = [
                ("kind".to_owned(), Value::from("poisson")),
                ("rate".to_owned(), Value::from(rate.share * throughput.ok_or_else(missing)?)),
            ];
            workload.insert("load".to_owned(), Value::Table(Table::from_iter(load)));
        }
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let put = |name: &str, table: &Table| {
            let path = folder.join(name);
            fs::write(&path, table.to_string()).map_err(Error::file(&path)).map(|()| path)
        };
        put(WORKLOAD, &workload)?;
        put(SCENARIO, &variant.scenario)
    }
}

impl Variant {
    fn parse(
        name: String,
        mut scenario: Table,
        workload: Table,
        rate: Option<Share>,
    ) -> Result<Variant, String> {
        scenario.insert("workload".to_owned(), Value::from(WORKLOAD));
        let read = Scenario::parse(&scenario.to_string()).map_err(|what| format!("[scenario]: {what}"))?;
        let load = Workload::parse(&workload.to_string(), "[workload]").map_err(|error| error.to_string())?;
        read.check_driver(load.driver)?;
        Ok(Variant { name, scenario, workload, labels: load.labels(), rate })
    }
}

#[cfg(test)]
#[path = "variants_tests.rs"]
mod tests;
