//! Where a value stands on an axis, and which ticks the axis has.

use super::Unit;

/// How values become lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    #[default]
    Linear,
    /// Each factor of ten as long as the next; values of zero and less stand at the low end.
    Log,
    /// For shares: each nine as long as the next, so that the tail can be seen.
    Nines,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// What it counts, for its end.
    pub label: String,
    /// What its numbers count.
    pub unit: Unit,
    /// How values become lengths.
    pub scale: Scale,
    /// The least that it spans; values beyond make it longer.
    pub spans: Option<(f64, f64)>,
}

/// Nines at the end of [`Scale::Nines`], at most: more operations than any run has.
const NINES_MAX: f64 = 9.0;

/// Beyond this a number is none that was measured.
const VALUE_MAX: f64 = 1e18;

/// An axis with its ends.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    scale: Scale,
    unit: Unit,
    /// In values.
    low: f64,
    high: f64,
    /// Between the ticks of a linear axis.
    step: f64,
}

impl Axis {
    /// An axis of this label and unit.
    pub fn new(label: impl Into<String>, unit: Unit) -> Axis {
        Axis { label: label.into(), unit, ..Axis::default() }
    }

    /// With this scale.
    pub fn scaled(self, scale: Scale) -> Axis {
        Axis { scale, ..self }
    }

    /// Spanning at least this.
    pub fn spanning(self, low: f64, high: f64) -> Axis {
        Axis { spans: Some((low, high)), ..self }
    }

    /// The axis that shows all of `values`, with at most some `ticks` if it is linear. It ends at a tick, but for time,
    /// which ends when the run did.
    pub fn span(&self, values: impl Iterator<Item = f64>, ticks: f64) -> Span {
        let is_shown =
            |value: &f64| value.abs() <= VALUE_MAX && (self.scale != Scale::Log || *value > 1.0 / VALUE_MAX);
        let spans = self.spans.map_or([f64::NAN; 2], |(low, high)| [low, high]);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.chain(spans).filter(is_shown) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        let (low, high) = match self.scale {
            Scale::Linear if low >= high => (low, low + low.abs().max(1.0)),
            Scale::Linear => (low, high),
            Scale::Log => {
                // Down and up to a tick, so that no curve lies on the frame.
                let (below, above) = (log_floor(low), -log_floor(1.0 / high));
                let above = if above <= below { below + 1.0 } else { above };
                (10f64.powf(below), 10f64.powf(above))
            }
            Scale::Nines => (low.clamp(0.0, 0.5), high.max(0.9)),
        };
        let step = step(self.unit, (high - low) / ticks, high);
        let high = match self.scale {
            Scale::Linear if self.unit != Unit::Elapsed => (high / step - 1e-9).ceil() * step,
            _ => high,
        };
        Span { scale: self.scale, unit: self.unit, low, high, step }
    }
}

/// The exponent of the greatest of 1, 2, 5, 10, ... that is not above the value.
fn log_floor(value: f64) -> f64 {
    let exponent = value.log10();
    let whole = (exponent + 1e-9).floor();
    let part = exponent - whole + 1e-9;
    let steps = [5f64.log10(), 2f64.log10(), 0.0];
    whole + steps.into_iter().find(|&step| part >= step).unwrap_or(0.0)
}

impl Span {
    /// Where a value stands, 0 at the low end and 1 at the high one; never outside.
    pub fn place(&self, value: f64) -> f64 {
        let of = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(self.low).log10(),
            Scale::Nines => -(1.0 - value).max(10f64.powf(-NINES_MAX)).log10(),
        };
        let place = (of(value) - of(self.low)) / (of(self.high) - of(self.low));
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }

    /// Values that get a tick, ascending, with their names.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let values = match self.scale {
            Scale::Linear => self.linear_ticks(),
            Scale::Log => self.log_ticks(),
            Scale::Nines => {
                let nines = (1..=9).map(|nines| 1.0 - 10f64.powi(-nines));
                let all = [0.0, 0.5].into_iter().chain(nines);
                all.filter(|&value| value >= self.low && value <= self.high + 1e-12).collect()
            }
        };
        values.into_iter().map(|value| (value, self.unit.format(value))).collect()
    }

    fn linear_ticks(&self) -> Vec<f64> {
        let step = self.step;
        let first = (self.low / step).ceil();
        // A value that is a multiple but for rounding is one.
        let count = ((self.high / step + 1e-9).floor() - first).max(0.0) as u32;
        (0..=count).map(|at| (first + f64::from(at)) * step).collect()
    }

    fn log_ticks(&self) -> Vec<f64> {
        let (from, to) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let steps: &[f64] = if to - from <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = (to - from) / 7 + 1;
        let is_within = |value: &f64| *value >= self.low * 0.999 && *value <= self.high * 1.001;
        let decades = (from..=to).filter(|exponent| exponent.rem_euclid(every) == 0);
        decades
            .flat_map(|exponent| steps.iter().map(move |step| step * 10f64.powi(exponent)))
            .filter(is_within)
            .collect()
    }
}

/// The least step that people count in and that is not below `least`; bytes in the unit that `high` has.
fn step(unit: Unit, least: f64, high: f64) -> f64 {
    const ELAPSED: [f64; 14] =
        [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0];
    if unit == Unit::Elapsed
        && let Some(&step) = ELAPSED.iter().find(|&&step| step >= least)
    {
        return step;
    }
    let base: f64 = match unit {
        Unit::Bytes | Unit::ByteRate => 1024f64.powf(high.max(1.0).log(1024.0).floor()),
        _ => 1.0,
    };
    let least = least / base;
    let decade = 10f64.powf(least.log10().floor());
    let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|&nice| nice * decade >= least * 0.999);
    nice.unwrap_or(10.0) * decade * base
}
