//! Ratios and how far to believe them.

use super::blocks::{Blocks, sum_of};
use super::{Better, Found, Metric};
use base::Rng;
use base::rng::SplitMix64;

/// Samples of a bootstrap: the ends of a 95 % band are then the sixth from either side.
const SAMPLES: usize = 200;

/// A difference of less is none that anybody would act on, however sure.
const NOTABLE: f64 = 0.01;

/// A ratio with its 95 % band.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// The best guess.
    pub ratio: f64,
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// What can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// B is better.
    Better,
    /// B is worse.
    Worse,
    /// The band allows both, or the difference is too small to matter.
    Same,
}

impl Verdict {
    /// Of a band.
    pub fn of(band: Band, better: Better) -> Verdict {
        let is_more = band.low > 1.0 && band.ratio > 1.0 + NOTABLE;
        let is_less = band.high < 1.0 && band.ratio < 1.0 - NOTABLE;
        match (is_more, is_less, better) {
            (true, _, Better::Higher) | (_, true, Better::Lower) => Verdict::Better,
            (true, _, Better::Lower) | (_, true, Better::Higher) => Verdict::Worse,
            _ => Verdict::Same,
        }
    }
}

/// The metrics that both sides have, with their ratios.
pub fn compare(pairs: &[(Blocks, Blocks)], metrics: &[Metric]) -> Vec<Found> {
    let (all_a, all_b) = (sum_of(pairs.iter().map(|pair| &pair.0)), sum_of(pairs.iter().map(|pair| &pair.1)));
    let bands = match pairs {
        [(a, b)] => bootstrap(a, b, metrics),
        _ => paired(pairs, metrics),
    };
    let found = metrics.iter().zip(bands).filter_map(|(metric, ratio)| {
        Some(Found {
            metric: metric.clone(),
            a: metric.value(&all_a)?,
            b: metric.value(&all_b)?,
            ratio: ratio?,
        })
    });
    found.collect()
}

/// Student's t over the logarithms of the pairs' ratios.
fn paired(pairs: &[(Blocks, Blocks)], metrics: &[Metric]) -> Vec<Option<Band>> {
    let totals: Vec<_> = pairs.iter().map(|(a, b)| (a.total(), b.total())).collect();
    let of = |metric: &Metric| {
        let logs: Option<Vec<f64>> =
            totals.iter().map(|(a, b)| Some((metric.value(b)? / metric.value(a)?).ln())).collect();
        let logs = logs?;
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let half = student(logs.len() - 1) * (variance / count).sqrt();
        Some(Band { ratio: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() })
    };
    metrics.iter().map(of).collect()
}

/// The same blocks of both runs, drawn again and again.
fn bootstrap(a: &Blocks, b: &Blocks, metrics: &[Metric]) -> Vec<Option<Band>> {
    let blocks = a.len().min(b.len());
    let mut rng = SplitMix64::new(0xB007);
    let mut samples: Vec<Vec<f64>> = vec![Vec::with_capacity(SAMPLES); metrics.len()];
    for _ in 0..SAMPLES {
        let drawn: Vec<usize> = (0..blocks).map(|_| rng.below(blocks as u64) as usize).collect();
        let (a, b) = (a.sum(drawn.iter().copied()), b.sum(drawn.iter().copied()));
        for (metric, samples) in metrics.iter().zip(&mut samples) {
            if let (Some(a), Some(b)) = (metric.value(&a), metric.value(&b)) {
                samples.push(b / a);
            }
        }
    }
    let (a, b) = (a.total(), b.total());
    let of = |(metric, mut samples): (&Metric, Vec<f64>)| {
        if samples.len() < SAMPLES {
            return None;
        }
        samples.sort_by(f64::total_cmp);
        let ratio = metric.value(&b)? / metric.value(&a)?;
        let tail = SAMPLES / 40;
        Some(Band { ratio, low: samples[tail].min(ratio), high: samples[SAMPLES - 1 - tail].max(ratio) })
    };
    metrics.iter().zip(samples).map(of).collect()
}

/// The factor of a two-sided 95 % band with so many degrees of freedom.
fn student(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    TABLE.get(degrees.saturating_sub(1)).copied().unwrap_or(1.96)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_says_no_more_than_it_holds() {
        let of = |ratio, low, high, better| Verdict::of(Band { ratio, low, high }, better);
        assert_eq!(of(1.2, 1.1, 1.3, Better::Higher), Verdict::Better);
        assert_eq!(of(1.2, 1.1, 1.3, Better::Lower), Verdict::Worse);
        assert_eq!(of(0.8, 0.7, 0.9, Better::Lower), Verdict::Better);
        assert_eq!(of(0.8, 0.7, 0.9, Better::Higher), Verdict::Worse);
        assert_eq!(of(1.2, 0.9, 1.5, Better::Higher), Verdict::Same);
        assert_eq!(of(1.005, 1.004, 1.006, Better::Higher), Verdict::Same);
    }

    #[test]
    fn the_table_is_that_of_students_t() {
        assert_eq!((student(1), student(4), student(30), student(31)), (12.706, 2.776, 2.042, 1.96));
    }
}
