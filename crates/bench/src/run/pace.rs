//! When operations are due.

use crate::rng::Rng;
use crate::workload::Load;
use std::time::Duration;

/// The clock of a worker's operations.
#[derive(Clone, Debug)]
pub enum Pace {
    /// As soon as another has ended.
    Closed,
    /// At times that depend on nothing else: what is late is still due at its time.
    Open {
        /// When the next one is due, in nanoseconds since the start.
        next: f64,
        /// The mean distance in nanoseconds.
        distance: f64,
        /// Whether distances are random.
        poisson: bool,
    },
}

impl Pace {
    /// The part of a load that worker `at` of `of` has.
    pub fn part(load: Load, at: u32, of: u32, rng: &mut Rng) -> Pace {
        let Some(rate) = load.rate() else { return Pace::Closed };
        let distance = 1e9 * f64::from(of) / rate;
        let poisson = matches!(load, Load::Poisson(_));
        // Workers take turns, so all together are as even as one.
        let next = if poisson { rng.exponential(distance) } else { distance * f64::from(at) / f64::from(of) };
        Pace::Open { next, distance, poisson }
    }

    /// One operation in every such time, the first after it.
    pub fn every(time: Duration) -> Pace {
        let distance = time.as_nanos() as f64;
        Pace::Open { next: distance, distance, poisson: false }
    }

    /// When the next operation is due; at once in a closed loop.
    pub fn due(&self) -> Option<u64> {
        match self {
            Pace::Closed => None,
            Pace::Open { next, .. } => Some(*next as u64),
        }
    }

    /// Goes on to the one after.
    pub fn advance(&mut self, rng: &mut Rng) {
        if let Pace::Open { next, distance, poisson } = self {
            *next += if *poisson { rng.exponential(*distance) } else { *distance };
        }
    }

    /// About how many operations are due and have not been started at `now`.
    pub fn backlog(&self, now: u64) -> u64 {
        match self {
            Pace::Closed => 0,
            Pace::Open { next, distance, .. } => ((now as f64 - next) / distance).max(0.0) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(load: Load, count: usize) -> Vec<f64> {
        let mut rng = Rng::new(9);
        let mut pace = Pace::part(load, 0, 1, &mut rng);
        let mut times = Vec::new();
        for _ in 0..count {
            times.push(pace.due().unwrap() as f64);
            pace.advance(&mut rng);
        }
        times
    }

    #[test]
    fn a_fixed_load_is_even_and_workers_take_turns() {
        assert_eq!(times(Load::Fixed(1e6), 4), [0.0, 1000.0, 2000.0, 3000.0]);
        let mut rng = Rng::new(1);
        let second = Pace::part(Load::Fixed(1e6), 1, 2, &mut rng);
        assert_eq!(second.due(), Some(1000));
        assert_eq!(second.backlog(11_000), 5);
        assert_eq!(Pace::every(Duration::from_millis(5)).due(), Some(5_000_000));
    }

    #[test]
    fn distances_of_a_poisson_load_are_exponential() {
        let times = times(Load::Poisson(1000.0), 100_000);
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.02 && (variance.sqrt() / mean - 1.0).abs() < 0.02);
        // Counts in equal windows have their mean as variance.
        let mut counts = vec![0.0; 1000];
        let width = times.last().unwrap() / 1000.0;
        times.iter().for_each(|time| counts[((time / width) as usize).min(999)] += 1.0);
        let mean = counts.iter().sum::<f64>() / 1000.0;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 1000.0;
        assert!((variance / mean - 1.0).abs() < 0.2, "{variance} {mean}");
    }
}
