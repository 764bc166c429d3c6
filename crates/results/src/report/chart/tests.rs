use super::*;
use proptest::prelude::*;

fn chart(series: Vec<Series>) -> Chart {
    Chart {
        id: "c".into(),
        title: "A <chart> & \"more\"".into(),
        x: Axis::new("since the start", Unit::Elapsed),
        y: Axis::new("latency", Unit::Micros).scaled(Scale::Log),
        series,
        ..Chart::default()
    }
}

#[test]
fn numbers_have_three_digits_and_a_unit() {
    let cases = [
        (Unit::Count, 0.0, "0"),
        (Unit::Count, 999.6, "1 k"),
        (Unit::Count, 12_345.0, "12.3 k"),
        (Unit::Count, 1_000_000.0, "1 M"),
        (Unit::Micros, 12.0, "12 µs"),
        (Unit::Micros, 1_234.0, "1.23 ms"),
        (Unit::Micros, 2_500_000.0, "2.5 s"),
        (Unit::Bytes, 1_536.0, "1.5 KiB"),
        (Unit::ByteRate, 3.0 * 1024.0 * 1024.0, "3 MiB/s"),
        (Unit::Share, 0.1234, "12.3 %"),
        (Unit::Percentile, 0.999, "p99.9"),
        (Unit::Percentile, 0.5, "p50"),
        (Unit::Elapsed, 60.0, "60 s"),
        (Unit::Elapsed, 300.0, "5 min"),
        (Unit::Elapsed, 150.0, "2:30 min"),
        (Unit::Elapsed, 7_260.0, "2:01 h"),
        (Unit::Factor, f64::NAN, "–"),
    ];
    for (unit, value, text) in cases {
        assert_eq!(unit.format(value), text);
    }
}

#[test]
fn ticks_are_numbers_that_people_count_in() {
    let names = |axis: Axis, values: &[f64]| -> Vec<String> {
        axis.span(values.iter().copied(), 6.0).ticks().into_iter().map(|(_, name)| name).collect()
    };
    let elapsed = names(Axis::new("", Unit::Elapsed), &[0.0, 300.0]);
    assert_eq!(elapsed, ["0 s", "60 s", "2 min", "3 min", "4 min", "5 min"]);
    let log = names(Axis::new("", Unit::Micros).scaled(Scale::Log), &[30.0, 80_000.0]);
    assert_eq!(log, ["100 µs", "1 ms", "10 ms", "100 ms"]);
    let nines = names(Axis::new("", Unit::Percentile).scaled(Scale::Nines), &[0.0, 0.9995]);
    assert_eq!(nines, ["p0", "p50", "p90", "p99", "p99.9"]);
    let bytes = names(Axis::new("", Unit::Bytes), &[0.0, 900.0 * 1024.0 * 1024.0]);
    let more = names(Axis::new("", Unit::Bytes), &[0.0, 4.9 * f64::from(1 << 30)]);
    assert_eq!(more, ["0 B", "1 GiB", "2 GiB", "3 GiB", "4 GiB", "5 GiB"]);
    assert_eq!(bytes, ["0 B", "200 MiB", "400 MiB", "600 MiB", "800 MiB", "1000 MiB"]);
}

#[test]
fn values_stand_where_the_scale_says() {
    let log = Axis::new("", Unit::Micros).scaled(Scale::Log).span([10.0, 1000.0].into_iter(), 6.0);
    assert_eq!((log.place(10.0), log.place(100.0), log.place(1000.0)), (0.0, 0.5, 1.0));
    assert_eq!((log.place(0.0), log.place(1e9)), (0.0, 1.0));
    let nines = Axis::new("", Unit::Percentile).scaled(Scale::Nines).span([0.0, 0.9999].into_iter(), 6.0);
    assert!((nines.place(0.9) - 0.25).abs() < 1e-9 && (nines.place(0.99) - 0.5).abs() < 1e-9);
    let one_value = Axis::default().span([5.0].into_iter(), 6.0);
    assert!(one_value.place(5.0).is_finite());
}

#[test]
fn texts_are_escaped_and_gaps_are_gaps() {
    let points = vec![(0.0, 100.0), (1.0, 200.0), (2.0, f64::NAN), (3.0, 300.0), (4.0, 100.0)];
    let drawn =
        svg::draw(&chart(vec![Series::line("a<b", 0, points.clone()), Series::line("two", 1, points)]));
    assert!(drawn.contains("A &lt;chart&gt; &amp; &quot;more&quot;") && drawn.contains("a&lt;b"));
    assert!(drawn.contains("data-points=\"4\""));
    let path = drawn.split("data-points=\"4\" d=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(path.matches('M').count(), 2, "{path}");
    assert!(svg::draw(&chart(Vec::new())).contains("nothing was recorded"));
}

proptest! {
    #[test]
    fn nothing_lies_outside_the_drawing(
        points in prop::collection::vec((prop::num::f64::ANY, prop::num::f64::ANY), 0..40),
        scales in (0..3usize, 0..3usize),
        mark in prop::num::f64::ANY,
    ) {
        let scale = |at: usize| [Scale::Linear, Scale::Log, Scale::Nines][at];
        let mut chart = chart(vec![Series::line("a", 0, points.clone()), Series::line("b", 1, points.clone())]);
        chart.x.scale = scale(scales.0);
        chart.y.scale = scale(scales.1);
        chart.series[1].shape = Shape::Area(points.iter().map(|(x, _)| *x).collect());
        chart.marks.push(Mark { x: mark, number: 1, text: "killed".into(), is_fault: true });
        let drawn = svg::draw(&chart);
        prop_assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{}", drawn);
        for path in drawn.split(" d=\"").skip(1).map(|rest| rest.split('"').next().unwrap_or_default()) {
            let numbers = path.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).filter(|n| !n.is_empty());
            for number in numbers {
                let number: f64 = number.parse().unwrap();
                prop_assert!((-16.0..=1120.0).contains(&number), "{}", path);
            }
        }
    }
}
