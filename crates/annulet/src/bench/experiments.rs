//! `annulet bench experiments`: published experiments, repeated, and their figures beside ours.

use super::run::stop_by_signal;
use super::scenario::play_in;
use crate::failure::{FAILED, Failure, UNUSABLE};
use crate::sibling;
use bench::Control;
use clap::ValueHint;
use experiments::scenario::{Engines, Scenario};
use experiments::{
    Experiment, Figure, Form, Found, Measured, Played, RESULTS, Rings, Row, Subject, Variants, all,
};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Arguments of `bench experiments`.
#[derive(clap::Args)]
pub struct Args {
    /// Names of experiments [default: all that can run].
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Run small forms: the same regime in about a minute.
    #[arg(long)]
    small: bool,
    /// Run middle forms: some minutes.
    #[arg(long, conflicts_with = "small")]
    middle: bool,
    /// List the experiments, and run none.
    #[arg(long)]
    list: bool,
    /// Folder of the experiments.
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "DIR", default_value = "experiments")]
    folder: PathBuf,
    /// Folder of the results, with a folder for each experiment and round, empty or missing.
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "DIR", default_value = "bench-results/experiments")]
    out: PathBuf,
}

impl Args {
    fn form(&self) -> Form {
        match (self.small, self.middle) {
            (true, _) => Form::Small,
            (_, true) => Form::Middle,
            _ => Form::Full,
        }
    }
}

/// Runs them; fails if one cannot be run or was wrong. A bar that is not reached is no failure, and is told.
pub fn run(args: &Args) -> Result<(), Failure> {
    let files = all(&args.folder)?.into_iter();
    let read: Result<Vec<_>, _> = files.map(|file| Experiment::read(&file, args.form())).collect();
    let mut experiments = read?;
    if let Some(name) = args.names.iter().find(|name| !experiments.iter().any(|it| it.name == **name)) {
        return Err(Failure::new(UNUSABLE, format!("{}: no experiment {name}", args.folder.display())));
    }
    experiments.retain(|it| args.names.is_empty() || args.names.contains(&it.name));
    if args.list {
        return list(&experiments);
    }
    let out = std::path::absolute(&args.out)?;
    let control = Arc::new(Control::default());
    stop_by_signal(Arc::clone(&control))?;
    let mut wrong = Vec::new();
    for experiment in &experiments {
        let Experiment { name, title, .. } = experiment;
        match &experiment.subject {
            Ok(Subject::Nodes(variants)) => wrong.extend(run_nodes(experiment, variants, &out, &control)?),
            Ok(Subject::Engines(engines)) => wrong.extend(run_engines(experiment, engines, &out, &control)?),
            Ok(Subject::Rings(rings)) => run_rings(experiment, rings, &out, &control)?,
            Err(obstacle) if args.names.is_empty() => {
                writeln!(std::io::stdout(), "\n{name}  {title}: left out, it {obstacle}")?;
            }
            Err(obstacle) => return Err(Failure::new(UNUSABLE, format!("{name} {obstacle}"))),
        }
    }
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(FAILED, format!("wrong: {}", wrong.join("; ")))),
    }
}

/// Plays the variants as scenarios and prints their figures; returns the faults of the stores.
fn run_nodes(
    experiment: &Experiment,
    variants: &Variants,
    out: &Path,
    control: &Control,
) -> Result<Vec<String>, Failure> {
    let names: Vec<&str> = variants.names().collect();
    let play = |name: &str, folder: &Path, all: &mut Vec<Played>| {
        let scenario = Scenario::read(&variants.write(name, folder, all)?)?;
        if let Err(missing) = scenario.check_program() {
            return Ok(Some(missing.to_string()));
        }
        let data = folder.join("data");
        play_in(&scenario, &data, &folder.join(RESULTS), &control.for_another())?;
        std::fs::remove_dir_all(data)?;
        all.push(Played::open(name, folder)?);
        Ok(None)
    };
    run_rounds(experiment, &names, out, control, &play)
}

/// Takes engines through their stages and prints their figures; returns the faults of the engines.
fn run_engines(
    experiment: &Experiment,
    engines: &Engines,
    out: &Path,
    control: &Control,
) -> Result<Vec<String>, Failure> {
    let program = sibling::program("annulet")?;
    let names: Vec<&str> = engines.names.iter().map(String::as_str).collect();
    let play = |engine: &str, folder: &Path, all: &mut Vec<Played>| {
        let played = engines.play(engine, &program, folder, control, all);
        Ok(played.err().map(|error| error.to_string()))
    };
    run_rounds(experiment, &names, out, control, &play)
}

/// Plays a variant or an engine into a folder, and adds its runs; returns why something was not measured.
type Play<'a> = dyn Fn(&str, &Path, &mut Vec<Played>) -> Result<Option<String>, Failure> + 'a;

