//! Attributes, and how they compare.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

/// The name of an attribute, without its `$`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(pub String);

/// What an attribute is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Bytes, as they stand in the term.
    Text(Bytes),
    /// A number.
    Number(i64),
    /// Several texts.
    List(Vec<Bytes>),
}

/// A value that stands in the expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constant {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}

/// What is compared, or computed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// An attribute.
    Attribute(Name),
    /// A constant.
    Constant(Constant),
}

/// What stands for `:name`.
pub type Substitutions = BTreeMap<String, Constant>;

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparator {
    /// `=`
    Equal,
    /// `<>`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

impl Comparator {
    pub(super) const ALL: [Comparator; 6] = [
        Comparator::Equal,
        Comparator::Unequal,
        Comparator::Less,
        Comparator::AtMost,
        Comparator::Greater,
        Comparator::AtLeast,
    ];

    pub(super) fn sign(self) -> &'static str {
        match self {
            Comparator::Equal => "=",
            Comparator::Unequal => "<>",
            Comparator::Less => "<",
            Comparator::AtMost => "<=",
            Comparator::Greater => ">",
            Comparator::AtLeast => ">=",
        }
    }

    /// Whether it holds. Values of different types are unequal, and neither is less.
    pub(super) fn holds(self, one: Known<'_>, other: Known<'_>) -> bool {
        match (one.compare(other), self) {
            (None, it) => it == Comparator::Unequal,
            (Some(order), Comparator::Equal) => order.is_eq(),
            (Some(order), Comparator::Unequal) => order.is_ne(),
            (Some(order), Comparator::Less) => order.is_lt(),
            (Some(order), Comparator::AtMost) => order.is_le(),
            (Some(order), Comparator::Greater) => order.is_gt(),
            (Some(order), Comparator::AtLeast) => order.is_ge(),
        }
    }
}

/// A value, wherever it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known<'a> {
    Text(&'a [u8]),
    Number(i64),
    List(&'a [Bytes]),
}

impl Known<'_> {
    fn compare(self, other: Known<'_>) -> Option<Ordering> {
        match (self, other) {
            (Known::Text(one), Known::Text(other)) => Some(one.cmp(other)),
            (Known::Number(one), Known::Number(other)) => Some(one.cmp(&other)),
            (Known::List(one), Known::List(other)) => Some(one.cmp(other)),
            _ => None,
        }
    }
}

impl Value {
    pub(super) fn known(&self) -> Known<'_> {
        match self {
            Value::Text(text) => Known::Text(text),
            Value::Number(number) => Known::Number(*number),
            Value::List(list) => Known::List(list),
        }
    }
}

impl Constant {
    pub(super) fn known(&self) -> Known<'_> {
        match self {
            Constant::Text(text) => Known::Text(text.as_bytes()),
            Constant::Number(number) => Known::Number(*number),
        }
    }

    pub(super) fn value(&self) -> Value {
        match self {
            Constant::Text(text) => Value::Text(Bytes::copy_from_slice(text.as_bytes())),
            Constant::Number(number) => Value::Number(*number),
        }
    }
}

impl Operand {
    /// `None` if it is an attribute that is not there.
    pub(super) fn known<'a>(&'a self, attributes: &'a Attributes) -> Option<Known<'a>> {
        match self {
            Operand::Attribute(name) => attributes.get(name).map(Value::known),
            Operand::Constant(constant) => Some(constant.known()),
        }
    }
}

/// What is known of a term. There are few, so they are looked for one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(Vec<(Name, Value)>);

impl Attributes {
    /// Those that a pipeline begins with.
    pub fn new(term: Bytes, key: Bytes) -> Attributes {
        let name = |name: &str| Name(name.to_owned());
        Attributes(vec![(name("term"), Value::Text(term)), (name("key"), Value::Text(key))])
    }

    /// One of them.
    pub fn get(&self, name: &Name) -> Option<&Value> {
        self.0.iter().find(|(it, _)| it == name).map(|(_, value)| value)
    }

    /// Its bytes, if it is a text.
    pub fn text(&self, name: &Name) -> Option<&Bytes> {
        match self.get(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Sets one.
    pub fn set(&mut self, name: &Name, value: Value) {
        match self.0.iter_mut().find(|(it, _)| it == name) {
            Some((_, before)) => *before = value,
            None => self.0.push((name.clone(), value)),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}", self.0)
    }
}

impl fmt::Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constant::Number(number) => write!(f, "{number}"),
            Constant::Text(text) => write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Attribute(name) => name.fmt(f),
            Operand::Constant(constant) => constant.fmt(f),
        }
    }
}

impl fmt::Display for Comparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sign())
    }
}
