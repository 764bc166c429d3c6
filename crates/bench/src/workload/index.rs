//! Index entries of written objects, and queries: `[[index]]`, and the `query` of an operation.

use super::fields::Fields;
use super::parse::{narrow, shape};
use crate::Error;
use crate::keys::Shape;

/// Entries of one object under one field: more are a mistake.
const ENTRIES_MAX: u64 = 100;

/// Rows that a query may be made for: as many as an answer in one piece could hold.
const RESULTS_MAX: u64 = 10_000_000;

/// Pages of one query at most.
const PAGES_MAX: u64 = 100_000;

/// Which index entries an operation writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexes {
    /// None.
    None,
    /// Of a person: one to three postcodes, a date of birth, the time of the last change.
    Person,
    /// Those of the workload's `[[index]]`.
    Listed,
}

/// A field under which objects have entries.
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    /// Its name, with `_bin` or `_int` at its end.
    pub field: String,
    /// Entries of each object; of those that are drawn, some may be the same.
    pub entries: u32,
    /// How its terms are drawn; without it, an object's only term is the number of its key.
    pub terms: Option<Shape>,
    /// Whether they are drawn anew at each write. Those of an object are the same for ever otherwise.
    pub changes: bool,
}

impl Index {
    /// Whether its terms are integers.
    pub fn is_int(&self) -> bool {
        self.field.ends_with("_int")
    }
}

/// What an index is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Which terms of which index.
    pub of: Wanted,
    /// Whether terms come back.
    pub return_terms: bool,
    /// Only terms that match.
    pub term_regex: Option<String>,
    /// The size of a page; everything at once without it.
    pub max_results: Option<u32>,
    /// Pages that are read at most, one after the other.
    pub pages: u32,
}

impl Query {
    /// Rows that it takes at most.
    pub fn rows_max(&self) -> u64 {
        self.max_results.map_or(u64::MAX, |page| u64::from(page) * u64::from(self.pages))
    }
}

/// Which terms of which index.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// The people of a postcode district whose suffix is from `a` to before this letter.
    Postcode {
        /// The last letter.
        to: char,
    },
    /// The people born within some days.
    DateOfBirth {
        /// Days, at most.
        days: u32,
    },
    /// Always the same range of any index.
    Range {
        /// The index.
        index: String,
        /// The first term.
        from: String,
        /// The last term.
        to: String,
    },
    /// So many terms, one after the other, of an index of this workload; one of them is asked for as it is.
    Terms {
        /// Its place among the workload's.
        index: usize,
        /// Terms that there are, from 0 on.
        count: u64,
        /// Terms that are asked for.
        span: u64,
        /// Whether each of them has its object, so that fewer rows are wrong.
        whole: bool,
    },
}

/// `[[index]]`.
pub fn index(mut it: Fields<'_>) -> Result<Index, Error> {
    let field = it.text("field")?.ok_or_else(|| it.error("an index has a field"))?;
    let is_named = field.ends_with("_bin") || field.ends_with("_int");
    // HTTP servers lose capital letters of header names.
    let is_plain =
        field.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if !is_named || !is_plain {
        return Err(it.error("a field is of small letters and digits and ends in _bin or _int"));
    }
    let terms = it.inner("terms")?.map(shape).transpose()?;
    if terms.as_ref().is_some_and(|shape| terms_of(shape).is_none()) {
        return Err(it.error(
            "terms are uniform, zipf, hotspot, eighty-twenty or truncated-pareto: drawn independently of the written keys",
        ));
    }
    let entries = it.number("entries", 1, ENTRIES_MAX)?;
    let changes = it.flag("changes")?;
    if terms.is_none() && (entries.is_some_and(|entries| entries > 1) || changes == Some(true)) {
        return Err(
            it.error("without terms, an object has one, the number of its key, which does not change")
        );
    }
    let changes = changes.unwrap_or(terms.is_some());
    it.finish()?;
    Ok(Index { field, entries: entries.map_or(1, narrow), terms, changes })
}

