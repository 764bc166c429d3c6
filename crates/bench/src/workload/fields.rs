//! A strict reader of TOML tables: every key is asked for by name, and what nobody asked for is refused with its line.

use crate::Error;
use std::fmt::Display;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Units of durations, in milliseconds.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

/// A year: longer durations are mistakes.
const DURATION_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The text of a file and where it is from, for messages.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The file's name.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
}

impl<'a> Source<'a> {
    /// An error at a place of the text.
    pub fn error(self, at: usize, what: impl Display) -> Error {
        let line = 1 + self.text.bytes().take(at).filter(|&byte| byte == b'\n').count();
        Error::Unusable(format!("{}, line {line}: {what}", self.name))
    }

    /// The whole text as a table.
    pub fn fields(self) -> Result<Fields<'a>, Error> {
        let table = DeTable::parse(self.text)
            .map_err(|error| self.error(error.span().map_or(0, |span| span.start), error.message()))?;
        Ok(Fields { source: self, at: table.span().start, table: table.into_inner() })
    }
}

/// A table whose keys are taken one by one.
pub struct Fields<'a> {
    source: Source<'a>,
    at: usize,
    table: DeTable<'a>,
}

/// A value with its place.
struct Field<'a> {
    key: String,
    at: usize,
    value: DeValue<'a>,
}

impl<'a> Fields<'a> {
    /// An error at this table.
    pub fn error(&self, what: impl Display) -> Error {
        self.source.error(self.at, what)
    }

    fn take(&mut self, key: &str) -> Option<Field<'a>> {
        let found = self.table.keys().find(|it| it.get_ref() == key)?.clone();
        let value = self.table.remove(&found)?;
        Some(Field { key: key.to_owned(), at: value.span().start, value: value.into_inner() })
    }

    fn wrong(&self, field: &Field<'_>, wanted: impl Display) -> Error {
        self.source.error(field.at, format!("{} is not {wanted}", field.key))
    }

    /// A text.
    pub fn text(&mut self, key: &str) -> Result<Option<String>, Error> {
        let Some(field) = self.take(key) else { return Ok(None) };
        match &field.value {
            DeValue::String(text) => Ok(Some(text.to_string())),
            _ => Err(self.wrong(&field, "a text")),
        }
    }

    /// One of some words, with what it means.
    pub fn word<T: Clone>(&mut self, key: &str, words: &[(&str, T)]) -> Result<Option<T>, Error> {
        let Some(field) = self.take(key) else { return Ok(None) };
        let known = match &field.value {
            DeValue::String(text) => words.iter().find(|(word, _)| word == text),
            _ => None,
        };
        let names = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        known
            .map(|(_, value)| Some(value.clone()))
            .ok_or_else(|| self.wrong(&field, format!("one of {}", names())))
    }

    /// A text that `read` understands.
    pub fn parsed<T>(
        &mut self,
        key: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        let Some(field) = self.take(key) else { return Ok(None) };
        match &field.value {
            DeValue::String(text) => {
                read(text).map(Some).map_err(|what| self.source.error(field.at, format!("{key}: {what}")))
            }
            _ => Err(self.wrong(&field, "a text")),
        }
    }

    /// Texts that `read` understands.
    pub fn list<T>(
        &mut self,
        key: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<Vec<T>>, Error> {
        let Some(field) = self.take(key) else { return Ok(None) };
        let DeValue::Array(items) = &field.value else { return Err(self.wrong(&field, "a list of texts")) };
        let item = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
            DeValue::String(text) => {
                read(text).map_err(|what| self.source.error(item.span().start, format!("{key}: {what}")))
            }
            _ => Err(self.wrong(&field, "a list of texts")),
        };
        items.iter().map(item).collect::<Result<_, _>>().map(Some)
    }

    /// Whole numbers.
    pub fn numbers(&mut self, key: &str) -> Result<Option<Vec<u64>>, Error> {
        let Some(field) = self.take(key) else { return Ok(None) };
        let DeValue::Array(items) = &field.value else { return Err(self.wrong(&field, "a list of numbers")) };
        let item = |item: &Spanned<DeValue<'_>>| {
            integer(item.get_ref()).ok_or_else(|| self.wrong(&field, "a list of numbers"))
        };
        items.iter().map(item).collect::<Result<_, _>>().map(Some)
    }

    /// A whole number of a range.
    pub fn number(&mut self, key: &str, min: u64, max: u64) -> Result<Option<u64>, Error> {
        let Some(field) = self.take(key) else { return Ok(None) };
        let number = integer(&field.value).filter(|number| (min..=max).contains(number));
        number.map(Some).ok_or_else(|| self.wrong(&field, format!("a whole number from {min} to {max}")))
    }

    /// A number of a range.
    pub fn real(&mut self, key: &str, min: f64, max: f64) -> Result<Option<f64>, Error> {
        let Some(field) = self.take(key) else { return Ok(None) };
        let number = match &field.value {
            DeValue::Float(float) => float.as_str().replace('_', "").parse::<f64>().ok(),
            other => integer(other).map(|number| number as f64),
        };
        let number = number.filter(|number| (min..=max).contains(number));
        number.map(Some).ok_or_else(|| self.wrong(&field, format!("a number from {min} to {max}")))
    }

    /// True or false.
    pub fn flag(&mut self, key: &str) -> Result<Option<bool>, Error> {
        let Some(field) = self.take(key) else { return Ok(None) };
        match field.value {
            DeValue::Boolean(value) => Ok(Some(value)),
            _ => Err(self.wrong(&field, "true or false")),
        }
    }

    /// A duration such as `250ms`, `90s`, `10m` or `1h`.
    pub fn duration(&mut self, key: &str) -> Result<Option<Duration>, Error> {
        self.parsed(key, duration)
    }

    /// A table within this one.
    pub fn inner(&mut self, key: &str) -> Result<Option<Fields<'a>>, Error> {
        let Some(field) = self.take(key) else { return Ok(None) };
        match field.value {
            DeValue::Table(table) => Ok(Some(Fields { source: self.source, at: field.at, table })),
            _ => Err(self.wrong(&field, "a table")),
        }
    }

    /// Tables within this one: `[[key]]`.
    pub fn each(&mut self, key: &str) -> Result<Vec<Fields<'a>>, Error> {
        let Some(field) = self.take(key) else { return Ok(Vec::new()) };
        let (at, source) = (field.at, self.source);
        let wrong = || source.error(at, format!("{key} is not a list of tables"));
        let DeValue::Array(items) = field.value else { return Err(wrong()) };
        let table = |item: Spanned<DeValue<'a>>| {
            let at = item.span().start;
            match item.into_inner() {
                DeValue::Table(table) => Ok(Fields { source, at, table }),
                _ => Err(wrong()),
            }
        };
        items.into_iter().map(table).collect()
    }

    /// Refuses what nobody has asked for.
    pub fn finish(self) -> Result<(), Error> {
        match self.table.keys().min_by_key(|key| key.span().start) {
            Some(key) => Err(self.source.error(key.span().start, format!("unknown key {:?}", key.get_ref()))),
            None => Ok(()),
        }
    }
}

fn integer(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().replace('_', "").parse().ok(),
        _ => None,
    }
}

/// A whole number and a unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, millis)| *millis);
    let millis = number.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    let duration = millis.map(Duration::from_millis).filter(|duration| *duration <= DURATION_MAX);
    duration.ok_or_else(|| format!("{text:?} is not a time such as 250ms, 90s, 10m or 1h"))
}
