//! Which bucket types a node keeps in stores of their own, and of which backend each of these is.
//!
//! As text it is one line: `archive=bitcask,cache=memory`. A type's name is in the name of its stores' folders, so not
//! every name that a type can have may stand here.

use backends::Kind;
use std::collections::BTreeMap;
use std::fmt;

/// Stores that a shard has beside the one for all other types. Each has memory of its own for what waits to be written
/// ([`UNWRITTEN_BYTES_MAX`](super::UNWRITTEN_BYTES_MAX)) and files of its own.
pub const TYPE_STORES_MAX: usize = 8;

/// Bytes of a type's name: what a folder's name has room for, many times over.
const NAME_BYTES_MAX: usize = 64;

/// The backends of some bucket types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeBackends(BTreeMap<String, Kind>);

impl TypeBackends {
    /// Reads `TYPE=BACKEND,TYPE=BACKEND`; an empty text is of no types. The error says what is wrong.
    pub fn read(text: &str) -> Result<TypeBackends, String> {
        TypeBackends::read_as(text, Kind::read)
    }

    fn read_as(text: &str, read: impl Fn(&str) -> Result<Kind, String>) -> Result<TypeBackends, String> {
        let mut types = BTreeMap::new();
        for pair in text.split(',').filter(|_| !text.is_empty()) {
            let (name, backend) = pair
                .split_once('=')
                .ok_or_else(|| format!("{pair:?} is no TYPE=BACKEND, such as cache=memory"))?;
            check_name(name)?;
            let kind = read(backend)?;
            if kind == Kind::Annulet {
                return Err(format!(
                    "{name}: only the node's own store is of annulet (--backend), that of a type is of another"
                ));
            }
            if types.insert(name.to_owned(), kind).is_some() {
                return Err(format!("the type {name} comes twice"));
            }
        }
        if types.len() > TYPE_STORES_MAX {
            return Err(format!(
                "{} types with a store of their own: at most {TYPE_STORES_MAX}",
                types.len()
            ));
        }
        Ok(TypeBackends(types))
    }

    /// What a data folder says of itself; `None` if this program cannot have said it.
    pub fn recorded(text: &str) -> Option<TypeBackends> {
        TypeBackends::read_as(text, |name| Kind::named(name).ok_or_else(String::new))
            .ok()
            .filter(|types| !types.is_empty())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each type with its backend, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Kind)> {
        self.0.iter().map(|(name, kind)| (&**name, *kind))
    }
}

impl fmt::Display for TypeBackends {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, kind)) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(out, "{comma}{name}={}", kind.name())?;
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(format!(
        "{name:?}: a type with a store of its own has a name of 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.'"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_read_from_what_they_show() {
        for text in ["", "cache=memory", "a.b=hash,archive=bitcask,cache=memory"] {
            let types = TypeBackends::read(text).unwrap();
            assert_eq!((types.to_string().as_str(), types.is_empty()), (text, text.is_empty()));
        }
        let types = TypeBackends::read("cache=memory,archive=bitcask").unwrap();
        let expected = [("archive", Kind::Bitcask), ("cache", Kind::Memory)];
        assert_eq!(types.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let many: Vec<String> = (0..=TYPE_STORES_MAX).map(|at| format!("t{at}=memory")).collect();
        for (text, what) in [
            ("cache", "\"cache\" is no TYPE=BACKEND, such as cache=memory"),
            ("cache=memory,", "\"\" is no TYPE=BACKEND, such as cache=memory"),
            ("cache=tape", "\"tape\" is none of annulet, memory, "),
            ("cache=memory,cache=hash", "the type cache comes twice"),
            ("cache=annulet", "cache: only the node's own store is of annulet"),
            ("=memory", "\"\": a type with a store of its own has a name of "),
            ("a/b=memory", "\"a/b\": a type with a store of its own has a name of "),
            (&many.join(","), "9 types with a store of their own: at most 8"),
        ] {
            let error = TypeBackends::read(text).unwrap_err();
            assert!(error.starts_with(what), "{text}: {error}");
        }
    }
}
