//! A report in a real browser without a window. Ignored where none is installed: `.ci/run` runs these by name, and
//! fails if they cannot run.
//!
//!     cargo test -p results --test it browser:: -- --ignored

use crate::common::{Shape, write};
use results::Results;
use results::report::figures::sections;
use results::report::html;
use results::report::png::{self, Browser};
use std::path::{Path, PathBuf};

/// Kept after the test, for whoever wants to look at it.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn results(folder: &Path, shape: Shape) -> Results {
    let run = folder.join("run");
    write(&run, shape);
    Results::open(&run).unwrap()
}

/// Noted in the page's root element, from before its own script on.
const BEFORE: &str = "<script>const root = document.documentElement.dataset;
root.errors = 0; root.violations = 0;
addEventListener('error', () => root.errors++);
addEventListener('securitypolicyviolation', () => root.violations++);</script>";

/// Points at each chart, and counts what was loaded.
const AFTER: &str = "<script>let tips = 0;
for (const svg of document.querySelectorAll('svg[data-chart]')) {
  const box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width / 2, clientY: box.top + 9}));
  if (!document.getElementById('tip').hidden) tips++;
  svg.dispatchEvent(new PointerEvent('pointerleave'));
}
root.tips = tips;
root.loads = performance.getEntriesByType('resource').length;
root.wide = document.documentElement.scrollWidth - innerWidth;</script>";

#[test]
#[ignore = "needs a browser"]
fn the_page_runs_without_an_error_and_loads_nothing() {
    let browser = Browser::find(None).unwrap();
    let folder = folder("browser-page");
    let page = html(&results(&folder, Shape { rate: Some(12_000.0), ..Shape::default() }));
    let charts = page.matches("data-chart=").count();
    let head = watch(&browser, &folder, &page);
    for (name, value) in [("errors", 0), ("violations", 0), ("loads", 0), ("wide", 0), ("charts", charts)] {
        assert!(head.contains(&format!("data-{name}=\"{value}\"")), "{name} is not {value}: {head}");
    }
    // The two whose series do not share an x have nothing to show under the pointer.
    assert!(charts > 15 && head.contains(&format!("data-tips=\"{}\"", charts - 2)), "{charts}: {head}");
}

#[test]
#[ignore = "needs a browser"]
fn the_page_of_a_comparison_runs_without_an_error() {
    let browser = Browser::find(None).unwrap();
    let folder = folder("browser-comparison");
    let run =
        |name: &str, seed, factor| results(&folder.join(name), Shape { seed, factor, ..Shape::default() });
    let pairs = [(run("a1", 1, 1.0), run("b1", 2, 1.15)), (run("a2", 3, 1.02), run("b2", 4, 1.16))];
    let page = results::compare::html(&results::compare::Comparison::of(&pairs).unwrap());
    let dom = watch(&browser, &folder, &page);
    for (name, value) in [("errors", 0), ("violations", 0), ("loads", 0), ("wide", 0), ("charts", 4)] {
        assert!(dom.contains(&format!("data-{name}=\"{value}\"")), "{name} is not {value}: {dom}");
    }
    std::fs::write(folder.join("page.html"), page).unwrap();
    let picture = png::overview(&folder.join("page.html"), &folder, &browser).unwrap();
    assert!(colours(&picture) > 20);
}

/// The page's root element after the page has run, with what was noted in it.
fn watch(browser: &Browser, folder: &Path, page: &str) -> String {
    let watched = page.replacen("<body>", &format!("<body>{BEFORE}"), 1).replacen(
        "</body>",
        &format!("{AFTER}</body>"),
        1,
    );
    let file = folder.join("watched.html");
    std::fs::write(&file, watched).unwrap();
    let said = browser.run(&file, &["--dump-dom".to_owned(), "--window-size=1240,900".to_owned()]).unwrap();
    let dom = String::from_utf8(said).unwrap();
    dom[..dom.find("<head>").unwrap()].to_owned()
}

#[test]
#[ignore = "needs a browser"]
fn pictures_show_something() {
    let browser = Browser::find(None).unwrap();
    let folder = folder("browser-pictures");
    let results = results(&folder, Shape::default());
    let page = folder.join("report.html");
    std::fs::write(&page, html(&results)).unwrap();
    // A browser takes its time to start: some of the charts stand for all.
    let mut files = vec![png::overview(&page, &folder, &browser).unwrap()];
    let charts = sections(&results).into_iter().flat_map(|section| section.charts);
    for chart in charts.filter(|chart| ["throughput", "distribution"].contains(&&*chart.id)) {
        files.push(png::chart(&chart, &folder, &browser).unwrap());
    }
    assert_eq!(files.len(), 3);
    for file in files {
        let colours = colours(&file);
        assert!(colours > 20, "{}: {colours} colours", file.display());
    }
}

/// How many colours a picture has.
fn colours(file: &Path) -> usize {
    let decoder = ::png::Decoder::new(std::io::BufReader::new(std::fs::File::open(file).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let pixel = info.color_type.samples();
    assert!(info.width > 500 && info.height > 250, "{}", file.display());
    bytes[..info.buffer_size()].chunks(pixel).collect::<std::collections::BTreeSet<_>>().len()
}
