//! The report of a run: one HTML file that opens anywhere and asks nothing of the network.
//!
//! Steps: 1. `intervals` cuts the run into as many intervals as a chart can show, with merged histograms, never
//! averaged percentiles; 2. [`figures`] makes charts of them; 3. `verdict` and `tables` write what is said in
//! words and numbers; 4. [`page`] puts it together with the style sheet and the script inside. [`png`] has a browser
//! make pictures of it.
//!
//! Invariants: nothing is shown that the results do not hold, and what they do not hold is left out, not drawn as zero;
//! what does not count in the figures (warm-up, trailing work) is shaded; the page's policy forbids it to load
//! anything.

pub mod chart;
pub mod figures;
pub(crate) mod intervals;
pub mod page;
pub mod png;
mod tables;
mod verdict;

pub use intervals::{Interval, Intervals};
pub use page::html;
pub use verdict::name;
