//! `annulet.toml`: keys and values with their lines, whatever they mean.

use super::{ConfigError, Origin, SETTINGS};
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// The file's entries in the order of their lines: line, key, and the value's text if it has one.
pub(super) fn entries(text: &str, path: &Path) -> Result<Vec<(usize, String, Option<String>)>, ConfigError> {
    let line_of = |at: usize| 1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count();
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(span.start));
        let origin = Origin::File(path.to_path_buf(), line);
        ConfigError { place: origin.to_string(), what: error.message().to_owned() }
    })?;
    let mut entries: Vec<_> = table
        .get_ref()
        .iter()
        .map(|(key, value)| (line_of(key.span().start), key.get_ref().to_string(), text_of(value.get_ref())))
        .collect();
    entries.sort();
    Ok(entries)
}

/// Numbers and texts are read by the options themselves, the same way as from a flag.
fn text_of(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

pub(super) fn unknown_key(key: &str, origin: &Origin) -> ConfigError {
    let known: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
    let meant = kv::closest(key, known.iter().copied());
    let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
    let what = format!("unknown key {key:?}{meant}; the keys are {}", known.join(", "));
    ConfigError { place: origin.to_string(), what }
}
