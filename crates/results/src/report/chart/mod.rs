//! Charts: points and axes in, one SVG out.
//!
//! Every chart of a report is of one kind: series over an x axis, with marks (something was done then) and bands
//! (these seconds do not count). [`axis`] places values and names ticks, `unit` writes numbers, [`svg`] draws.
//! Colours are classes that the page's style sheet gives a value, so one drawing serves light and dark.
//!
//! Invariants: what is drawn lies within the drawing, whatever the values; a value that is not finite is a gap; every
//! text is escaped. Left out: anything that needs a library, a font file or the network.

pub mod axis;
pub mod svg;
pub mod unit;

pub use axis::{Axis, Scale};
pub use unit::Unit;

/// How wide a chart stands on the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Width {
    /// Beside another.
    #[default]
    Half,
    /// Alone.
    Full,
}

/// How a series is drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A line through its points.
    Line,
    /// A thin, broken line: beside others, not before them.
    Thin,
    /// The area between the points and these values, of the same number.
    Area(Vec<f64>),
    /// A dot at each point.
    Dots,
}

/// Points with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// The number of its colour, of [`COLOURS`].
    pub colour: usize,
    /// How it is drawn.
    pub shape: Shape,
    /// x and y, x ascending but for dots.
    pub points: Vec<(f64, f64)>,
}

/// Colours that the style sheet has; further series begin again.
pub const COLOURS: usize = 8;

impl Series {
    /// A line.
    pub fn line(name: impl Into<String>, colour: usize, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), colour: colour % COLOURS, shape: Shape::Line, points }
    }

    /// The same points, drawn otherwise.
    pub fn shaped(self, shape: Shape) -> Series {
        Series { shape, ..self }
    }
}

/// Something that was done at a point of the x axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// When.
    pub x: f64,
    /// Its number in the report's list.
    pub number: usize,
    /// What, in a few words; shown where there is room.
    pub text: String,
    /// Whether it was done to make trouble.
    pub is_fault: bool,
}

/// A stretch of the x axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// From and to.
    pub x: (f64, f64),
    /// What is drawn.
    pub kind: BandKind,
    /// Why, for whoever points at it.
    pub text: String,
}

/// What a band says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BandKind {
    /// It counts in no figure.
    Uncounted,
    /// Its figures are in doubt.
    Doubtful,
}

/// A chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// Its name in links and file names: letters, digits, hyphens.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// How to read it, in a sentence; may be empty.
    pub caption: String,
    /// How wide it is.
    pub width: Width,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is shown, the most important first: the legend has them in this order, and earlier ones lie over later
    /// ones.
    pub series: Vec<Series>,
    /// What was done.
    pub marks: Vec<Mark>,
    /// What does not count, or is in doubt.
    pub bands: Vec<Band>,
}

impl Chart {
    /// Whether there is anything to show.
    pub fn is_empty(&self) -> bool {
        !self.series.iter().any(|series| series.points.iter().any(|(x, y)| x.is_finite() && y.is_finite()))
    }
}

#[cfg(test)]
mod tests;
