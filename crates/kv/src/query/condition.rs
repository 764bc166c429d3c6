//! Conditions on attributes: which terms are matches.
//!
//! ```text
//! condition = operand COMPARATOR operand | operand BETWEEN operand AND operand
//!           | operand IN $list | operand IN (operand, …)
//!           | attribute_exists($a) | attribute_not_exists($a) | attribute_empty($a)
//!           | begins_with($a, text) | ends_with($a, text) | contains($a, text)
//!           | condition AND condition | condition OR condition | NOT condition | (condition)
//! ```
//!
//! NOT binds tighter than AND, AND tighter than OR. What is said of an attribute that is not there does not hold.

use std::fmt;

use super::lexer::{ParseError, Token, Tokens};
use super::value::{Attributes, Comparator, Known, Name, Operand, Substitutions, Value};

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Two values compare so.
    Compare(Operand, Comparator, Operand),
    /// A value lies between two others, or is one of them.
    Between(Operand, Operand, Operand),
    /// A value is one of a list's.
    InList(Operand, Name),
    /// A value is one of these.
    In(Operand, Vec<Operand>),
    /// An attribute is there.
    Exists(Name),
    /// An attribute is not there.
    NotExists(Name),
    /// An attribute is there, and is an empty text or list.
    Empty(Name),
    /// A text begins with another.
    BeginsWith(Name, Operand),
    /// A text ends with another.
    EndsWith(Name, Operand),
    /// A text holds another.
    Contains(Name, Operand),
    /// Both hold.
    And(Box<Condition>, Box<Condition>),
    /// One of them holds.
    Or(Box<Condition>, Box<Condition>),
    /// It does not hold.
    Not(Box<Condition>),
}

impl Condition {
    /// The condition in a text.
    ///
    /// # Errors
    /// [`ParseError`] if it is none.
    pub fn parse(text: &str, substitutions: &Substitutions) -> Result<Condition, ParseError> {
        let mut tokens = Tokens::of(text, substitutions)?;
        let condition = either(&mut tokens)?;
        tokens.end()?;
        Ok(condition)
    }

    /// Whether it holds.
    pub fn holds(&self, attributes: &Attributes) -> bool {
        match self {
            Condition::Compare(one, comparator, other) => one
                .known(attributes)
                .zip(other.known(attributes))
                .is_some_and(|(one, other)| comparator.holds(one, other)),
            Condition::Between(it, first, last) => {
                let bounds = it.known(attributes).zip(first.known(attributes).zip(last.known(attributes)));
                bounds.is_some_and(|(it, (first, last))| {
                    Comparator::AtLeast.holds(it, first) && Comparator::AtMost.holds(it, last)
                })
            }
            Condition::InList(it, list) => match (it.known(attributes), attributes.get(list)) {
                (Some(Known::Text(it)), Some(Value::List(list))) => list.iter().any(|one| one == it),
                _ => false,
            },
            Condition::In(it, list) => it.known(attributes).is_some_and(|it| {
                list.iter()
                    .filter_map(|one| one.known(attributes))
                    .any(|one| Comparator::Equal.holds(it, one))
            }),
            Condition::Exists(name) => attributes.get(name).is_some(),
            Condition::NotExists(name) => attributes.get(name).is_none(),
            Condition::Empty(name) => match attributes.get(name) {
                Some(Value::Text(text)) => text.is_empty(),
                Some(Value::List(list)) => list.is_empty(),
                _ => false,
            },
            Condition::BeginsWith(name, part) => of_text(attributes, name, part, <[u8]>::starts_with),
            Condition::EndsWith(name, part) => of_text(attributes, name, part, <[u8]>::ends_with),
            Condition::Contains(name, part) => of_text(attributes, name, part, contains),
            Condition::And(one, other) => one.holds(attributes) && other.holds(attributes),
            Condition::Or(one, other) => one.holds(attributes) || other.holds(attributes),
            Condition::Not(it) => !it.holds(attributes),
        }
    }
}

