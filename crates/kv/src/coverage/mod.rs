//! Scans over all partitions: the plan, the parts, and the scan of keys.
//!
//! * [`plan`]: a node for each prefix, in few parts.
//! * [`parts`]: the sources that are asked, asked again, and replaced by others. Scans of keys and of indexes share it.
//! * [`key_scan`]: listings of keys and buckets, and folds. `page` has its questions and answers.
//!
//! A scan of an index is in [`crate::index`].

pub mod key_scan;
pub mod page;
pub mod parts;
pub mod plan;

pub use key_scan::KeyScan;
pub use page::{Listed, Page, PageAsk};
pub use plan::{Plan, Source};
