//! Pictures of a report, made by a browser that is on the machine: it draws text and lines better than anything that
//! would be worth its build time here.

use super::chart::{Chart, svg};
use super::{figures, page};
use crate::Error;
use crate::Results;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Browsers that can be asked for a picture of a page, by the names of their programs.
pub const BROWSERS: [&str; 6] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "brave-browser",
];

/// A browser that takes longer hangs: a page needs a second or two, on a busy machine ten.
const PATIENCE: Duration = Duration::from_secs(90);

/// A window as high as this shows the head of a report and its first charts.
const OVERVIEW: (u32, u32) = (1240, 1060);

/// A browser without a window.
#[derive(Clone, Debug)]
pub struct Browser(PathBuf);

impl Browser {
    /// The one named, or the first of [`BROWSERS`] that is found.
    pub fn find(named: Option<&Path>) -> Result<Browser, Error> {
        if let Some(path) = named {
            return Ok(Browser(path.to_owned()));
        }
        let folders: Vec<PathBuf> =
            std::env::var_os("PATH").map_or(Vec::new(), |paths| std::env::split_paths(&paths).collect());
        let candidates = BROWSERS.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
        candidates.into_iter().find(|path| path.is_file()).map(Browser).ok_or_else(|| {
            Error::Unusable(format!(
                "pictures need a browser, and none of these was found: {}",
                BROWSERS.join(", ")
            ))
        })
    }

    /// Runs it without a window on the page of a file, with these options besides; what it prints.
    pub fn run(&self, page: &Path, options: &[String]) -> Result<Vec<u8>, Error> {
        let page = fs::canonicalize(page).map_err(Error::file(page))?;
        let mut url = OsString::from("file://");
        url.push(page);
        self.open(url, options)
    }

    /// The same on the page at an address.
    pub fn open(&self, url: impl AsRef<OsStr>, options: &[String]) -> Result<Vec<u8>, Error> {
        let profile = Scratch::new()?;
        let said = profile.0.join("output");
        let output = fs::File::create(&said).map_err(Error::file(&said))?;
        let mut child = Command::new(&self.0)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--force-device-scale-factor=1"])
            .arg(format!("--user-data-dir={}", profile.0.join("profile").display()))
            .args(options)
            .arg(url)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::file(&self.0))?;
        let begin = Instant::now();
        loop {
            if let Some(status) = child.try_wait().map_err(Error::file(&self.0))? {
                let said = fs::read(&said).map_err(Error::file(&said))?;
                return if status.success() { Ok(said) } else { Err(self.failed(&status.to_string())) };
            }
            if begin.elapsed() > PATIENCE {
                child.kill().and_then(|()| child.wait().map(drop)).map_err(Error::file(&self.0))?;
                return Err(self.failed("it did not end"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A picture of a page.
    pub fn picture(&self, page: &Path, (width, height): (u32, u32), to: &Path) -> Result<(), Error> {
        let options = [format!("--window-size={width},{height}"), format!("--screenshot={}", to.display())];
        self.run(page, &options)?;
        if !to.exists() {
            return Err(self.failed("it has made no picture"));
        }
        Ok(())
    }

    fn failed(&self, what: &str) -> Error {
        Error::Unusable(format!("{}: {what}", self.0.display()))
    }
}

/// A folder that goes when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, Error> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("annulet-report-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).map_err(Error::file(&path))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder of temporary files that stays is no reason to fail.
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Writes pictures into `folder`, which is made if need be: `overview.png`, the head of the report at `page`, and one
/// of each chart. The files.
pub fn write(
    results: &Results,
    page: &Path,
    folder: &Path,
    browser: &Browser,
) -> Result<Vec<PathBuf>, Error> {
    let mut files = vec![overview(page, folder, browser)?];
    for drawn in figures::sections(results).into_iter().flat_map(|section| section.charts) {
        files.push(chart(&drawn, folder, browser)?);
    }
    Ok(files)
}

/// Writes `overview.png` into `folder`: what a screen shows of the page.
pub fn overview(page: &Path, folder: &Path, browser: &Browser) -> Result<PathBuf, Error> {
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let overview = folder.join("overview.png");
    browser.picture(page, OVERVIEW, &overview)?;
    Ok(overview)
}

/// Writes the picture of a chart, by its id, into `folder`, which is there.
pub fn chart(chart: &Chart, folder: &Path, browser: &Browser) -> Result<PathBuf, Error> {
    let scratch = Scratch::new()?;
    let drawing = scratch.0.join("chart.html");
    let (width, height) = svg::size(chart);
    // A page of nothing but the drawing: a browser gives a bare SVG margins of its own.
    let text = format!(
        "<!doctype html><meta charset=\"utf-8\"><style>{}body{{padding:0}}svg{{width:{width}px}}</style>{}",
        page::STYLE,
        svg::draw(chart)
    );
    fs::write(&drawing, text).map_err(Error::file(&drawing))?;
    let file = folder.join(format!("{}.png", chart.id));
    browser.picture(&drawing, (width, height), &file)?;
    Ok(file)
}
