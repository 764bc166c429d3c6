//! A row of the table of figures.

/// One figure: a name of `/stats`, a series of `/metrics`, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its name in `/stats`; empty if it is in `/metrics` alone. `N` in it stands for the number of a level.
    pub stat: &'static str,
    /// Its family in `/metrics`, with the unit and without `_total`; empty if it is in `/stats` alone.
    pub metric: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// The unit of `/stats`. `/metrics` has the base unit.
    pub unit: Unit,
    /// Its labels in `/metrics`. Of a text: the label that has the text.
    pub labels: Labels,
    /// Whether it comes once or several times.
    pub scope: Scope,
    /// Its meaning, as one sentence without a full stop.
    pub help: &'static str,
}

/// Labels with their values.
pub type Labels = &'static [(&'static str, &'static str)];

/// The kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from the start of the process.
    Counter,
    /// It can fall.
    Gauge,
    /// Counts of times by their length, in `/metrics` alone.
    Histogram,
    /// A text: a label of a series that is 1.
    Text,
    /// A list or a map, in `/stats` alone.
    List,
}

impl Kind {
    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Text => "text",
            Kind::List => "list",
        }
    }
}

/// The unit of a figure in `/stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Thousandths of a second.
    Milliseconds,
    /// Millionths of a second.
    Microseconds,
    /// A ratio.
    Ratio,
    /// Thousandths.
    Thousandths,
    /// 256 for each process, as Riak has load averages.
    Load,
}

impl Unit {
    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Count => "",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::Milliseconds => "milliseconds",
            Unit::Microseconds => "microseconds",
            Unit::Ratio => "ratio",
            Unit::Thousandths => "thousandths",
            Unit::Load => "256ths",
        }
    }

    /// The base unit at the end of a family's name; empty for a number of things.
    pub fn base(self) -> &'static str {
        match self {
            Unit::Count | Unit::Load => "",
            Unit::Bytes => "bytes",
            Unit::Seconds | Unit::Milliseconds | Unit::Microseconds => "seconds",
            Unit::Ratio | Unit::Thousandths => "ratio",
        }
    }

    /// How many of it make one of the base unit.
    pub fn divisor(self) -> f64 {
        match self {
            Unit::Count | Unit::Bytes | Unit::Seconds | Unit::Ratio => 1.0,
            Unit::Milliseconds | Unit::Thousandths => 1e3,
            Unit::Microseconds => 1e6,
            Unit::Load => 256.0,
        }
    }
}

/// How often a figure comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Once.
    Node,
    /// Once for each level of the ledger that has tables; `/metrics` has its number as a label.
    Level,
    /// `/stats` has the sum, and each peer's under `peers`. `/metrics` has each peer's, with its name as a label.
    Peer,
}

impl Figure {
    /// The number of the level that a name of `/stats` is of, if it is of this figure, which is one of levels.
    pub(crate) fn level_of<'n>(&self, name: &'n str) -> Option<&'n str> {
        let (before, after) = self.stat.split_once('N')?;
        let level = name.strip_prefix(before)?.strip_suffix(after)?;
        (!level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit())).then_some(level)
    }

    /// Whether a name of `/stats` is of this figure.
    pub fn is_named(&self, name: &str) -> bool {
        match self.scope {
            Scope::Level => self.level_of(name).is_some(),
            Scope::Node | Scope::Peer => !self.stat.is_empty() && self.stat == name,
        }
    }
}
