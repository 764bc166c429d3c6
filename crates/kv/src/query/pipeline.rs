//! Pipelines: the extraction of attributes from a term.
//!
//! ```text
//! pipeline = stage | stage …
//! stage = delim($in, text, ($out, …))    its pieces between delimiters, one attribute each
//!       | split($in, text, $out)         the same as a list
//!       | slice($in, length, $out)       pieces of one length, as a list
//!       | index($in, position, length, $out)
//!       | kvsplit($in, text, text)       pairs: attributes with names of their own
//!       | regex($in, regex, ($out, …))   named groups; all of them, or none
//!       | join(($in, …), text, $out)
//!       | map($in, COMPARATOR, ((constant, constant), …), constant, $out)
//!       | to_integer($in, $out) | to_string($in, $out)
//!       | add(a, b, $out) | subtract(a, b, $out)
//! ```

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use super::lexer::{ParseError, Token, Tokens};
use super::value::{Attributes, Comparator, Constant, Known, Name, Operand, Substitutions, Value};
use crate::index::Pattern;

/// Stages of a pipeline: far more than terms have fields. Each may bring a regex of a quarter of a megabyte with it, in
/// each shard.
pub const STAGES_MAX: usize = 64;

/// The longest text that is joined: more than a term and a key have. A longer one is not there; else each stage might
/// double the text of the one before.
pub const JOINED_BYTES_MAX: usize = 128 << 10;

/// One stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Pieces between delimiters, one attribute each. What is left over is ignored.
    Delim(Name, String, Vec<Name>),
    /// Texts with a delimiter between them.
    Join(Vec<Name>, String, Name),
    /// Pieces between delimiters, as a list.
    Split(Name, String, Name),
    /// Pieces of one length, as a list. The last may be shorter.
    Slice(Name, usize, Name),
    /// A piece from a position, of a length.
    Index(Name, usize, usize, Name),
    /// Pairs of a name and a text, by the delimiter of pairs and that of a pair.
    KvSplit(Name, String, String),
    /// The groups of a regex with these names.
    Regex(Name, Regex, Vec<Name>),
    /// The second of the first pair whose first compares so, or else the default.
    Map(Name, Comparator, Vec<(Constant, Constant)>, Constant, Name),
    /// A text as a number.
    ToInteger(Name, Name),
    /// A number as a text.
    ToString(Name, Name),
    /// A sum.
    Add(Operand, Operand, Name),
    /// A difference.
    Subtract(Operand, Operand, Name),
}

/// A regex and its text.
#[derive(Clone, Debug)]
pub struct Regex {
    text: String,
    pattern: Pattern,
}

impl PartialEq for Regex {
    fn eq(&self, other: &Regex) -> bool {
        self.text == other.text
    }
}

impl Eq for Regex {}

impl Regex {
    /// Compiles it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(text: String) -> Result<Regex, String> {
        let pattern =
            Pattern::new(&Bytes::copy_from_slice(text.as_bytes())).map_err(|error| error.to_string())?;
        Ok(Regex { text, pattern })
    }
}

/// Stages, the first one first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pipeline(pub Vec<Stage>);

impl Pipeline {
    /// The pipeline in a text; one without stages if it is empty.
    ///
    /// # Errors
    /// [`ParseError`] if it is none.
    pub fn parse(text: &str, substitutions: &Substitutions) -> Result<Pipeline, ParseError> {
        let mut tokens = Tokens::of(text, substitutions)?;
        if tokens.peek().is_none() {
            return Ok(Pipeline::default());
        }
        let mut stages = vec![stage(&mut tokens)?];
        while tokens.is_sign("|") {
            if stages.len() == STAGES_MAX {
                return Err(tokens.error(format!("a pipeline has more than {STAGES_MAX} stages")));
            }
            stages.push(stage(&mut tokens)?);
        }
        tokens.end()?;
        Ok(Pipeline(stages))
    }

    /// Adds what the stages find.
    pub fn run(&self, attributes: &mut Attributes) {
        for stage in &self.0 {
            // One without its input is skipped.
            let _skipped = stage.run(attributes).is_none();
        }
    }
}

