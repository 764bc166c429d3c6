//! The file of an experiment, and its forms: the full one, and smaller ones whose tables replace parts of it.
//!
//! A table is replaced key by key, anything else as a whole. The parts of a form come first, then those of a variant,
//! then those of the form for this variant.
//!
//! A file without `[small]` is played as it is. A file without `[middle]` has no such form.

use crate::Row;
use serde::Deserialize;
use toml::{Table, Value};

/// Rounds at most: more say nothing that these do not.
const ROUNDS_MAX: u8 = 20;

/// A form of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// All of it.
    #[default]
    Full,
    /// Some minutes of it.
    Middle,
    /// About a minute of it.
    Small,
}

impl Form {
    /// All.
    pub const ALL: [Form; 3] = [Form::Full, Form::Middle, Form::Small];
}

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub title: String,
    pub source: String,
    needs: Option<String>,
    #[serde(default = "one")]
    pub rounds: u8,
    #[serde(default)]
    pub scenario: Table,
    #[serde(default)]
    pub workload: Table,
    #[serde(default, rename = "stage")]
    pub stages: Vec<Table>,
    #[serde(default, rename = "variant")]
    pub variants: Vec<VariantParts>,
    middle: Option<Parts>,
    #[serde(default)]
    small: Parts,
    #[serde(default, rename = "row")]
    pub rows: Vec<Row>,
    /// Why it cannot be run.
    #[serde(skip)]
    pub obstacle: Option<String>,
}

/// The parts of a variant.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VariantParts {
    pub name: String,
    #[serde(default)]
    pub scenario: Table,
    #[serde(default)]
    pub workload: Table,
    /// Its rate as a share of another variant's throughput.
    pub rate: Option<Share>,
}

/// A share of the throughput of a variant that is played before.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Share {
    pub share: f64,
    pub of: String,
}

/// The parts of a form.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    rounds: Option<u8>,
    #[serde(default)]
    scenario: Table,
    #[serde(default)]
    workload: Table,
    #[serde(default, rename = "variant")]
    variants: Vec<VariantParts>,
}

fn one() -> u8 {
    1
}

impl File {
    /// Reads a text in a form.
    ///
    /// # Errors
    /// The fault of the text.
    pub fn parse(text: &str, form: Form) -> Result<File, String> {
        let mut file: File = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        file.obstacle = file.needs.take().map(|it| format!("needs {it}, which this version does not have"));
        let (middle, small) = (file.middle.take(), std::mem::take(&mut file.small));
        match (form, middle) {
            (Form::Full, _) => {}
            (Form::Small, _) => file.replace(small)?,
            (Form::Middle, Some(middle)) => file.replace(middle)?,
            (Form::Middle, None) => {
                file.obstacle.get_or_insert_with(|| "has no middle form".to_owned());
            }
        }
        match (1..=ROUNDS_MAX).contains(&file.rounds) {
            true => Ok(file),
            false => Err(format!("rounds: from 1 to {ROUNDS_MAX}")),
        }
    }

    /// Replaces the parts of a form.
    fn replace(&mut self, parts: Parts) -> Result<(), String> {
        merge(&mut self.scenario, parts.scenario);
        merge(&mut self.workload, parts.workload);
        self.rounds = parts.rounds.unwrap_or(self.rounds);
        for part in parts.variants {
            let variant = self.variants.iter_mut().find(|it| it.name == part.name);
            let variant = variant.ok_or_else(|| format!("there is no variant {:?}", part.name))?;
            merge(&mut variant.scenario, part.scenario);
            merge(&mut variant.workload, part.workload);
        }
        Ok(())
    }
}

/// Puts `parts` into `whole`: tables by their keys, anything else in its place.
pub(crate) fn merge(whole: &mut Table, parts: Table) {
    for (key, part) in parts {
        match (whole.get_mut(&key), part) {
            (Some(Value::Table(whole)), Value::Table(part)) => merge(whole, part),
            (_, part) => drop(whole.insert(key, part)),
        }
    }
}
