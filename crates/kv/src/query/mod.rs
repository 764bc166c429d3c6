//! The language of queries over what applications put into terms: attributes are taken out of a term by a pipeline of
//! stages ([`Pipeline`]), and a condition on them says whether it is a match ([`Condition`]); several queries' keys are
//! combined as sets ([`SetExpression`]). It is that of OpenRiak's query API, with its names.
//!
//! A pipeline begins with two attributes, `$term` and `$key`; each stage adds some, or is skipped where its input is
//! not there or of another type. What an expression says is typed, and written again it reads as the same
//! ([`std::fmt::Display`]): so it travels between nodes as text.
//!
//! Bounds: a text has [`TEXT_BYTES_MAX`] bytes and nests [`DEPTH_MAX`] deep, and a pipeline has [`STAGES_MAX`] stages.
//! Every stage's work is linear in its input, and an attribute's pieces are at most as many as its term has bytes, a
//! text that is joined has [`JOINED_BYTES_MAX`]; regexes are those of [`crate::index::Pattern`].
//!
//! Positions and lengths are in bytes, as terms are bytes: for text in ASCII that is characters.
//!
//! * `lexer.rs`: words of a text. `value.rs`: attributes, and how they compare. `pipeline.rs`, `condition.rs`,
//!   `sets.rs`: the three kinds of expressions. `request.rs`: a query of several parts, and what becomes of what they
//!   find.

mod condition;
mod lexer;
mod pipeline;
mod request;
mod sets;
mod value;

pub use condition::Condition;
pub use lexer::{DEPTH_MAX, ParseError, TEXT_BYTES_MAX};
pub use pipeline::{JOINED_BYTES_MAX, Pipeline, STAGES_MAX, Stage};
pub use request::{Accumulation, Findings, PARTS_MAX, QueryPart, QueryRequest, Tally};
pub use sets::SetExpression;
pub use value::{Attributes, Comparator, Constant, Name, Operand, Substitutions, Value};

#[cfg(test)]
mod tests;