impl Stage {
    fn run(&self, attributes: &mut Attributes) -> Option<()> {
        match self {
            Stage::Delim(from, delimiter, to) => {
                let pieces: Vec<Bytes> =
                    pieces(attributes.text(from)?, delimiter).into_iter().take(to.len()).collect();
                for (name, piece) in to.iter().zip(pieces) {
                    attributes.set(name, Value::Text(piece));
                }
            }
            Stage::Split(from, delimiter, to) => {
                let list = pieces(attributes.text(from)?, delimiter);
                attributes.set(to, Value::List(list));
            }
            Stage::Slice(from, len, to) => {
                let text = attributes.text(from)?;
                let list = text.chunks(*len).map(|piece| text.slice_ref(piece)).collect();
                attributes.set(to, Value::List(list));
            }
            Stage::Index(from, at, len, to) => {
                let text = attributes.text(from)?;
                let piece = text.slice_ref(text.get(*at..at.checked_add(*len)?)?);
                attributes.set(to, Value::Text(piece));
            }
            Stage::KvSplit(from, between, within) => {
                let text = attributes.text(from)?.clone();
                split_pairs(&text, between, within, attributes);
            }
            Stage::Regex(from, regex, to) => {
                let text = attributes.text(from)?.clone();
                let captures = regex.pattern.regex().captures(&text)?;
                let group = |name: &Name| Some(text.slice_ref(captures.name(&name.0)?.as_bytes()));
                let groups: Vec<Bytes> = to.iter().map(group).collect::<Option<_>>()?;
                to.iter().zip(groups).for_each(|(name, group)| attributes.set(name, Value::Text(group)));
            }
            Stage::Join(from, delimiter, to) => {
                let joined = join(from, delimiter, attributes)?;
                attributes.set(to, Value::Text(joined));
            }
            Stage::Map(from, comparator, pairs, default, to) => {
                let it = attributes.get(from)?.known();
                let found = pairs.iter().find(|(one, _)| comparator.holds(it, one.known()));
                let value = found.map_or(default, |(_, value)| value).value();
                attributes.set(to, value);
            }
            Stage::ToInteger(from, to) => {
                let number = to_integer(attributes.get(from)?)?;
                attributes.set(to, Value::Number(number));
            }
            Stage::ToString(from, to) => {
                let text = match attributes.get(from)? {
                    Value::Text(text) => text.clone(),
                    Value::Number(number) => Bytes::from(number.to_string()),
                    Value::List(_) => return None,
                };
                attributes.set(to, Value::Text(text));
            }
            Stage::Add(one, other, to) => {
                let sum = number(one, attributes)?.checked_add(number(other, attributes)?)?;
                attributes.set(to, Value::Number(sum));
            }
            Stage::Subtract(one, other, to) => {
                let difference = number(one, attributes)?.checked_sub(number(other, attributes)?)?;
                attributes.set(to, Value::Number(difference));
            }
        }
        Some(())
    }
}

/// Sets an attribute for each pair of a name and a value in a text; other pieces are skipped.
fn split_pairs(text: &Bytes, between: &str, within: &str, attributes: &mut Attributes) {
    for pair in pieces(text, between) {
        let mut pair = pieces(&pair, within).into_iter();
        let (Some(name), Some(value), None) = (pair.next(), pair.next(), pair.next()) else {
            continue;
        };
        if let Ok(name) = std::str::from_utf8(&name) {
            attributes.set(&Name(name.to_owned()), Value::Text(value));
        }
    }
}

/// Texts in one, with a delimiter between them; `None` if it would be longer than [`JOINED_BYTES_MAX`].
fn join(from: &[Name], delimiter: &str, attributes: &Attributes) -> Option<Bytes> {
    let mut joined = BytesMut::new();
    for (at, name) in from.iter().enumerate() {
        if at > 0 {
            joined.put_slice(delimiter.as_bytes());
        }
        joined.put_slice(attributes.text(name)?);
        if joined.len() > JOINED_BYTES_MAX {
            return None;
        }
    }
    Some(joined.freeze())
}

fn to_integer(value: &Value) -> Option<i64> {
    match value {
        Value::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        Value::Number(number) => Some(*number),
        Value::List(_) => None,
    }
}

fn number(operand: &Operand, attributes: &Attributes) -> Option<i64> {
    match operand.known(attributes)? {
        Known::Number(number) => Some(number),
        Known::Text(_) | Known::List(_) => None,
    }
}

/// The pieces of a text between delimiters; all of it where the delimiter is empty.
fn pieces(text: &Bytes, delimiter: &str) -> Vec<Bytes> {
    if delimiter.is_empty() {
        return vec![text.clone()];
    }
    let mut pieces = Vec::new();
    let mut from = 0;
    for at in memchr::memmem::find_iter(text, delimiter.as_bytes()) {
        pieces.push(text.slice(from..at));
        from = at + delimiter.len();
    }
    pieces.push(text.slice(from..));

    let between = (pieces.len() - 1) * delimiter.len();
    let whole = pieces.iter().map(Bytes::len).sum::<usize>() + between;
    debug_assert_eq!(whole, text.len(), "pieces and delimiters make up the text");
    pieces
}