fn of_text(attributes: &Attributes, name: &Name, part: &Operand, is: fn(&[u8], &[u8]) -> bool) -> bool {
    match (attributes.text(name), part.known(attributes)) {
        (Some(text), Some(Known::Text(part))) => is(text, part),
        _ => false,
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(text, part).is_some()
}

fn either(tokens: &mut Tokens<'_>) -> Result<Condition, ParseError> {
    tokens.deeper(|tokens| {
        let mut condition = both(tokens)?;
        while tokens.is_word("OR") {
            condition = Condition::Or(Box::new(condition), Box::new(both(tokens)?));
        }
        Ok(condition)
    })
}

fn both(tokens: &mut Tokens<'_>) -> Result<Condition, ParseError> {
    let mut condition = negated(tokens)?;
    while tokens.is_word("AND") {
        condition = Condition::And(Box::new(condition), Box::new(negated(tokens)?));
    }
    Ok(condition)
}

fn negated(tokens: &mut Tokens<'_>) -> Result<Condition, ParseError> {
    if tokens.is_word("NOT") {
        let negated = tokens.deeper(negated)?;
        return Ok(Condition::Not(Box::new(negated)));
    }
    if tokens.is_sign("(") {
        let condition = either(tokens)?;
        tokens.sign(")")?;
        return Ok(condition);
    }
    match tokens.peek() {
        Some(Token::Word(_)) => function(tokens),
        _ => comparison(tokens),
    }
}

fn function(tokens: &mut Tokens<'_>) -> Result<Condition, ParseError> {
    let error = tokens.error("a condition is expected");
    let Some(Token::Word(word)) = tokens.take() else { return Err(error) };
    let of_one: Option<fn(Name) -> Condition> = match &word[..] {
        "attribute_exists" => Some(Condition::Exists),
        "attribute_not_exists" => Some(Condition::NotExists),
        "attribute_empty" => Some(Condition::Empty),
        _ => None,
    };
    let of_two: Option<fn(Name, Operand) -> Condition> = match &word[..] {
        "begins_with" => Some(Condition::BeginsWith),
        "ends_with" => Some(Condition::EndsWith),
        "contains" => Some(Condition::Contains),
        _ => None,
    };
    if of_one.is_none() && of_two.is_none() {
        return Err(error);
    }
    tokens.sign("(")?;
    let name = tokens.name()?;
    let condition = match (of_one, of_two) {
        (Some(make), _) => make(name),
        (None, Some(make)) => {
            tokens.sign(",")?;
            make(name, tokens.operand()?)
        }
        (None, None) => return Err(error),
    };
    tokens.sign(")")?;
    Ok(condition)
}

fn comparison(tokens: &mut Tokens<'_>) -> Result<Condition, ParseError> {
    let one = tokens.operand()?;
    if tokens.is_word("BETWEEN") {
        let first = tokens.operand()?;
        if !tokens.is_word("AND") {
            return Err(tokens.error("AND is expected"));
        }
        return Ok(Condition::Between(one, first, tokens.operand()?));
    }
    if !tokens.is_word("IN") {
        let comparator = tokens.comparator()?;
        return Ok(Condition::Compare(one, comparator, tokens.operand()?));
    }
    if !tokens.is_sign("(") {
        return Ok(Condition::InList(one, tokens.name()?));
    }
    let mut list = vec![tokens.operand()?];
    while tokens.is_sign(",") {
        list.push(tokens.operand()?);
    }
    tokens.sign(")")?;
    Ok(Condition::In(one, list))
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Compare(one, comparator, other) => write!(f, "{one} {comparator} {other}"),
            Condition::Between(it, first, last) => write!(f, "{it} BETWEEN {first} AND {last}"),
            Condition::InList(it, list) => write!(f, "{it} IN {list}"),
            Condition::In(it, list) => {
                write!(f, "{it} IN (")?;
                for (at, one) in list.iter().enumerate() {
                    write!(f, "{}{one}", if at > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
            Condition::Exists(name) => write!(f, "attribute_exists({name})"),
            Condition::NotExists(name) => write!(f, "attribute_not_exists({name})"),
            Condition::Empty(name) => write!(f, "attribute_empty({name})"),
            Condition::BeginsWith(name, part) => write!(f, "begins_with({name}, {part})"),
            Condition::EndsWith(name, part) => write!(f, "ends_with({name}, {part})"),
            Condition::Contains(name, part) => write!(f, "contains({name}, {part})"),
            // The left side stands as it was parsed, so that a long chain does not become a deep one.
            Condition::And(one, other) => {
                write_below(f, one, matches!(**one, Condition::Or(..)))?;
                f.write_str(" AND ")?;
                write_below(f, other, matches!(**other, Condition::And(..) | Condition::Or(..)))
            }
            Condition::Or(one, other) => {
                write!(f, "{one} OR ")?;
                write_below(f, other, matches!(**other, Condition::Or(..)))
            }
            Condition::Not(it) => {
                f.write_str("NOT ")?;
                write_below(f, it, matches!(**it, Condition::And(..) | Condition::Or(..)))
            }
        }
    }
}

fn write_below(f: &mut fmt::Formatter<'_>, condition: &Condition, is_bracketed: bool) -> fmt::Result {
    if is_bracketed { write!(f, "({condition})") } else { fmt::Display::fmt(condition, f) }
}
