//! Charts of resources: the servers' processes, their disks, the machine, and the generator itself.

use super::Run;
use crate::report::chart::{Axis, Chart, Series, Shape, Unit};
use crate::{DiskSecond, Second, ServerSecond};
use std::collections::BTreeSet;

/// The generator's colour, beside the servers'.
const GENERATOR: usize = 7;

pub fn charts(run: &Run<'_>) -> Vec<Chart> {
    let mut charts = vec![cpu(run), memory(run), server_io(run), disk_space(run), amplification(run)];
    charts.extend(disks(run));
    charts.push(machine(run));
    charts.push(outstanding(run));
    charts
}

/// A series for each server that was seen; a second in which its process was not there is a gap.
fn servers(run: &Run<'_>, value: impl Fn(&ServerSecond) -> Option<f64>) -> Vec<Series> {
    let names = run.results.manifest.servers.iter().map(|server| &server.name);
    let series = names.enumerate().map(|(at, name)| {
        let of = |second: &Second| {
            let own = second.servers.iter().find(|it| it.server as usize == at && it.up);
            own.and_then(&value)
        };
        Series::line(name, at, run.intervals.points(|it| it.mean(of)))
    });
    series.filter(|series| series.points.iter().any(|(_, y)| y.is_finite())).collect()
}

fn cpu(run: &Run<'_>) -> Chart {
    let y = Axis::new("cores in use", Unit::Factor).spanning(0.0, 1.0);
    let mut chart = run.over_time("cpu", "CPU of the processes", "", y);
    chart.series = servers(run, |it| Some(it.cpu_us as f64 / 1e6));
    let generator = run.intervals.points(|it| it.mean(|second| Some(second.generator.cpu_us as f64 / 1e6)));
    chart.series.push(Series::line("generator", GENERATOR, generator).shaped(Shape::Thin));
    chart
}

fn memory(run: &Run<'_>) -> Chart {
    let y = Axis::new("bytes resident", Unit::Bytes).spanning(0.0, 1.0);
    let mut chart = run.over_time("memory", "Memory of the processes", "", y);
    chart.series = servers(run, |it| Some(it.rss_bytes as f64));
    let generator = run.intervals.points(|it| it.mean(|second| Some(second.generator.rss_bytes as f64)));
    chart.series.push(Series::line("generator", GENERATOR, generator).shaped(Shape::Thin));
    chart
}

fn server_io(run: &Run<'_>) -> Chart {
    let y = Axis::new("written (lines) and read (broken)", Unit::ByteRate).spanning(0.0, 1024.0);
    let mut chart = run.over_time("server-io", "Bytes that the servers wrote and read", "", y);
    chart.series = servers(run, |it| Some(it.write_bytes as f64));
    let named = |series: Series| Series { name: format!("{}, read", series.name), ..series };
    let read = servers(run, |it| Some(it.read_bytes as f64)).into_iter();
    let is_any = |series: &Series| series.points.iter().any(|(_, y)| *y > 0.0);
    chart.series.extend(read.filter(is_any).map(|series| named(series).shaped(Shape::Thin)));
    chart
}

fn disk_space(run: &Run<'_>) -> Chart {
    let y = Axis::new("bytes of the data folders", Unit::Bytes).spanning(0.0, 1.0);
    let mut chart = run.over_time("disk-space", "Space on disk", "", y);
    chart.series = servers(run, |it| it.disk_bytes.map(|bytes| bytes as f64));
    chart
}

/// What the servers wrote for each byte that clients wrote, since the start.
fn amplification(run: &Run<'_>) -> Chart {
    let y = Axis::new("bytes written for each byte of the clients", Unit::Factor).spanning(0.0, 1.0);
    let caption = "Of all servers together, replicas included, since the start.";
    let mut chart = run.over_time("write-amplification", "Write amplification", caption, y);
    let (mut by_servers, mut by_clients) = (0.0, 0.0);
    let mut points = Vec::new();
    for interval in &run.intervals.all {
        by_servers += interval.sum(|second| second.servers.iter().map(|it| it.write_bytes as f64).sum());
        by_clients +=
            interval.sum(|second| second.operations.values().map(|it| it.bytes_written as f64).sum());
        points.push((f64::midpoint(interval.from(), interval.to()), by_servers / by_clients));
    }
    if by_servers > 0.0 {
        chart.series.push(Series::line("all servers", 0, points));
    }
    chart
}

fn disks(run: &Run<'_>) -> [Chart; 2] {
    let all = || run.results.seconds.iter().flat_map(|second| &second.disks);
    let names: BTreeSet<&String> = all().map(|disk| &disk.device).collect();
    let series = |name: &str, colour: usize, device: &str, value: fn(&DiskSecond) -> f64| {
        let of = |second: &Second| second.disks.iter().find(|it| it.device == device).map(value);
        Series::line(name, colour, run.intervals.points(|it| it.mean(of)))
    };
    let y = Axis::new("share of the time", Unit::Share).spanning(0.0, 1.0);
    let mut busy = run.over_time("disk-utilisation", "Disks at work", "", y);
    let y = Axis::new("mean time, waiting included", Unit::Micros).spanning(0.0, 100.0);
    let mut waiting = run.over_time("disk-await", "How long disks took", "", y);
    for (at, device) in names.into_iter().enumerate() {
        busy.series.push(series(device, at, device, |it| it.utilisation));
        let await_of = [("read", "reads"), ("write", "writes")];
        let values: [fn(&DiskSecond) -> f64; 2] = [
            |it| if it.reads > 0 { it.read_await_ms * 1e3 } else { f64::NAN },
            |it| {
                if it.writes > 0 { it.write_await_ms * 1e3 } else { f64::NAN }
            },
        ];
        for (kind, ((_, name), value)) in await_of.into_iter().zip(values).enumerate() {
            waiting.series.push(series(&format!("{device}, {name}"), 2 * at + kind, device, value));
        }
    }
    [busy, waiting]
}

fn machine(run: &Run<'_>) -> Chart {
    let y = Axis::new("share of all cores", Unit::Share).spanning(0.0, 1.0);
    let caption =
        "Stolen is CPU time that the host gave to other machines: figures of those seconds are in doubt.";
    let mut chart = run.over_time("machine", "The machine", caption, y);
    let of = |value: fn(&Second) -> f64| run.intervals.points(|it| it.mean(|second| Some(value(second))));
    chart.series.push(Series::line("busy", 0, of(|second| second.busy)));
    chart.series.push(Series::line("stolen", 1, of(|second| second.stolen)));
    chart
}

fn outstanding(run: &Run<'_>) -> Chart {
    let y = Axis::new("operations", Unit::Count).spanning(0.0, 1.0);
    let mut chart = run.over_time("outstanding", "Outstanding operations", "", y);
    let of = |value: fn(&Second) -> f64| run.intervals.points(|it| it.mean(|second| Some(value(second))));
    chart.series.push(Series::line("sent and not answered", 0, of(|second| second.generator.outstanding)));
    if run.results.manifest.rate.is_some() {
        let backlog = of(|second| second.generator.backlog as f64);
        chart.series.push(Series::line("due and not sent", 1, backlog));
    }
    chart
}
