//! The figures of a node: their names, kinds, units and meanings in one table, and the text of `/metrics`.
//!
//! 1. [`FIGURES`] is the table (`table.rs`): a row for each figure of `/stats` and each series of `/metrics`.
//! 2. A shell reads the values into a [`Reading`]: those of the object that `/stats` answers (`extractor.rs`), and the
//!    distributions.
//! 3. An [`Exposition`] writes them for Prometheus (`exposition.rs`), [`page`] writes the rows for the documentation.
//!
//! Invariants, which the tests of the table assert
//! * A name stands for one figure; a family of series has one kind, one unit and one help.
//! * The kind of a figure is in its row and nowhere else.
//! * No label names a bucket, a key or a partition, so the number of series has a bound ([`SERIES_MAX`]).
//!
//! Left out: how the values come about, and HTTP.

mod exposition;
mod extractor;
mod family;
mod figure;
mod page;
mod reading;
mod table;
mod template;

pub use exposition::{Exposition, Format};
pub use extractor::Unreadable;
pub use figure::{Figure, Kind, Labels, Scope, Unit};
pub use page::{page, section_of};
pub use reading::{Distribution, Histogram, Reading};
pub use table::FIGURES;

/// Series of a node without those of its peers: a Prometheus keeps each in memory.
pub const SERIES_MAX: usize = 520;

/// Series for each peer: a node of a cluster of a hundred has some 1,500 of them.
pub const SERIES_PER_PEER_MAX: usize = 15;
