//! A text in words, and the helpers of all parsers.

use super::value::{Comparator, Constant, Name, Operand, Substitutions};

/// The longest expression: a screen of text several times over, and compiled on each shard that is asked.
pub const TEXT_BYTES_MAX: usize = 16 << 10;

/// How deep parentheses and negations nest: a parser and an evaluation go as deep.
pub const DEPTH_MAX: usize = 64;

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at character {at}")]
pub struct ParseError {
    /// What is wrong.
    pub what: String,
    /// Where.
    pub at: usize,
}

/// A word of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// `$name`
    Name(Name),
    /// `:name`
    Substitution(String),
    /// `"text"`
    Text(String),
    /// `-12`
    Number(i64),
    /// `delim`, `AND`
    Word(String),
    /// `( ) , |` and comparators
    Sign(&'static str),
}

/// The words of a text, the next one first.
pub(super) struct Tokens<'a> {
    tokens: Vec<(usize, Token)>,
    next: usize,
    end: usize,
    depth: usize,
    substitutions: &'a Substitutions,
}

const SIGNS: [&str; 10] = ["<>", "<=", ">=", "(", ")", ",", "|", "=", "<", ">"];

impl<'a> Tokens<'a> {
    pub fn of(text: &str, substitutions: &'a Substitutions) -> Result<Tokens<'a>, ParseError> {
        if text.len() > TEXT_BYTES_MAX {
            let what = format!("an expression has more than {TEXT_BYTES_MAX} bytes");
            return Err(ParseError { what, at: TEXT_BYTES_MAX });
        }
        let mut tokens = Vec::new();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let at = text.len() - rest.len();
            let (token, len) = token(rest).map_err(|what| ParseError { what, at })?;
            tokens.push((at, token));
            rest = rest[len..].trim_start();
        }
        Ok(Tokens { tokens, next: 0, end: text.len(), depth: 0, substitutions })
    }

    pub fn error(&self, what: impl Into<String>) -> ParseError {
        let at = self.tokens.get(self.next).map_or(self.end, |(at, _)| *at);
        ParseError { what: what.into(), at }
    }

    pub fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    pub fn take(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.next += 1;
        token
    }

    /// Nothing may follow.
    pub fn end(&self) -> Result<(), ParseError> {
        if self.peek().is_none() { Ok(()) } else { Err(self.error("nothing is expected here")) }
    }

    pub fn is_sign(&mut self, sign: &'static str) -> bool {
        let is = self.peek() == Some(&Token::Sign(sign));
        self.next += usize::from(is);
        is
    }

    pub fn sign(&mut self, sign: &'static str) -> Result<(), ParseError> {
        if self.is_sign(sign) { Ok(()) } else { Err(self.error(format!("{sign} is expected"))) }
    }

    pub fn is_word(&mut self, word: &str) -> bool {
        let is = matches!(self.peek(), Some(Token::Word(it)) if it == word);
        self.next += usize::from(is);
        is
    }

    pub fn name(&mut self) -> Result<Name, ParseError> {
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.next += 1;
                Ok(name)
            }
            _ => Err(self.error("the name of an attribute is expected, as $name")),
        }
    }

    /// `($a, $b)`
    pub fn names(&mut self) -> Result<Vec<Name>, ParseError> {
        self.sign("(")?;
        let mut names = vec![self.name()?];
        while self.is_sign(",") {
            names.push(self.name()?);
        }
        self.sign(")")?;
        Ok(names)
    }

    /// A constant, or what is substituted for a name.
    pub fn constant(&mut self) -> Result<Constant, ParseError> {
        let constant = match self.peek() {
            Some(Token::Text(text)) => Constant::Text(text.clone()),
            Some(Token::Number(number)) => Constant::Number(*number),
            Some(Token::Substitution(name)) => {
                let known = self.substitutions.get(name);
                known.ok_or_else(|| self.error(format!("nothing is given for :{name}")))?.clone()
            }
            _ => return Err(self.error("a text, a number or a substitution is expected")),
        };
        self.next += 1;
        Ok(constant)
    }

    pub fn text(&mut self) -> Result<String, ParseError> {
        let error = self.error("a text is expected");
        match self.constant()? {
            Constant::Text(text) => Ok(text),
            Constant::Number(_) => Err(error),
        }
    }

    pub fn number(&mut self) -> Result<i64, ParseError> {
        let error = self.error("a number is expected");
        match self.constant()? {
            Constant::Number(number) => Ok(number),
            Constant::Text(_) => Err(error),
        }
    }

    pub fn count(&mut self, least: usize) -> Result<usize, ParseError> {
        let error = self.error(format!("a number of {least} or more is expected"));
        usize::try_from(self.number()?).ok().filter(|&count| count >= least).ok_or(error)
    }

    pub fn operand(&mut self) -> Result<Operand, ParseError> {
        match self.peek() {
            Some(Token::Name(_)) => Ok(Operand::Attribute(self.name()?)),
            _ => Ok(Operand::Constant(self.constant()?)),
        }
    }

    pub fn comparator(&mut self) -> Result<Comparator, ParseError> {
        let found = match self.peek() {
            Some(Token::Sign(sign)) => Comparator::ALL.into_iter().find(|it| it.sign() == *sign),
            _ => None,
        };
        let found = found.ok_or_else(|| self.error("a comparison is expected"))?;
        self.next += 1;
        Ok(found)
    }

    /// Does it one level deeper.
    pub fn deeper<T>(
        &mut self,
        then: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        if self.depth == DEPTH_MAX {
            return Err(self.error(format!("an expression nests more than {DEPTH_MAX} deep")));
        }
        self.depth += 1;
        let done = then(self);
        self.depth -= 1;
        done
    }
}

/// The word at the front, and its length.
fn token(rest: &str) -> Result<(Token, usize), String> {
    if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
        return Ok((Token::Sign(sign), sign.len()));
    }
    let word = |from: usize| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        rest[from..].find(|c| !is_part(c)).unwrap_or(rest.len() - from)
    };
    match rest.as_bytes()[0] {
        b'"' => text(rest),
        mark @ (b'$' | b':') => {
            let len = word(1);
            if len == 0 {
                return Err(format!("a name is expected behind {}", char::from(mark)));
            }
            let name = rest[1..=len].to_owned();
            let token = if mark == b'$' { Token::Name(Name(name)) } else { Token::Substitution(name) };
            Ok((token, 1 + len))
        }
        b'-' | b'0'..=b'9' => {
            let len = 1 + rest[1..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - 1);
            let number = rest[..len].parse().map_err(|_| "a number is not one of 64 bits".to_owned())?;
            Ok((Token::Number(number), len))
        }
        byte if byte.is_ascii_alphabetic() => {
            let len = word(0);
            Ok((Token::Word(rest[..len].to_owned()), len))
        }
        _ => Err("a character that means nothing".to_owned()),
    }
}

/// A text in quotation marks; a backslash stands before a quotation mark or a backslash that is part of it.
fn text(rest: &str) -> Result<(Token, usize), String> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((Token::Text(text), at + 1)),
            '\\' if matches!(rest.as_bytes().get(at + 1), Some(b'"' | b'\\')) => {
                text.extend(chars.next().map(|(_, c)| c));
            }
            c => text.push(c),
        }
    }
    Err("a text does not end".to_owned())
}