fn stage(tokens: &mut Tokens<'_>) -> Result<Stage, ParseError> {
    let error = tokens.error("the name of a stage is expected");
    let Some(Token::Word(word)) = tokens.take() else { return Err(error) };
    tokens.sign("(")?;
    let stage = match &word[..] {
        "delim" => Stage::Delim(next_name(tokens)?, next(tokens, Tokens::text)?, tokens.names()?),
        "split" => Stage::Split(next_name(tokens)?, next(tokens, Tokens::text)?, tokens.name()?),
        "slice" => Stage::Slice(next_name(tokens)?, next(tokens, |it| it.count(1))?, tokens.name()?),
        "index" => Stage::Index(
            next_name(tokens)?,
            next(tokens, |it| it.count(0))?,
            next(tokens, |it| it.count(1))?,
            tokens.name()?,
        ),
        "kvsplit" => Stage::KvSplit(next_name(tokens)?, next(tokens, Tokens::text)?, tokens.text()?),
        "regex" => {
            let from = next_name(tokens)?;
            let error = tokens.error("");
            let regex = Regex::new(next(tokens, Tokens::text)?);
            let regex = regex.map_err(|what| ParseError { what, at: error.at })?;
            // Older clients name the library that is to be used.
            if matches!(tokens.peek(), Some(Token::Word(_))) {
                tokens.take();
                tokens.sign(",")?;
            }
            Stage::Regex(from, regex, tokens.names()?)
        }
        "join" => Stage::Join(next(tokens, Tokens::names)?, next(tokens, Tokens::text)?, tokens.name()?),
        "map" => Stage::Map(
            next_name(tokens)?,
            next(tokens, Tokens::comparator)?,
            next(tokens, mappings)?,
            next(tokens, Tokens::constant)?,
            tokens.name()?,
        ),
        "to_integer" => Stage::ToInteger(next_name(tokens)?, tokens.name()?),
        "to_string" => Stage::ToString(next_name(tokens)?, tokens.name()?),
        "add" => Stage::Add(next(tokens, Tokens::operand)?, next(tokens, Tokens::operand)?, tokens.name()?),
        "subtract" => {
            Stage::Subtract(next(tokens, Tokens::operand)?, next(tokens, Tokens::operand)?, tokens.name()?)
        }
        _ => return Err(error),
    };
    tokens.sign(")")?;
    Ok(stage)
}

/// Something, and the comma behind it.
fn next<'a, T>(
    tokens: &mut Tokens<'a>,
    take: impl FnOnce(&mut Tokens<'a>) -> Result<T, ParseError>,
) -> Result<T, ParseError> {
    let it = take(tokens)?;
    tokens.sign(",")?;
    Ok(it)
}

fn next_name(tokens: &mut Tokens<'_>) -> Result<Name, ParseError> {
    next(tokens, Tokens::name)
}

/// `((a, b), (c, d))`
fn mappings(tokens: &mut Tokens<'_>) -> Result<Vec<(Constant, Constant)>, ParseError> {
    let mut pairs = Vec::new();
    tokens.sign("(")?;
    loop {
        tokens.sign("(")?;
        pairs.push((next(tokens, Tokens::constant)?, tokens.constant()?));
        tokens.sign(")")?;
        if !tokens.is_sign(",") {
            break;
        }
    }
    tokens.sign(")")?;
    Ok(pairs)
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, stage) in self.0.iter().enumerate() {
            write!(f, "{}{stage}", if at > 0 { " | " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: &String| Constant::Text(text.clone());
        match self {
            Stage::Delim(from, by, to) => write!(f, "delim({from}, {}, {})", text(by), Names(to)),
            Stage::Split(from, by, to) => write!(f, "split({from}, {}, {to})", text(by)),
            Stage::Slice(from, len, to) => write!(f, "slice({from}, {len}, {to})"),
            Stage::Index(from, at, len, to) => write!(f, "index({from}, {at}, {len}, {to})"),
            Stage::KvSplit(from, between, within) => {
                write!(f, "kvsplit({from}, {}, {})", text(between), text(within))
            }
            Stage::Regex(from, regex, to) => write!(f, "regex({from}, {}, {})", text(&regex.text), Names(to)),
            Stage::Join(from, by, to) => write!(f, "join({}, {}, {to})", Names(from), text(by)),
            Stage::Map(from, comparator, pairs, default, to) => {
                write!(f, "map({from}, {comparator}, (")?;
                for (at, (one, value)) in pairs.iter().enumerate() {
                    write!(f, "{}({one}, {value})", if at > 0 { ", " } else { "" })?;
                }
                write!(f, "), {default}, {to})")
            }
            Stage::ToInteger(from, to) => write!(f, "to_integer({from}, {to})"),
            Stage::ToString(from, to) => write!(f, "to_string({from}, {to})"),
            Stage::Add(one, other, to) => write!(f, "add({one}, {other}, {to})"),
            Stage::Subtract(one, other, to) => write!(f, "subtract({one}, {other}, {to})"),
        }
    }
}

struct Names<'a>(&'a [Name]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (at, name) in self.0.iter().enumerate() {
            write!(f, "{}{name}", if at > 0 { ", " } else { "" })?;
        }
        f.write_str(")")
    }
}
