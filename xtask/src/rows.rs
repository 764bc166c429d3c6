//! Rows: what is measured, the bar that it is held to, what came out.

use crate::stats::{median, rounded, spread};
use serde_json::{Value, json};
use std::fmt;

/// What a value must be. Copied from where it was promised, never adjusted to a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// No more than this.
    AtMost(f64),
    /// Less than this.
    Below(f64),
    /// No less than this.
    AtLeast(f64),
    /// Just this.
    Exactly(f64),
}

impl Bar {
    /// Whether a value, as measured and not rounded, meets the bar.
    pub fn is_met_by(self, value: f64) -> bool {
        match self {
            Bar::AtMost(bar) => value <= bar,
            Bar::Below(bar) => value < bar,
            Bar::AtLeast(bar) => value >= bar,
            Bar::Exactly(bar) => value == bar,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bar::AtMost(bar) => write!(f, "<= {bar}"),
            Bar::Below(bar) => write!(f, "< {bar}"),
            Bar::AtLeast(bar) => write!(f, ">= {bar}"),
            Bar::Exactly(bar) => write!(f, "= {bar}"),
        }
    }
}

/// A row before it is measured.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name.
    pub row: String,
    /// The unit of its value.
    pub unit: &'static str,
    /// What is asked of it.
    pub bar: Option<Bar>,
}

/// A row as it came out.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was to be measured.
    pub spec: Spec,
    /// The value; `None` if it could not be measured, which is not to reach the bar.
    pub value: Option<f64>,
    /// The spread of the repetitions, and what else the reader must know to trust the value.
    pub noise: String,
    /// What was measured beside it, by name: context, without a bar.
    pub also: Vec<(&'static str, f64)>,
}

impl Spec {
    /// A row with a bar, or `None`.
    pub fn new(row: impl Into<String>, unit: &'static str, bar: Option<Bar>) -> Spec {
        Spec { row: row.into(), unit, bar }
    }

    /// The row whose value is the median of repetitions.
    pub fn measured(self, values: &[f64]) -> Row {
        Row { value: median(values), noise: spread(values), also: Vec::new(), spec: self }
    }

    /// The row of one value.
    pub fn valued(self, value: f64, noise: impl Into<String>) -> Row {
        Row { value: Some(value), noise: noise.into(), also: Vec::new(), spec: self }
    }

    /// The row that could not be measured.
    pub fn failed(self, why: impl fmt::Display) -> Row {
        Row { value: None, noise: format!("failed: {why}"), also: Vec::new(), spec: self }
    }
}

impl Row {
    /// Adds something measured beside it.
    pub fn also(mut self, name: &'static str, value: Option<f64>) -> Row {
        self.also.extend(value.map(|value| (name, value)));
        self
    }

    /// Adds a remark.
    pub fn noted(mut self, note: impl fmt::Display) -> Row {
        self.noise = format!("{}; {note}", self.noise);
        self
    }

    /// Whether it was measured and meets its bar, if it has one.
    pub fn reached(&self) -> bool {
        self.value.is_some_and(|value| self.spec.bar.is_none_or(|bar| bar.is_met_by(value)))
    }

    /// The row as one line of JSON.
    pub fn json(&self) -> Value {
        let mut object = json!({
            "row": self.spec.row,
            "value": self.value.map(rounded),
            "unit": self.spec.unit,
            "bar": self.spec.bar.map(|bar| bar.to_string()),
            "reached": self.reached(),
            "noise": self.noise,
        });
        if !self.also.is_empty() {
            let also = self.also.iter().map(|&(name, value)| (name.to_owned(), json!(rounded(value))));
            object["also"] = Value::Object(also.collect());
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_held_as_written() {
        assert!(Bar::AtMost(14.0).is_met_by(14.0) && !Bar::AtMost(14.0).is_met_by(14.000_1));
        assert!(!Bar::Below(1.0).is_met_by(1.0) && Bar::Below(1.0).is_met_by(0.99));
        assert!(Bar::AtLeast(8.0).is_met_by(8.0) && !Bar::AtLeast(8.0).is_met_by(7.99));
        assert!(Bar::Exactly(1.0).is_met_by(1.0) && !Bar::Exactly(1.0).is_met_by(1.000_01));
        assert_eq!(Bar::AtMost(14.0).to_string(), "<= 14");
    }

    #[test]
    fn a_row_is_one_json_object() {
        let row = Spec::new("none/64/get", "us", Some(Bar::AtMost(14.0)))
            .measured(&[13.0, 12.5, 15.0])
            .also("cores", Some(1.923_45))
            .also("absent", None);
        assert_eq!(
            row.json(),
            json!({"row": "none/64/get", "value": 13.0, "unit": "us", "bar": "<= 14", "reached": true,
                "noise": "12.5 to 15 in 3 runs", "also": {"cores": 1.923}})
        );
        assert!(!row.json().to_string().contains('\n'));
    }

    #[test]
    fn without_a_bar_any_value_is_enough_but_no_value_is_not() {
        let spec = Spec::new("none/1/get", "us", None);
        assert!(spec.clone().measured(&[1e9]).reached());
        assert!(!spec.clone().failed("no tool").reached());
        assert!(!spec.clone().measured(&[]).reached());
        assert_eq!(spec.failed("no tool").json()["bar"], Value::Null);
    }

    #[test]
    fn rounding_does_not_reach_a_bar() {
        let row = Spec::new("x", "us", Some(Bar::AtMost(14.0))).valued(14.000_01, "");
        assert_eq!(row.json()["value"], 14.0);
        assert!(!row.reached());
    }
}
