//! What a client accepts: media types (RFC 9110, section 12.5.1), character sets and codings (12.5.2, 12.5.3).

/// How well an `Accept` header's value takes a media type: 0 not at all, 1000 best. The most specific range that
/// names the type decides; parameters other than `q` are not looked at.
pub fn quality(accept: &[u8], media_type: &[u8]) -> u16 {
    let mut best: Option<(u8, u16)> = None;
    for range in accept.split(|&byte| byte == b',') {
        let Some(specific) = specificity(range, media_type) else { continue };
        if best.is_none_or(|(before, _)| specific > before) {
            best = Some((specific, weight(range)));
        }
    }
    best.map_or(0, |(_, weight)| weight)
}

/// The index of the media type that an `Accept` header's value prefers among `choices`; `None` if it accepts none.
///
/// As in Webmachine, ranges are tried by falling `q`, of equal ones the last named first, and the first choice that a
/// range matches is taken. Unlike there, a type whose most specific range has `q=0` is never taken.
pub fn prefer(accept: &[u8], choices: &[&[u8]]) -> Option<usize> {
    let ranges = accept.split(|&byte| byte == b',').enumerate();
    let matches = ranges.filter_map(|(at, range)| {
        let is_taken = |choice: &&[u8]| specificity(range, choice).is_some() && quality(accept, choice) > 0;
        Some(((weight(range), at), choices.iter().position(is_taken)?))
    });
    matches.max_by_key(|&(rank, _)| rank).map(|(_, choice)| choice)
}

/// How specifically a range names a media type: 2 by its name, 1 by its kind, 0 as any; `None` if it does not match.
fn specificity(range: &[u8], media_type: &[u8]) -> Option<u8> {
    let (name, media_type) = (essence(range), essence(media_type));
    let ((of, sub), (kind, _)) = (cut(name, b'/'), cut(media_type, b'/'));
    match () {
        () if name.eq_ignore_ascii_case(media_type) => Some(2),
        () if sub == b"*" && of.eq_ignore_ascii_case(kind) => Some(1),
        () if name == b"*/*" || name == b"*" => Some(0),
        () => None,
    }
}

/// Which of `choices` a header's value prefers, of character sets or codings; `None` if it takes none of them. One that
/// is named goes before those that only `*` takes, and these before `default`, which is taken where nothing is said of
/// it. Of two that are alike the first is chosen.
pub fn choose(accepted: &[u8], choices: &[&[u8]], default: &[u8]) -> Option<usize> {
    let weight_of = |name: &[u8]| {
        let named = accepted.split(|&byte| byte == b',').find(|it| essence(it).eq_ignore_ascii_case(name));
        named.map(weight)
    };
    let any = weight_of(b"*");
    let rank = |choice: &[u8]| match (weight_of(choice), any) {
        (Some(0), _) | (None, Some(0)) => None,
        (Some(weight), _) => Some((2, weight)),
        (None, Some(_)) => Some((1, 0)),
        (None, None) => choice.eq_ignore_ascii_case(default).then_some((0, 0)),
    };
    let ranked = choices.iter().enumerate().filter_map(|(at, choice)| Some((rank(choice)?, at)));
    ranked.max_by_key(|&(rank, at)| (rank, std::cmp::Reverse(at))).map(|(_, at)| at)
}

/// A media type without its parameters.
pub fn essence(media_type: &[u8]) -> &[u8] {
    cut(media_type, b';').0.trim_ascii()
}

/// The `q` of a range, in thousandths; 1000 where there is none, or none that can be read.
fn weight(range: &[u8]) -> u16 {
    for param in range.split(|&byte| byte == b';').skip(1).map(<[u8]>::trim_ascii) {
        if let [b'q' | b'Q', b'=', value @ ..] = param {
            return thousandths(value).unwrap_or(1000);
        }
    }
    1000
}

