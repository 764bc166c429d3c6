//! Numbers as people read them.

/// What a number counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    #[default]
    Count,
    /// Seconds since the start.
    Elapsed,
    /// Microseconds that something took.
    Micros,
    /// Bytes.
    Bytes,
    /// Bytes in a second.
    ByteRate,
    /// A share, 0 to 1.
    Share,
    /// A share as a percentile.
    Percentile,
    /// A factor.
    Factor,
}

impl Unit {
    /// A value with its unit, to three digits.
    pub fn format(self, value: f64) -> String {
        if !value.is_finite() {
            return "–".to_owned();
        }
        match self {
            Unit::Count => scaled(value, 1000.0, &["", " k", " M", " G", " T"]),
            Unit::Elapsed => elapsed(value),
            Unit::Micros => micros(value),
            Unit::Bytes => scaled(value, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"]),
            Unit::ByteRate => scaled(value, 1024.0, &[" B/s", " KiB/s", " MiB/s", " GiB/s", " TiB/s"]),
            Unit::Share => format!("{} %", digits(value * 100.0)),
            Unit::Percentile => format!("p{}", percentile(value)),
            Unit::Factor => digits(value),
        }
    }

    /// The name by which the page's script formats it alike.
    pub(super) fn script_name(self) -> &'static str {
        match self {
            Unit::Count => "count",
            Unit::Elapsed => "elapsed",
            Unit::Micros => "micros",
            Unit::Bytes => "bytes",
            Unit::ByteRate => "rate",
            Unit::Share => "share",
            Unit::Percentile => "percentile",
            Unit::Factor => "factor",
        }
    }
}

fn micros(value: f64) -> String {
    match value.abs() {
        v if v >= 999_500.0 => format!("{} s", digits(value / 1e6)),
        v if v >= 999.5 => format!("{} ms", digits(value / 1e3)),
        _ => format!("{} µs", digits(value)),
    }
}

fn elapsed(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match whole {
        0..120 => format!("{} s", digits(seconds)),
        120..7200 if whole.is_multiple_of(60) => format!("{} min", whole / 60),
        120..7200 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole / 60 % 60),
    }
}

/// The share as a percentile, with the nines it needs: 0.999 is `99.9`.
fn percentile(share: f64) -> String {
    let text = format!("{:.4}", share * 100.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn scaled(value: f64, base: f64, names: &[&str]) -> String {
    let (mut value, mut at) = (value, 0);
    // What would be rounded to a thousand is one of the next.
    while value.abs() >= base * 0.9995 && at + 1 < names.len() {
        value /= base;
        at += 1;
    }
    format!("{}{}", digits(value), names[at])
}

/// Three digits, and no zeros behind the point.
pub fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 || v == 0.0 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        v if v >= 0.0995 => 3,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
