//! How the keys that several queries find become one set: `($1 INTERSECT $2) UNION ($3 SUBTRACT $1)`.
//!
//! SUBTRACT binds tightest, then INTERSECT, then UNION; each to the left.

use std::collections::BTreeSet;
use std::fmt;

use super::lexer::{ParseError, Token, Tokens};
use super::value::Substitutions;

/// An expression over the numbers of queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetExpression {
    /// What the query of this number finds.
    Query(u32),
    /// What one of the two finds.
    Union(Box<SetExpression>, Box<SetExpression>),
    /// What both find.
    Intersect(Box<SetExpression>, Box<SetExpression>),
    /// What the first finds and the second does not.
    Subtract(Box<SetExpression>, Box<SetExpression>),
}

impl SetExpression {
    /// The expression in a text.
    ///
    /// # Errors
    /// [`ParseError`] if it is none.
    pub fn parse(text: &str) -> Result<SetExpression, ParseError> {
        let substitutions = Substitutions::new();
        let mut tokens = Tokens::of(text, &substitutions)?;
        let expression = level(&mut tokens, 0)?;
        tokens.end()?;
        Ok(expression)
    }

    /// The numbers of the queries that it names.
    pub fn queries(&self) -> BTreeSet<u32> {
        match self {
            SetExpression::Query(number) => [*number].into(),
            SetExpression::Union(one, other)
            | SetExpression::Intersect(one, other)
            | SetExpression::Subtract(one, other) => &one.queries() | &other.queries(),
        }
    }

    /// The set that it says, of those that queries have found.
    pub fn combine<T: Ord + Clone>(&self, found: &dyn Fn(u32) -> BTreeSet<T>) -> BTreeSet<T> {
        match self {
            SetExpression::Query(number) => found(*number),
            SetExpression::Union(one, other) => {
                let mut all = one.combine(found);
                all.append(&mut other.combine(found));
                all
            }
            SetExpression::Intersect(one, other) => {
                let other = other.combine(found);
                let mut both = one.combine(found);
                both.retain(|it| other.contains(it));
                both
            }
            SetExpression::Subtract(one, other) => {
                let other = other.combine(found);
                let mut left = one.combine(found);
                left.retain(|it| !other.contains(it));
                left
            }
        }
    }

    fn level(&self) -> usize {
        match self {
            SetExpression::Union(..) => 0,
            SetExpression::Intersect(..) => 1,
            SetExpression::Subtract(..) => 2,
            SetExpression::Query(_) => 3,
        }
    }
}

type Make = fn(Box<SetExpression>, Box<SetExpression>) -> SetExpression;

const LEVELS: [(&str, Make); 3] = [
    ("UNION", SetExpression::Union),
    ("INTERSECT", SetExpression::Intersect),
    ("SUBTRACT", SetExpression::Subtract),
];

fn level(tokens: &mut Tokens<'_>, at: usize) -> Result<SetExpression, ParseError> {
    let Some((word, make)) = LEVELS.get(at) else { return one(tokens) };
    let mut expression = level(tokens, at + 1)?;
    while tokens.is_word(word) {
        expression = make(Box::new(expression), Box::new(level(tokens, at + 1)?));
    }
    Ok(expression)
}

fn one(tokens: &mut Tokens<'_>) -> Result<SetExpression, ParseError> {
    if tokens.is_sign("(") {
        let expression = tokens.deeper(|tokens| level(tokens, 0))?;
        tokens.sign(")")?;
        return Ok(expression);
    }
    let error = tokens.error("a query's number is expected, as $1");
    match tokens.take() {
        Some(Token::Name(name)) => name.0.parse().map(SetExpression::Query).map_err(|_| error),
        _ => Err(error),
    }
}

impl fmt::Display for SetExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (one, other) = match self {
            SetExpression::Query(number) => return write!(f, "${number}"),
            SetExpression::Union(one, other)
            | SetExpression::Intersect(one, other)
            | SetExpression::Subtract(one, other) => (one, other),
        };
        let level = self.level();
        if one.level() < level {
            write!(f, "({one})")?
        } else {
            one.fmt(f)?
        }
        write!(f, " {} ", LEVELS[level].0)?;
        if other.level() <= level { write!(f, "({other})") } else { other.fmt(f) }
    }
}
