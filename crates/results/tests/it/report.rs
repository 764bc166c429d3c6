//! The report of a run: what stands in it, and what a browser makes of it.

use crate::common::{SECONDS, Shape, write};
use results::Results;
use results::report::html;

fn results(shape: Shape) -> Results {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    write(&run, shape);
    Results::open(&run).unwrap()
}

#[test]
fn the_head_says_what_was_run_and_whether_it_was_right() {
    let results = results(Shape::default());
    let page = html(&results);
    let head = &page[..page.find("<section>").unwrap()];
    assert!(head.contains("pareto, three nodes, one &lt;killed&gt;"), "{head}");
    assert!(head.contains("class=\"verdict passed\"") && head.contains("2.9 M reads verified"), "{head}");
    assert!(head.contains("CPU time was stolen by the host in 6 of 300 seconds"), "{head}");
    for tile in ["operations / s", "p50", "p99", "p99.9", "max", "failed", "server CPU / op"] {
        assert!(head.contains(&format!("<dt>{tile}</dt>")), "{tile}");
    }
}

#[test]
fn a_store_that_was_wrong_has_failed() {
    let page = html(&results(Shape { lost: 3, ..Shape::default() }));
    assert!(page.contains("class=\"verdict failed\"><strong>Failed</strong>"));
    assert!(page.contains("lost: 3 acknowledged writes are gone"));
}

#[test]
fn a_run_that_was_cut_off_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    write(&run, Shape::default());
    std::fs::remove_file(run.join(results::SUMMARY)).unwrap();
    assert!(html(&Results::open(&run).unwrap()).contains("did not come to its end"));
}

#[test]
fn conditions_that_failed_are_counted_where_there_are_any() {
    let head = "condition failed</th>";
    let mut results = results(Shape::default());
    assert!(!html(&results).contains(head));
    results.summary.total.condition_failed = 12_345;
    results.summary.operations.get_mut("get").unwrap().condition_failed = 12_345;
    let page = html(&results);
    assert!(
        page.contains(head) && page.matches("<td class=\"number\">12.3 k</td></tr>").count() == 2,
        "{page}"
    );
}

#[test]
fn every_chart_has_its_points_marks_and_bands() {
    let page = html(&results(Shape::default()));
    let chart = |id: &str| {
        let from = page.find(&format!("data-chart=\"{id}\"")).unwrap_or_else(|| panic!("no chart {id}"));
        &page[from..from + page[from..].find("</figure>").unwrap()]
    };
    let all = format!("data-points=\"{SECONDS}\"");
    assert_eq!(chart("throughput").matches(&all).count(), 5, "three labels, failures, all");
    for label in ["get", "update", "put-unique"] {
        assert_eq!(chart(&format!("latency-{label}")).matches(&all).count(), 5, "{label}");
    }
    // A server that is down has no CPU time to show.
    let cpu = chart("cpu");
    assert_eq!((cpu.matches(&all).count(), cpu.matches("data-points=\"250\"").count()), (3, 1));
    assert!(chart("latency-throughput").contains("data-points=\"300\""), "only what counts");
    for id in [
        "errors",
        "not-found",
        "level-of-hit",
        "accumulated",
        "distribution",
        "memory",
        "server-io",
        "disk-space",
        "write-amplification",
        "disk-utilisation",
        "disk-await",
        "machine",
        "outstanding",
    ] {
        assert!(chart(id).contains("data-points="), "{id}");
    }
    let throughput = chart("throughput");
    assert!(
        throughput.contains("kill n2")
            && throughput.contains("mark fault")
            && throughput.contains("class=\"band\"")
    );
    assert_eq!(throughput.matches("class=\"doubt\"").count(), 1, "six seconds, one after the other");
}

#[test]
fn nothing_in_the_page_points_elsewhere_and_no_text_becomes_a_tag() {
    let page = html(&results(Shape::default()));
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("default-src &#39;none&#39;") || page.contains("default-src 'none'"));
    assert!(page.contains("&lt;/script&gt; &amp; &lt;b&gt;"));
    assert_eq!(page.matches("<script").count(), page.matches("</script>").count());
}
