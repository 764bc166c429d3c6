//! Dates in headers: written in HTTP's one form, read in all three.

/// The seconds of a day.
const DAY: u64 = 86_400;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Bytes of a date as `format` writes it.
pub const DATE_LEN: usize = 29;

/// The last second that four digits of a year can name; later ones are written as this one.
const LAST: u64 = 253_402_300_799;

/// A time in seconds since 1970, as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub fn format(seconds: u64) -> [u8; DATE_LEN] {
    let seconds = seconds.min(LAST);
    let (days, time) = (seconds / DAY, seconds % DAY);
    let (year, month, day) = civil(days);
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let weekday = usize::try_from(days % 7).expect("a week has seven days");
    text[..3].copy_from_slice(DAYS[weekday].as_bytes());
    text[8..11].copy_from_slice(MONTHS[month - 1].as_bytes());
    put(&mut text[5..7], day);
    put(&mut text[12..16], year);
    put(&mut text[17..19], time / 3600);
    put(&mut text[20..22], time / 60 % 60);
    put(&mut text[23..25], time % 60);
    text
}

fn put(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
    }
}

/// The time that a date names, in seconds since 1970; `None` if it is none, or before 1970.
pub fn parse(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim_ascii();
    let (day, rest) = text.split_once(' ')?;
    if let Some(day) = day.strip_suffix(',') {
        return if day.len() == 3 { parse_fixed(rest) } else { parse_rfc850(rest) };
    }
    parse_asctime(rest)
}

/// `06 Nov 1994 08:49:37 GMT`
fn parse_fixed(text: &str) -> Option<u64> {
    let mut parts = text.split(' ');
    let (day, month, year) = (number(parts.next()?, 2)?, month(parts.next()?)?, number(parts.next()?, 4)?);
    let time = time(parts.next()?)?;
    (parts.next() == Some("GMT") && parts.next().is_none()).then(|| at(year, month, day, time))?
}

/// `06-Nov-94 08:49:37 GMT`, where a year is that of the century around 2000.
fn parse_rfc850(text: &str) -> Option<u64> {
    let mut parts = text.split(' ');
    let mut date = parts.next()?.split('-');
    let (day, month, year) = (number(date.next()?, 2)?, month(date.next()?)?, number(date.next()?, 2)?);
    let year = if year < 70 { 2000 + year } else { 1900 + year };
    let time = time(parts.next()?)?;
    let ends = parts.next() == Some("GMT") && parts.next().is_none() && date.next().is_none();
    ends.then(|| at(year, month, day, time))?
}

/// `Nov  6 08:49:37 1994`
fn parse_asctime(text: &str) -> Option<u64> {
    let mut parts = text.split(' ').filter(|part| !part.is_empty());
    let month = month(parts.next()?)?;
    let day = parts.next()?;
    let (day, time) = (number(day, day.len())?, time(parts.next()?)?);
    let year = number(parts.next()?, 4)?;
    parts.next().is_none().then(|| at(year, month, day, time))?
}

fn number(text: &str, digits: usize) -> Option<u64> {
    let is_number = text.len() == digits && digits <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

fn month(text: &str) -> Option<u64> {
    (1..).zip(MONTHS).find(|&(_, name)| name == text).map(|(month, _)| month)
}

fn time(text: &str) -> Option<u64> {
    let mut parts = text.split(':').map(|part| number(part, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    (hour < 24 && minute < 60 && second <= 60 && parts.next().is_none())
        .then_some(hour * 3600 + minute * 60 + second)
}

/// Counts years from March, so that a leap day is a year's last; after Hinnant, *chrono-compatible date algorithms*.
fn at(year: u64, month: u64, day: u64, time: u64) -> Option<u64> {
    if year < 1970 || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    Some((days - 719_468) * DAY + time)
}

/// Year, month and day of the month, by days since 1970; the inverse of [`at`].
fn civil(days: u64) -> (u64, usize, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    (year, usize::try_from(month).expect("a year has twelve months"), day)
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
            assert_eq!(parse(&format(day * DAY + 4711)), Some(day * DAY + 4711));
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
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(b"\xFF\xFE"), None);
    }
}
