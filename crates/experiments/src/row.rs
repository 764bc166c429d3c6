//! The rows of an experiment: figures beside published ones, bars, and the judgement of rounds.
//!
//! A row is of one variant, engine or ring, the first if it names none, and may be over another one: its figure is
//! their ratio then. The value is the median of the rounds; the least and the most of them are the noise.

use crate::{Figure, rings};
use serde::Deserialize;

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
    /// Of which variant, where there are several; the first if it is not said.
    pub variant: Option<String>,
    /// Of which engine, where there are several; the first if it is not said.
    pub engine: Option<String>,
    /// Of which of the engine's stages; the last if it is not said.
    pub stage: Option<String>,
    /// Of which ring, where there are several; the first if it is not said.
    pub ring: Option<String>,
    /// Over the same figure of which variant, engine or ring.
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

impl Row {
    /// What it is counted in: nothing, if it is a ratio.
    pub fn unit(&self) -> &'static str {
        match self.figure {
            _ if self.over.is_some() => "",
            AnyFigure::Run(figure) => figure.unit(),
            AnyFigure::Ring(figure) => figure.unit(),
        }
    }

    /// Its value of one, over that of another if it is a ratio; `first` is taken if it names none.
    pub(crate) fn value(&self, first: &str, of: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        let named = self.variant.as_ref().or(self.engine.as_ref()).or(self.ring.as_ref());
        let ours = of(named.map_or(first, |name| name))?;
        match &self.over {
            Some(over) => of(over).filter(|theirs| *theirs != 0.0).map(|theirs| ours / theirs),
            None => Some(ours),
        }
    }

    /// Its figure of a run, if it is one.
    pub(crate) fn run(&self) -> Option<Figure> {
        match self.figure {
            AnyFigure::Run(figure) => Some(figure),
            AnyFigure::Ring(_) => None,
        }
    }

    /// A fault of it.
    pub(crate) fn wrong(&self, what: &str) -> String {
        format!("row {:?}: {what}", self.name)
    }

    /// Its figure of a run.
    ///
    /// # Errors
    /// If it is of a ring.
    pub(crate) fn check_run(&self) -> Result<Figure, String> {
        let figure = self.run().filter(|_| self.ring.is_none());
        figure.ok_or_else(|| self.wrong("there are no rings"))
    }

    /// That its operation is one of these.
    pub(crate) fn check_label(&self, labels: &[String], place: &str) -> Result<(), String> {
        match self.label.as_ref().filter(|label| !labels.contains(label)) {
            None => Ok(()),
            Some(label) => Err(self.wrong(&format!("no operation{place} is called {label:?}"))),
        }
    }

    /// The judgement of its values in all rounds; none if a round has no value.
    pub(crate) fn judge(&self, figures: Option<Vec<f64>>) -> Option<Found> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> Row {
        toml::from_str(&format!("name = \"rate\"\nfigure = \"throughput\"\n{text}")).unwrap()
    }

    #[test]
    fn rows_are_judged_by_the_median_of_their_rounds() {
        let row = row("seed = 10.0\nat_least = 20.0");
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
    fn a_ratio_needs_both_of_its_values() {
        let of = |name: &str| [("a", 6.0), ("b", 2.0), ("none", 0.0)].into_iter().find(|it| it.0 == name);
        let value = |text: &str| row(text).value("a", |name| Some(of(name)?.1));
        assert_eq!(value(""), Some(6.0));
        assert_eq!(value("variant = \"b\""), Some(2.0));
        assert_eq!(value("over = \"b\""), Some(3.0));
        assert_eq!(value("variant = \"b\"\nover = \"a\""), Some(2.0 / 6.0));
        assert_eq!(
            (value("over = \"none\""), value("over = \"c\""), value("variant = \"c\"")),
            (None, None, None)
        );
    }
}
