//! `Link` headers between objects: `</buckets/B/keys/K>; riaktag="T"`, several of them with commas between.

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

/// The links of a header's value; `None` if it is malformed. Links of another relation (`rel="up"`, which answers
/// have and clients send back) are passed over.
pub fn parse(value: &[u8]) -> Option<Vec<LinkTo>> {
    let mut links = Vec::new();
    let mut rest = value.trim_ascii();
    while !rest.is_empty() {
        let (path, after) = cut(rest.strip_prefix(b"<")?, b'>')?;
        let (params, after) = parse_params(after)?;
        match params.tag {
            Some(tag) => links.push(link_to(path, tag)?),
            None if params.has_rel => {}
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

/// What is said of a link.
#[derive(Default)]
struct Params<'a> {
    tag: Option<&'a [u8]>,
    /// Whether there is a relation of another kind.
    has_rel: bool,
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
            name if name.eq_ignore_ascii_case(b"rel") => params.has_rel = true,
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
    let decoded = |text: &[u8]| target::decode(&Bytes::copy_from_slice(text)).ok();
    Some(LinkTo {
        bucket_type: match bucket_type {
            None => None,
            Some(named) => Some(decoded(named)?),
        },
        bucket: decoded(bucket)?,
        key: decoded(key)?,
        tag: decoded(tag)?,
    })
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
        let read = |text: &str| parse(text.as_bytes());
        assert_eq!(read(""), Some(vec![]));
        assert_eq!(read("</buckets/b/keys/k>; riaktag=\"t\""), Some(vec![link("b", "k", "t")]));
        assert_eq!(
            read(
                "</riak/b/k>;riaktag=t,</buckets/b%2Fc/keys/k%20k>; riaktag=\"a%2Cb\" , </buckets/b>; rel=\"up\""
            ),
            Some(vec![link("b", "k", "t"), link("b/c", "k k", "a,b")])
        );
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
            "</buckets/b/keys/%k>; riaktag=\"t\"",
            "</types/%/buckets/b/keys/k>; riaktag=\"t\"",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
