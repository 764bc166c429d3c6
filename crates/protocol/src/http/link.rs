//! `Link` headers between objects: `</buckets/B/keys/K>; riaktag="T"`, several of them with commas between.
//!
//! As in Riak, a link is to an object and has a tag, or it is the object's own bucket with `rel="up"`, which answers
//! have and clients send back; anything else is malformed. A `%` without its digits stands for itself. Beyond Riak, a
//! path may be in any of the forms that objects have, a tag may stand without quotes, and spaces may stand around
//! parameters.

use bytes::Bytes;

use super::target;

/// A link to another object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTo {
    /// The bucket type that the link names; `None` where it names none.
    pub bucket_type: Option<Bytes>,
    /// The bucket.
    pub bucket: Bytes,
    /// The key.
    pub key: Bytes,
    /// What the link means.
    pub tag: Bytes,
}

/// The links of a header's value to objects; `None` if it is malformed. `bucket` is the name of the object's bucket.
pub fn parse(value: &[u8], bucket: &[u8]) -> Option<Vec<LinkTo>> {
    let mut links = Vec::new();
    let mut rest = value.trim_ascii();
    while !rest.is_empty() {
        let (path, after) = cut(rest.strip_prefix(b"<")?, b'>')?;
        let (params, after) = parse_params(after)?;
        match params.tag {
            Some(tag) => links.push(link_to(path, tag)?),
            None if params.rel == Some(b"up") && is_path_of(path, bucket) => {}
            None => return None,
        }
        rest = match after.split_first() {
            Some((b',', more)) => more.trim_ascii_start(),
            None => after,
            _ => return None,
        };
    }
    Some(links)
}

/// The parameters of a link.
#[derive(Default)]
struct Params<'a> {
    tag: Option<&'a [u8]>,
    rel: Option<&'a [u8]>,
}

/// The parameters of a link, and what follows them.
fn parse_params(mut rest: &[u8]) -> Option<(Params<'_>, &[u8])> {
    let mut params = Params::default();
    loop {
        rest = rest.trim_ascii_start();
        let Some(param) = rest.strip_prefix(b";") else { return Some((params, rest)) };
        let (name, value) = cut(param, b'=')?;
        let (value, after) = match value.trim_ascii_start() {
            [b'"', quoted @ ..] => cut(quoted, b'"')?,
            plain => {
                plain.split_at(plain.iter().position(|byte| b",; ".contains(byte)).unwrap_or(plain.len()))
            }
        };
        match name.trim_ascii() {
            name if name.eq_ignore_ascii_case(b"riaktag") => params.tag = Some(value),
            name if name.eq_ignore_ascii_case(b"rel") => params.rel = Some(value),
            _ => {}
        }
        rest = after;
    }
}

fn link_to(path: &[u8], tag: &[u8]) -> Option<LinkTo> {
    let segments: Vec<&[u8]> = path.strip_prefix(b"/")?.split(|&byte| byte == b'/').collect();
    let (bucket_type, bucket, key) = match segments[..] {
        [b"buckets", bucket, b"keys", key] => (None, bucket, key),
        [b"types", bucket_type, b"buckets", bucket, b"keys", key] => (Some(bucket_type), bucket, key),
        [b"riak", bucket, key] => (None, bucket, key),
        _ => return None,
    };
    if [bucket, key, tag].iter().any(|part| part.is_empty()) {
        return None;
    }
    Some(LinkTo {
        bucket_type: bucket_type.map(decoded),
        bucket: decoded(bucket),
        key: decoded(key),
        tag: decoded(tag),
    })
}

/// Whether a path is that of the bucket `name`.
fn is_path_of(path: &[u8], name: &[u8]) -> bool {
    let segments: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    match segments[..] {
        [b"", b"buckets" | b"riak", bucket] | [b"", b"types", _, b"buckets", bucket] => {
            decoded(bucket) == name
        }
        _ => false,
    }
}

fn decoded(text: &[u8]) -> Bytes {
    target::decode_lenient(&Bytes::copy_from_slice(text))
}

fn cut(text: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == end)?;
    Some((&text[..at], &text[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(bucket: &'static str, key: &'static str, tag: &'static str) -> LinkTo {
        LinkTo { bucket_type: None, bucket: bucket.into(), key: key.into(), tag: tag.into() }
    }

    #[test]
    fn links_are_read() {
        let read = |text: &str| parse(text.as_bytes(), b"b");
        assert_eq!(read(""), Some(vec![]));
        assert_eq!(read("</buckets/b/keys/k>; riaktag=\"t\""), Some(vec![link("b", "k", "t")]));
        assert_eq!(
            read(
                "</riak/b/k>;riaktag=t,</buckets/b%2Fc/keys/k%20k>; riaktag=\"a%2Cb\" , </buckets/b>; rel=\"up\""
            ),
            Some(vec![link("b", "k", "t"), link("b/c", "k k", "a,b")])
        );
        let odd = "</buckets/b%/keys/50%>; riaktag=\"100%+%zz%41\", </types/y/buckets/b>; rel=\"up\"";
        assert_eq!(read(odd), Some(vec![link("b%", "50%", "100% %zzA")]));
        let typed = LinkTo { bucket_type: Some("y".into()), ..link("b", "k", "t") };
        assert_eq!(read("</types/y/buckets/b/keys/k>; riaktag=\"t\""), Some(vec![typed]));
    }

    #[test]
    fn what_is_no_link_is_none() {
        for text in [
            "x",
            "<",
            "</buckets/b/keys/k>",
            "</buckets/b>; riaktag=\"t\"",
            "</buckets/b/keys/k>; riaktag=\"t",
            "</buckets/b/keys/k>; riaktag=\"t\" x",
            "<buckets/b/keys/k>; riaktag=\"t\"",
            "</a>; x",
            "</buckets/b/keys/k>; rel=\"next\"",
            "</buckets/b/keys/k>; rel=\"up\"",
            "</buckets/b>; rel=\"next\"",
            "</buckets/other>; rel=\"up\"",
            "</buckets/b/keys/k>; riaktag=\"\"",
            "</buckets/b/keys/>; riaktag=\"t\"",
            "</buckets//keys/k>; riaktag=\"t\"",
        ] {
            assert_eq!(parse(text.as_bytes(), b"b"), None, "{text}");
        }
    }
}
