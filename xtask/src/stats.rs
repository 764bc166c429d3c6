//! Medians, spreads and latencies.

use histogram::{Histogram, Recorder};
use std::time::Duration;

/// The middle of some values, or the mean of the two in the middle. `None` of none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// What the values of repetitions say about noise: the smallest, the largest and how many.
pub fn spread(values: &[f64]) -> String {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match values {
        [] => "not measured".to_owned(),
        [_] => "1 run".to_owned(),
        many => format!("{} to {} in {} runs", rounded(low), rounded(high), many.len()),
    }
}

/// A value with four significant digits: more is noise.
pub fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let magnitude = value.abs().log10().floor();
    let decimals = (3.0 - magnitude).clamp(0.0, 9.0);
    let scale = 10f64.powf(decimals);
    (value * scale).round() / scale
}

/// A percentile of latencies in microseconds; 0 if there are none.
pub fn percentile_us(latencies: &Histogram, percent: f64) -> f64 {
    latencies.percentile(percent) as f64 / 1e3
}

/// One more latency.
pub fn record(latencies: &mut Recorder, latency: Duration) {
    latencies.record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn a_spread_names_both_ends() {
        assert_eq!(spread(&[]), "not measured");
        assert_eq!(spread(&[7.0]), "1 run");
        assert_eq!(spread(&[7.0, 12.34567, 8.0]), "7 to 12.35 in 3 runs");
    }

    #[test]
    fn four_digits_stay() {
        assert_eq!(rounded(0.0), 0.0);
        assert_eq!(rounded(12.34567), 12.35);
        assert_eq!(rounded(0.000_123_456), 0.000_123_5);
        assert_eq!(rounded(123_456.7), 123_457.0);
        assert_eq!(rounded(-1.23456), -1.235);
    }

    #[test]
    fn percentiles_are_those_of_the_recorded() {
        let mut recorder = Recorder::default();
        (1..=100).for_each(|micros| record(&mut recorder, Duration::from_micros(micros)));
        let latencies = recorder.take();
        assert!((percentile_us(&latencies, 50.0) - 50.0).abs() < 0.5, "{latencies:?}");
        assert!((percentile_us(&latencies, 99.0) - 99.0).abs() < 1.0, "{latencies:?}");
        assert_eq!(percentile_us(&Histogram::default(), 50.0), 0.0);
    }
}