/// How many terms there are, of a distribution that draws below a count and from nothing but a random number.
fn terms_of(shape: &Shape) -> Option<u64> {
    match shape {
        Shape::Uniform { count }
        | Shape::Zipf { count, .. }
        | Shape::Hotspot { count, .. }
        | Shape::Pareto { count, truncated: true } => Some(*count),
        _ => None,
    }
}

/// How many objects operations with these keys are about.
fn objects_of(shape: Option<&Shape>) -> Option<u64> {
    match shape? {
        Shape::Sequential { start: 0, count } | Shape::Pareto { count, .. } => Some(*count),
        Shape::Present { loaded } => Some(*loaded),
        other => terms_of(other),
    }
}

/// The `query` of an operation; `keys` are the workload's own.
pub fn query(mut it: Fields<'_>, indexes: &[Index], keys: Option<&Shape>) -> Result<Query, Error> {
    let kind = it.text("kind")?.unwrap_or_else(|| "range".to_owned());
    let of = match &*kind {
        "postcode" => {
            let to = it.text("to")?.unwrap_or_else(|| "b".to_owned());
            let to = to.chars().next().filter(char::is_ascii_alphanumeric);
            Wanted::Postcode { to: to.ok_or_else(|| it.error("to is not a letter"))? }
        }
        "date-of-birth" => Wanted::DateOfBirth { days: narrow(it.number("days", 1, 366)?.unwrap_or(3)) },
        "range" => {
            let mut need = |key: &str| it.text(key)?.ok_or_else(|| it.error(format!("a range has {key}")));
            Wanted::Range { index: need("index")?, from: need("from")?, to: need("to")? }
        }
        "terms" => terms(&mut it, indexes, keys)?,
        _ => return Err(it.error("kind is not one of postcode, date-of-birth, range, terms")),
    };
    let return_terms = it.flag("return_terms")?.unwrap_or(false);
    let term_regex = it.text("term_regex")?;
    let max_results = it.number("max_results", 1, u64::from(u32::MAX))?.map(narrow);
    let pages = it.number("pages", 1, PAGES_MAX)?;
    if pages.is_some() && max_results.is_none() {
        return Err(it.error("pages have a size: max_results"));
    }
    if term_regex.is_some() && matches!(of, Wanted::Terms { whole: true, .. }) {
        return Err(it.error("terms filtered by a regular expression are an incomplete result"));
    }
    it.finish()?;
    Ok(Query { of, return_terms, term_regex, max_results, pages: pages.map_or(1, narrow) })
}

fn terms(it: &mut Fields<'_>, indexes: &[Index], keys: Option<&Shape>) -> Result<Wanted, Error> {
    let name = it.text("index")?.ok_or_else(|| it.error("a query of terms has index"))?;
    let index = indexes.iter().position(|index| index.field == name);
    let index = index.ok_or_else(|| it.error(format!("there is no [[index]] with the field {name}")))?;
    let (known, objects) = (&indexes[index], objects_of(keys));
    let count = known.terms.as_ref().map_or(objects, terms_of);
    let count = count.ok_or_else(|| {
        it.error("the workload's [keys] have no count, so it is not known which terms there are")
    })?;
    let span = match (it.number("span", 1, count)?, it.number("results", 1, RESULTS_MAX)?) {
        (Some(span), None) => span,
        (None, Some(results)) => {
            let objects =
                objects.ok_or_else(|| it.error("results: the workload's [keys] have no count; say span"))?;
            let entries = u128::from(objects) * u128::from(known.entries);
            let span = (u128::from(results) * u128::from(count)).div_ceil(entries.max(1));
            u64::try_from(span).unwrap_or(u64::MAX).clamp(1, count)
        }
        _ => return Err(it.error("a query of terms has either span or results")),
    };
    let whole = it.flag("whole")?.unwrap_or(false);
    if whole && known.terms.is_some() {
        return Err(it.error("only an index without terms, of numbers of keys, has each of them just once"));
    }
    Ok(Wanted::Terms { index, count, span, whole })
}