fn thousandths(value: &[u8]) -> Option<u16> {
    let (whole, rest) = value.split_first()?;
    let digits = match rest {
        [] => &[],
        [b'.', digits @ ..] if digits.len() <= 3 => digits,
        _ => return None,
    };
    let mut number = u16::from(whole.checked_sub(b'0').filter(|digit| *digit <= 1)?);
    for at in 0..3 {
        let digit = digits.get(at).copied().unwrap_or(b'0');
        number = number * 10 + u16::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?);
    }
    Some(number.min(1000))
}

fn cut(text: &[u8], at: u8) -> (&[u8], &[u8]) {
    match text.iter().position(|&byte| byte == at) {
        Some(found) => (&text[..found], &text[found + 1..]),
        None => (text, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_range_decides() {
        let of = |accept: &str, media_type: &str| quality(accept.as_bytes(), media_type.as_bytes());
        assert_eq!(of("*/*", "text/plain"), 1000);
        assert_eq!(of("text/*;q=0.5, */*;q=0.1", "text/plain; charset=utf-8"), 500);
        assert_eq!(of("text/plain;q=0, */*", "text/plain"), 0);
        assert_eq!(of("*/*, TEXT/plain;q=0.25", "text/PLAIN"), 250);
        assert_eq!(of("application/json", "text/plain"), 0);
        assert_eq!(of("multipart/mixed, */*;q=0.9", "multipart/mixed"), 1000);
        assert_eq!(of("", "text/plain"), 0);
        for odd in ["*/*;q=", "*/*;q=2", "*/*;q=0.1234", "*/*;q=x"] {
            assert_eq!(of(odd, "a/b"), 1000, "{odd}");
        }
    }

    #[test]
    fn of_equal_ranges_the_last_named_is_preferred() {
        let choices: [&[u8]; 2] = [b"text/plain", b"multipart/mixed"];
        for (accepted, chosen) in [
            ("*/*", Some(0)),
            ("*/*, multipart/mixed", Some(1)),
            ("multipart/mixed, */*", Some(0)),
            ("multipart/mixed, */*;q=0.9", Some(1)),
            ("text/plain, multipart/mixed", Some(1)),
            ("multipart/mixed, text/plain", Some(0)),
            ("multipart/*;q=0.5, text/*;q=0.4", Some(1)),
            ("multipart/mixed;q=0, */*", Some(0)),
            ("text/plain;q=0, */*;q=0.1", Some(1)),
            ("application/json, multipart/mixed;q=0.1", Some(1)),
            ("application/json", None),
            ("*/*;q=0", None),
            ("", None),
        ] {
            assert_eq!(prefer(accepted.as_bytes(), &choices), chosen, "{accepted}");
        }
    }

    #[test]
    fn what_is_named_goes_before_what_is_only_taken() {
        let of = |accepted: &str, choices: &[&str]| {
            let choices: Vec<&[u8]> = choices.iter().map(|choice| choice.as_bytes()).collect();
            choose(accepted.as_bytes(), &choices, b"identity")
        };
        let both = ["identity", "gzip"];
        for (accepted, chosen) in [
            ("", Some(0)),
            ("deflate, br", Some(0)),
            ("identity", Some(0)),
            ("gzip", Some(1)),
            ("gzip, deflate, br", Some(1)),
            ("GZip ; q=0.1", Some(1)),
            ("gzip, identity", Some(0)),
            ("gzip;q=0.5, identity;q=0.4", Some(1)),
            ("*", Some(0)),
            ("*, gzip;q=0.1", Some(1)),
            ("gzip;q=0", Some(0)),
            ("identity;q=0", None),
            ("identity;q=0, *", Some(1)),
            ("*;q=0", None),
            ("*;q=0, gzip", Some(1)),
        ] {
            assert_eq!(of(accepted, &both), chosen, "{accepted}");
        }
        assert_eq!(of("identity", &["br"]), None);
        assert_eq!(of("*;q=0.1", &["br"]), Some(0));
        assert_eq!(of("gzip, br;q=0.2", &["BR"]), Some(0));
    }
}
