//! Which of the rows between two bounds are found.

use bytes::Bytes;

use super::pattern::Pattern;
use crate::error::Error;
use crate::query::{Attributes, Condition, Pipeline, Substitutions};

/// What a row must be like, as text: so it travels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pick {
    /// Nothing in particular.
    #[default]
    All,
    /// The term, or of a query for keys the key, matches a regex.
    Matching(Bytes),
    /// A condition holds of the attributes that a pipeline takes out of it.
    Where {
        /// The pipeline; empty for none.
        pipeline: String,
        /// The condition; empty for none.
        condition: String,
    },
}

/// The same, ready to be used.
#[derive(Clone, Debug)]
pub enum Picker {
    /// As [`Pick::All`].
    All,
    /// As [`Pick::Matching`].
    Matching(Pattern),
    /// As [`Pick::Where`].
    Where(Pipeline, Option<Condition>),
}

impl Picker {
    /// Makes it.
    ///
    /// # Errors
    /// [`Error::BadQuery`] if a text is not what it should be.
    pub fn new(pick: &Pick) -> Result<Picker, Error> {
        Ok(match pick {
            Pick::All => Picker::All,
            Pick::Matching(pattern) => Picker::Matching(Pattern::new(pattern)?),
            Pick::Where { pipeline, condition } => {
                let none = Substitutions::new();
                let bad = |error: crate::query::ParseError| Error::BadQuery(error.to_string());
                let pipeline = Pipeline::parse(pipeline, &none).map_err(bad)?;
                let condition = match condition.is_empty() {
                    true => None,
                    false => Some(Condition::parse(condition, &none).map_err(bad)?),
                };
                Picker::Where(pipeline, condition)
            }
        })
    }

    /// Whether every row is taken, whatever it is.
    #[inline]
    pub fn takes_all(&self) -> bool {
        matches!(self, Picker::All | Picker::Where(_, None))
    }

    /// Whether a row is taken.
    #[inline]
    pub fn takes(&self, term: &[u8], key: &[u8]) -> bool {
        match self {
            Picker::All | Picker::Where(_, None) => true,
            Picker::Matching(pattern) => pattern.is_match(term),
            Picker::Where(pipeline, Some(condition)) => {
                let (term, key) = (Bytes::copy_from_slice(term), Bytes::copy_from_slice(key));
                let mut attributes = Attributes::new(term, key);
                pipeline.run(&mut attributes);
                condition.holds(&attributes)
            }
        }
    }
}