/// Plays all of these in turns, round by round, and prints their figures; returns the faults of the stores.
fn run_rounds(
    experiment: &Experiment,
    names: &[&str],
    out: &Path,
    control: &Control,
    play: &Play<'_>,
) -> Result<Vec<String>, Failure> {
    let (mut rounds, mut wrong, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=experiment.rounds {
        let mut all = Vec::new();
        for name in names {
            // The only variant has no name, and no folder of its own.
            let folder = out.join(&experiment.name).join(round.to_string()).join(name);
            if let Some(reason) = play(name, &folder, &mut all)? {
                left_out.push(format!("{name}: not measured: {reason}"));
            }
            if control.is_stopped() {
                return Err(Failure::new(FAILED, "stopped"));
            }
        }
        for played in &all {
            let place = [&*experiment.name, &*played.name, &*played.stage, &format!("round {round}")];
            let place = place.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(", ");
            wrong.extend(played.failures().into_iter().map(|failure| format!("{place}: {failure}")));
        }
        rounds.push(all);
    }
    if rounds.last().is_some_and(|all| all.len() > 1) {
        show_played(&rounds)?;
    }
    let mut stdout = std::io::stdout().lock();
    left_out.dedup();
    left_out.iter().try_for_each(|line| writeln!(stdout, "{line}"))?;
    drop(stdout);
    show(experiment, &experiment.judge(&rounds))?;
    Ok(wrong)
}

/// Measures rings, round by round, and prints what they came to.
fn run_rings(experiment: &Experiment, rings: &Rings, out: &Path, control: &Control) -> Result<(), Failure> {
    let folder = out.join(&experiment.name);
    std::fs::create_dir_all(&folder)?;
    let mut rounds = Vec::new();
    for _ in 0..experiment.rounds {
        rounds.push(rings.measure(&folder, control)?);
        if control.is_stopped() {
            return Err(Failure::new(FAILED, "stopped"));
        }
    }
    show_rings(rings, &rounds)?;
    show(experiment, &experiment.judge_rings(rings, &rounds))
}

/// What each ring came to, in the last round.
fn show_rings(rings: &Rings, rounds: &[Measured]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    write!(out, "\n{:<14}", "ring")?;
    rings.figures.iter().try_for_each(|figure| write!(out, " {:>16}", figure.to_string()))?;
    writeln!(out)?;
    for shape in &rings.shapes {
        write!(out, "{:<14}", shape.to_string())?;
        let figures = rings.figures.iter().map(|&figure| rounds.last()?.get(&(*shape, figure)));
        for value in figures {
            write!(out, " {:>16}", value.map_or("-".to_owned(), |value| short(*value)))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Prints the figures of each variant, or of each engine in each stage, in the last round.
fn show_played(rounds: &[Vec<Played>]) -> Result<(), Failure> {
    const FIGURES: [(&str, Figure); 8] = [
        ("op/s", Figure::Throughput),
        ("held", Figure::Held),
        ("mean ms", Figure::MeanMs),
        ("p99 ms", Figure::P99Ms),
        ("p99.99 ms", Figure::P9999Ms),
        ("max ms", Figure::MaxMs),
        ("B/B", Figure::WriteAmplification),
        ("MiB", Figure::SpaceMib),
    ];
    let mut out = std::io::stdout().lock();
    write!(out, "\n{:<16} {:<14}", "", "stage")?;
    FIGURES.iter().try_for_each(|(name, _)| write!(out, " {name:>10}"))?;
    writeln!(out)?;
    for played in rounds.last().into_iter().flatten() {
        write!(out, "{:<16} {:<14}", played.name, played.stage)?;
        for (_, figure) in FIGURES {
            write!(out, " {:>10}", figure.of_played(played, None).map_or("-".to_owned(), short))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn list(experiments: &[Experiment]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for it in experiments {
        let obstacle = it.subject.as_ref().err().map(|it| format!(" ({it})")).unwrap_or_default();
        writeln!(out, "{:<6} {}{obstacle}", it.name, it.title)?;
    }
    Ok(())
}

/// Prints the rows of an experiment.
fn show(experiment: &Experiment, found: &[Option<Found>]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "\n{}  {} ({}; {} rounds)",
        experiment.name, experiment.title, experiment.source, experiment.rounds
    )?;
    writeln!(
        out,
        "{:<44} {:>10} {:>10} {:>8}  {:<22} {:<8} noise",
        "", "published", "ours", "ratio", "bar", "reached"
    )?;
    for (row, found) in experiment.rows.iter().zip(found) {
        writeln!(out, "{}", line(row, found.as_ref()))?;
    }
    Ok(())
}

fn line(row: &Row, found: Option<&Found>) -> String {
    let unit = row.unit();
    let name = if unit.is_empty() { row.name.clone() } else { format!("{}, {unit}", row.name) };
    let published = row.seed.map_or("-".to_owned(), short);
    let Some(found) = found else { return format!("{name:<44} {published:>10} {:>10}", "not measured") };
    let ratio = found.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let bars = [("at least", row.at_least), ("at most", row.at_most)];
    let bars = bars.into_iter().filter_map(|(word, bar)| Some(format!("{word} {}", short(bar?))));
    let reached = match found.reached {
        None => "-",
        Some(true) => "yes",
        Some(false) => "NO",
    };
    format!(
        "{name:<44} {published:>10} {:>10} {ratio:>8}  {:<22} {reached:<8} {} to {}",
        short(found.ours),
        bars.collect::<Vec<_>>().join(", "),
        short(found.noise.0),
        short(found.noise.1),
    )
}

/// A number with some four digits.
fn short(number: f64) -> String {
    match number.abs() {
        size if size >= 1000.0 || size == size.trunc() => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn numbers_are_short() {
        let all = [25_994.4, 13.57, 0.305_5, 3.0, 0.0].map(short);
        assert_eq!(all, ["25994", "13.6", "0.305", "3", "0"]);
    }
}
