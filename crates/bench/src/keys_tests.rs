use super::*;

const DRAWS: u64 = 200_000;

fn draws(shape: Shape) -> Vec<u64> {
    let (mut keys, mut rng, inserted) = (Keys::new(shape, 0, 1), Rng::new(7), Inserted::default());
    (0..DRAWS).map(|_| keys.draw(&mut rng, &inserted).unwrap()).collect()
}

fn share(all: &[u64], wanted: impl Fn(u64) -> bool) -> f64 {
    all.iter().filter(|&&key| wanted(key)).count() as f64 / all.len() as f64
}

/// Pearson's statistic of draws against the probabilities of cells.
fn chi_square(all: &[u64], cell_of: impl Fn(u64) -> usize, probabilities: &[f64]) -> f64 {
    let mut counts = vec![0.0; probabilities.len()];
    all.iter().for_each(|&key| counts[cell_of(key)] += 1.0);
    let cells = counts.iter().zip(probabilities);
    cells.map(|(count, p)| (count - p * all.len() as f64).powi(2) / (p * all.len() as f64)).sum()
}

/// The value that a chi-square of so many degrees exceeds once in 10,000 times (Wilson and Hilferty).
fn limit(degrees: usize) -> f64 {
    let degrees = degrees as f64;
    let part = 2.0 / (9.0 * degrees);
    degrees * (1.0 - part + 3.719 * part.sqrt()).powi(3)
}

#[test]
fn uniform_draws_are_uniform() {
    let all = draws(Shape::Uniform { count: 100 });
    assert!(chi_square(&all, |key| key as usize, &[0.01; 100]) < limit(99));
}

#[test]
fn zipf_draws_follow_the_power_law() {
    for theta in [0.2, 0.99] {
        let count = 1000u64;
        let all = draws(Shape::Zipf { count, theta, scrambled: false });
        let total: f64 = (1..=count).map(|i| (i as f64).powf(-theta)).sum();
        let cells: Vec<f64> = (1..=count).map(|i| (i as f64).powf(-theta) / total).collect();
        assert!(chi_square(&all, |key| key as usize, &cells) < limit(999), "{theta}");
        let spread = draws(Shape::Zipf { count, theta, scrambled: true });
        // Others are hashed to the same key, too.
        assert!(share(&spread, |key| key == mix(0) % count) > 0.95 * cells[0]);
        assert!(share(&spread, |key| key < count / 2) < 0.65);
    }
}

#[test]
fn pareto_is_lomax_as_the_seeds_have_it() {
    let count = 1_000_000;
    let all = draws(Shape::Pareto { count, truncated: false });
    // P(X > x) = (1 + x / 0.1 N)^-1.5
    assert!((share(&all, |key| key < count / 5) - 0.8075).abs() < 0.005);
    assert!((share(&all, |key| key >= count) - 0.0274).abs() < 0.002);
    let below = |x: f64| 1.0 - (1.0 + x / 0.1).powf(-1.5);
    let cuts: Vec<f64> = (0..=50).map(|i| f64::from(i) / 50.0).collect();
    let mut cells: Vec<f64> = cuts.windows(2).map(|pair| below(pair[1]) - below(pair[0])).collect();
    cells.push(1.0 - below(1.0));
    let cell_of = |key: u64| ((key * 50 / count) as usize).min(50);
    assert!(chi_square(&all, cell_of, &cells) < limit(50));
    // The mean converges slowly, as the variance is infinite: with fixed quantiles it is a fifth of the count.
    let mean = (0..1_000_000).map(|i| pareto((f64::from(i) + 0.5) / 1e6, count) as f64).sum::<f64>() / 1e6;
    assert!((mean / (0.2 * count as f64) - 1.0).abs() < 0.03, "{mean}");
    let truncated = draws(Shape::Pareto { count, truncated: true });
    assert_eq!(share(&truncated, |key| key >= count), 0.0);
    assert!((share(&truncated, |key| key < count / 5) - 0.8075 / 0.9726).abs() < 0.005);
}

#[test]
fn hot_keys_get_their_share() {
    let all = draws(Shape::Hotspot { count: 1000, hot_keys: 0.2, hot_draws: 0.8 });
    let cells = [[0.004; 200].as_slice(), &[0.000_25; 800]].concat();
    assert!(chi_square(&all, |key| key as usize, &cells) < limit(999));
}

#[test]
fn sequences_are_cut_into_parts_and_resumed() {
    let shape = Shape::Sequential { start: 5, count: 10 };
    let (mut rng, inserted) = (Rng::new(1), Inserted::default());
    let mut all = Vec::new();
    for worker in 0..3 {
        let mut keys = Keys::new(shape.clone(), worker, 3);
        all.extend(std::iter::from_fn(|| keys.draw(&mut rng, &inserted)));
    }
    assert_eq!(all, (5..15).collect::<Vec<_>>());
    let mut keys = Keys::new(shape, 2, 3);
    keys.resume(13);
    assert_eq!(keys.draw(&mut rng, &inserted), Some(13));
}

#[test]
fn present_latest_and_own_keys_are_there() {
    let mut inserted = Inserted {
        sequence: Progress::starting(1000),
        unique: Progress::starting(unique_first(3)),
        ..Inserted::default()
    };
    let mut rng = Rng::new(3);
    let mut shapes: Vec<Keys> =
        [Shape::Present { loaded: 0 }, Shape::Latest { theta: 0.9 }, Shape::Own, Shape::OwnOldest]
            .into_iter()
            .map(|shape| Keys::new(shape, 3, 8))
            .collect();
    assert!(shapes.iter_mut().all(|keys| keys.draw(&mut rng, &inserted).is_none()));
    for member in [1000, 1002, 1001, 1004] {
        inserted.sequence.acknowledge(member);
    }
    let first = inserted.unique.first;
    (0..3).for_each(|member| inserted.unique.acknowledge(first + member));
    inserted.deleted = first + 1;
    assert_eq!((inserted.sequence.done, inserted.unique.done), (1003, first + 3));
    for _ in 0..1000 {
        let drawn: Vec<u64> = shapes.iter_mut().map(|keys| keys.draw(&mut rng, &inserted).unwrap()).collect();
        assert!((1000..1003).contains(&drawn[0]) && (1000..1003).contains(&drawn[1]), "{drawn:?}");
        assert!((first + 1..first + 3).contains(&drawn[2]));
        assert_eq!(drawn[3], first + 1);
    }
    assert_eq!(unique_parts(first + 2), Some((3, 2)));
    assert_eq!(unique_parts(7), None);
}
