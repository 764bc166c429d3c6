//! Dates in headers: written in HTTP's one form, read in all three.

use httpdate::HttpDate;
use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

/// Bytes of a date as `format` writes it.
pub const DATE_LEN: usize = 29;

/// The last second that four digits of a year can name; later ones are written as this one.
const LAST: u64 = 253_402_300_799;

/// A time in seconds since 1970, as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn format(seconds: u64) -> [u8; DATE_LEN] {
    let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(seconds.min(LAST)));
    let mut text = [0; DATE_LEN];
    write!(&mut text[..], "{date}").expect("all dates have one length");
    text
}

/// The time that a date names, in seconds since 1970; `None` if it is none, or before 1970.
pub fn parse(text: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
    date.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_example_in_its_three_forms() {
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn days_at_the_ends_of_months_and_centuries() {
        for (seconds, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
            (1_795_260_970, "Sat, 21 Nov 2026 11:36:10 GMT"),
            (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"),
            (LAST, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(std::str::from_utf8(&format(seconds)), Ok(text));
            assert_eq!(parse(text.as_bytes()), Some(seconds));
        }
        assert_eq!(format(u64::MAX), format(LAST));
        for day in 0..100_000 {
            assert_eq!(parse(&format(day * 86_400 + 4711)), Some(day * 86_400 + 4711));
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            " ",
            "Sun",
            "Sun,",
            "tomorrow",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Noo 1994 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT GMT",
            "784111777",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Thu, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:60 GMT",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(b"\xFF\xFE"), None);
    }
}
