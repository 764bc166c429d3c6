//! Names in JSON: keys, buckets, types, terms.
//!
//! A name is any bytes, and a JSON text is Unicode. A name that is UTF-8 is told as it is. Any other is told in a field
//! of its own beside, whose name ends with [`ENCODED`]: percent-encoded, and so as it stands in a path. No client is
//! ever told a name that does not exist.

use bytes::Bytes;
use protocol::http::target;
use serde_json::{Map, Value, json};

/// What the name of a field ends with whose names are percent-encoded.
const ENCODED: &str = "_percent_encoded";

/// The name of the field beside `field`.
pub(super) fn encoded_field(field: &str) -> String {
    format!("{field}{ENCODED}")
}

/// The name of the field that `field` stands beside, or its own name.
pub(super) fn plain_field(field: &str) -> &str {
    field.strip_suffix(ENCODED).unwrap_or(field)
}

/// The name that such a field tells.
pub(super) fn decoded(text: &str) -> Option<Bytes> {
    target::decode(&Bytes::copy_from_slice(text.as_bytes())).ok()
}

/// A name as it stands in a path.
pub(super) fn encoded(name: &[u8]) -> String {
    let mut text = Vec::with_capacity(name.len());
    target::encode(name, &mut text);
    String::from_utf8(text).expect("it is ASCII")
}

/// A name in a sentence.
pub(super) fn shown(name: &[u8]) -> String {
    std::str::from_utf8(name).map_or_else(|_| encoded(name), str::to_owned)
}

/// Adds a name to an object.
pub fn put_name(object: &mut Map<String, Value>, field: &str, name: &[u8]) {
    match std::str::from_utf8(name) {
        Ok(text) => object.insert(field.to_owned(), json!(text)),
        Err(_) => object.insert(encoded_field(field), json!(encoded(name))),
    };
}

/// An object with one name.
pub(super) fn named(field: &str, name: &[u8]) -> Map<String, Value> {
    let mut object = Map::new();
    put_name(&mut object, field, name);
    object
}

/// Adds names to an object, in their order: the field itself, and the one beside it if some names are not UTF-8.
pub(super) fn put_names<'a>(
    object: &mut Map<String, Value>,
    field: &str,
    names: impl IntoIterator<Item = &'a [u8]>,
) {
    let (mut plain, mut others) = (Vec::new(), Vec::new());
    for name in names {
        match std::str::from_utf8(name) {
            Ok(text) => plain.push(json!(text)),
            Err(_) => others.push(json!(encoded(name))),
        }
    }
    object.insert(field.to_owned(), Value::Array(plain));
    put_beside(object, field, others);
}

/// Adds terms with their keys to an object, each as an object of its own; both are encoded where one of them is.
pub(super) fn put_pairs<'a>(
    object: &mut Map<String, Value>,
    field: &str,
    pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) {
    let (mut plain, mut others) = (Vec::new(), Vec::new());
    for (term, key) in pairs {
        match (std::str::from_utf8(term), std::str::from_utf8(key)) {
            (Ok(term), Ok(key)) => plain.push(json!({ term: key })),
            _ => others.push(json!({ encoded(term): encoded(key) })),
        }
    }
    object.insert(field.to_owned(), Value::Array(plain));
    put_beside(object, field, others);
}

/// Adds an object with a count for each term.
pub(super) fn put_counts<'a>(
    object: &mut Map<String, Value>,
    field: &str,
    counts: impl IntoIterator<Item = (&'a [u8], u64)>,
) {
    let (mut plain, mut others) = (Map::new(), Map::new());
    for (term, count) in counts {
        match std::str::from_utf8(term) {
            Ok(term) => plain.insert(term.to_owned(), json!(count)),
            Err(_) => others.insert(encoded(term), json!(count)),
        };
    }
    object.insert(field.to_owned(), Value::Object(plain));
    if !others.is_empty() {
        object.insert(encoded_field(field), Value::Object(others));
    }
}

fn put_beside(object: &mut Map<String, Value>, field: &str, others: Vec<Value>) {
    if !others.is_empty() {
        object.insert(encoded_field(field), Value::Array(others));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_text_stand_beside() {
        let mut object = Map::new();
        put_names(&mut object, "keys", [&b"a"[..], b"\xFF", "\u{FFFD}".as_bytes(), b"\xFE/ "]);
        put_pairs(&mut object, "results", [(&b"t"[..], &b"k"[..]), (b"t", b"\xFF"), (b"\xC3(", b"k ")]);
        put_counts(&mut object, "counts", [(&b"t"[..], 1), (b"\xFF", 2), (b"\xFE", 3)]);
        put_name(&mut object, "bucket", b"\xE9");
        let expected = json!({
            "keys": ["a", "\u{FFFD}"],
            "keys_percent_encoded": ["%FF", "%FE%2F%20"],
            "results": [{ "t": "k" }],
            "results_percent_encoded": [{ "t": "%FF" }, { "%C3%28": "k%20" }],
            "counts": { "t": 1 },
            "counts_percent_encoded": { "%FF": 2, "%FE": 3 },
            "bucket_percent_encoded": "%E9",
        });
        assert_eq!(Value::Object(object), expected);
    }
}
