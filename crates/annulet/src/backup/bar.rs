//! How far it is: a bar on a terminal, and a line now and then elsewhere. On standard error, so that answers can be
//! piped.

use super::size;
use backup::{Control, Progress};
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// How often a bar is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Characters of the bar itself.
const WIDTH: u64 = 28;

/// A bar.
pub struct Bar {
    what: &'static str,
    is_terminal: bool,
    is_drawn: bool,
    began: Instant,
    shown: Instant,
}

impl Bar {
    /// Of something that begins now.
    pub fn new(what: &'static str) -> Bar {
        let now = Instant::now();
        Bar { what, is_terminal: stderr().is_terminal(), is_drawn: false, began: now, shown: now }
    }

    /// Shows how far it is, if it is time.
    pub fn show(&mut self, progress: &Progress) -> Control {
        let every = if self.is_terminal { DRAW_EVERY } else { LINE_EVERY };
        if self.shown.elapsed() >= every {
            self.shown = Instant::now();
            let line = line(self.what, progress, self.began.elapsed());
            // Where nobody looks, nothing is lost.
            match self.is_terminal {
                true => write!(stderr(), "\r\x1b[K{line}").ok(),
                false => writeln!(stderr(), "{line}").ok(),
            };
            self.is_drawn = self.is_terminal;
        }
        Control::Continue
    }

    /// Takes the bar away.
    pub fn end(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            write!(stderr(), "\r\x1b[K").ok();
        }
    }
}

fn line(what: &str, progress: &Progress, took: Duration) -> String {
    let Progress { files, bytes, files_done, bytes_done, .. } = *progress;
    let share = bytes_done.min(bytes) as f64 / bytes.max(1) as f64;
    let full = (share * WIDTH as f64) as usize;
    let bar: String = (0..WIDTH as usize).map(|at| if at < full { '#' } else { '.' }).collect();
    let rate = bytes_done as f64 / took.as_secs_f64().max(0.001);
    let left = bytes.saturating_sub(bytes_done) as f64 / rate.max(1.0);
    format!(
        "{what} [{bar}] {:3.0}%  {} of {}  file {files_done} of {files}  {}/s  {left:.0} s left",
        share * 100.0,
        size(bytes_done),
        size(bytes),
        size(rate as u64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let progress =
            Progress { files: 4, bytes: 4096, files_done: 1, bytes_done: 1024, ..Progress::default() };
        assert_eq!(
            line("backup", &progress, Duration::from_secs(1)),
            "backup [#######.....................]  25%  1.0 KiB of 4.0 KiB  file 1 of 4  1.0 KiB/s  3 s left"
        );
        let nothing = line("backup", &Progress::default(), Duration::ZERO);
        assert!(nothing.contains("0%  0 B of 0 B"), "{nothing}");
    }
}
