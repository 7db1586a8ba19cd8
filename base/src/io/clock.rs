//! The wall clock and its units: microseconds since 1970 UTC; durations in whole units; and dates.
//!
//! A clock may be wrong. Unsigned numbers treat an earlier time as 1970, a date always has a year
//! of four digits, and nothing here panics.

use http::HeaderValue;
use std::cell::RefCell;
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;

pub use portcullis_filters::timestamp::LAST_SECOND;

/// The first second of year 0.
const FIRST_SECOND: i64 = -62_167_219_200;

/// The days of a week and the months of a year as HTTP abbreviates them: RFC 9110, section 5.6.7.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// The current time in microseconds since 1970.
pub fn now_us() -> i64 {
    micros(since_1970(SystemTime::now()))
}

/// The time since 1970; zero before.
pub fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// The time that is this many microseconds after 1970, or the nearest one that has a date.
pub fn at_us(us: i64) -> SystemTime {
    let fraction = Duration::from_micros(us.rem_euclid(1_000_000).unsigned_abs());
    let second = at_second(us.div_euclid(1_000_000));
    second.checked_add(fraction).unwrap_or(second)
}

/// A duration in whole milliseconds, at most `u64::MAX`.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration in microseconds, at most `i64::MAX`.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// A time as seconds since 1970, negative before, and the nanoseconds of the second that follow.
pub fn unix(time: SystemTime) -> (i64, u32) {
    let whole = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => (whole(since), since.subsec_nanos()),
        Err(error) => match (whole(error.duration()), error.duration().subsec_nanos()) {
            (seconds, 0) => (-seconds, 0),
            (seconds, nanos) => ((-seconds).saturating_sub(1), 1_000_000_000 - nanos),
        },
    }
}

/// The time that is this many seconds after 1970, or the nearest one of a year of four digits.
pub fn at_second(seconds: i64) -> SystemTime {
    let seconds = seconds.clamp(FIRST_SECOND, LAST_SECOND.cast_signed());
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let time = match seconds {
        0.. => SystemTime::UNIX_EPOCH.checked_add(distance),
        _ => SystemTime::UNIX_EPOCH.checked_sub(distance),
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A date in RFC 3339, in whole seconds: `2026-11-24T17:46:49Z`.
pub fn rfc3339(time: SystemTime) -> String {
    rfc3339_of(unix(time).0)
}

/// Seconds since 1970 in RFC 3339.
pub fn rfc3339_of(seconds: i64) -> String {
    let at = date(seconds);
    let month = u8::from(at.month());
    let (hour, minute, second) = at.to_hms();
    format!(
        "{:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z",
        at.year(),
        at.day()
    )
}

/// A date in RFC 3339, in milliseconds: `2026-11-24T17:46:49.012Z`.
pub fn rfc3339_millis(time: SystemTime) -> String {
    let (seconds, nanos) = unix(time);
    let mut text = rfc3339_of(seconds);
    text.pop();
    format!("{text}.{:03}Z", nanos / 1_000_000)
}

/// Seconds since 1970 as HTTP and RSS write a date: `Tue, 24 Nov 2026 17:46:49 GMT`.
pub fn http_date(seconds: i64) -> String {
    let at = date(seconds);
    let weekday = usize::from(at.weekday().number_days_from_monday());
    let month = usize::from(u8::from(at.month()).saturating_sub(1));
    let name = |names: &[&'static str], index: usize| names.get(index).copied().unwrap_or_default();
    let (weekday, month) = (name(&DAYS, weekday), name(&MONTHS, month));
    let day = at.day();
    let year = at.year();
    let (hour, minute, second) = at.to_hms();
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// The current field value of `Date`, formatted once per second and thread.
pub fn date_field() -> HeaderValue {
    thread_local! {
        static WRITTEN: RefCell<Option<(i64, HeaderValue)>> = const { RefCell::new(None) };
    }
    let (now, _) = unix(SystemTime::now());
    WRITTEN.with_borrow_mut(|written| match written {
        Some((second, value)) if *second == now => value.clone(),
        _ => {
            let value =
                HeaderValue::try_from(http_date(now)).unwrap_or(HeaderValue::from_static(""));
            *written = Some((now, value.clone()));
            value
        }
    })
}

/// 2000-01-01: no clock that was ever set shows an earlier time.
const FIRST_RIGHT: i64 = 946_684_800;

/// The warning for a clock that shows this time, if it was never set.
pub fn warning(now: SystemTime) -> Option<String> {
    (unix(now).0 < FIRST_RIGHT).then(|| {
        format!(
            "the clock of this machine says {}: set it (timedatectl), as certificates, tokens, \
             cooldowns and budgets are judged by it",
            rfc3339(now)
        )
    })
}

/// The date of a second, or the nearest one of a year of four digits.
fn date(seconds: i64) -> OffsetDateTime {
    let seconds = seconds.clamp(FIRST_SECOND, LAST_SECOND.cast_signed());
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::format_description::well_known::Rfc3339;

    #[test]
    fn every_second_has_a_date() {
        for (seconds, rfc3339, http) in [
            (0, "1970-01-01T00:00:00Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
            (-1, "1969-12-31T23:59:59Z", "Wed, 31 Dec 1969 23:59:59 GMT"),
            (
                951_782_400,
                "2000-02-29T00:00:00Z",
                "Tue, 29 Feb 2000 00:00:00 GMT",
            ),
            (
                1_795_542_409,
                "2026-11-24T17:46:49Z",
                "Tue, 24 Nov 2026 17:46:49 GMT",
            ),
            (
                4_354_819_200,
                "2108-01-01T00:00:00Z",
                "Sun, 01 Jan 2108 00:00:00 GMT",
            ),
            (
                9_223_372_037,
                "2262-04-11T23:47:17Z",
                "Fri, 11 Apr 2262 23:47:17 GMT",
            ),
            (
                253_402_300_799,
                "9999-12-31T23:59:59Z",
                "Fri, 31 Dec 9999 23:59:59 GMT",
            ),
            (
                253_402_300_800,
                "9999-12-31T23:59:59Z",
                "Fri, 31 Dec 9999 23:59:59 GMT",
            ),
            (
                i64::MAX,
                "9999-12-31T23:59:59Z",
                "Fri, 31 Dec 9999 23:59:59 GMT",
            ),
            (
                -62_167_219_200,
                "0000-01-01T00:00:00Z",
                "Sat, 01 Jan 0000 00:00:00 GMT",
            ),
            (
                i64::MIN,
                "0000-01-01T00:00:00Z",
                "Sat, 01 Jan 0000 00:00:00 GMT",
            ),
        ] {
            assert_eq!(rfc3339_of(seconds), rfc3339, "{seconds}");
            assert_eq!(http_date(seconds), http, "{seconds}");
            let (at, _) = unix(at_second(seconds));
            assert_eq!(rfc3339_of(at), rfc3339, "{seconds}");
        }
    }

    #[test]
    fn dates_are_those_of_the_libraries_within_their_range() {
        for step in 0..200_000 {
            // some 14 days and a few seconds
            let seconds = step * 1_209_607;
            let time = at_second(seconds);
            let date = OffsetDateTime::from(time);
            assert_eq!(
                rfc3339(time),
                date.format(&Rfc3339).expect("it has four digits of year")
            );
            assert_eq!(http_date(seconds), httpdate::fmt_http_date(time));
        }
    }

    #[test]
    fn a_fraction_of_a_second_counts_forward_before_1970_too() {
        let millis = Duration::from_millis;
        for (time, seconds, text) in [
            (
                SystemTime::UNIX_EPOCH + millis(1),
                0,
                "1970-01-01T00:00:00.001Z",
            ),
            (
                SystemTime::UNIX_EPOCH - millis(1),
                -1,
                "1969-12-31T23:59:59.999Z",
            ),
            (
                SystemTime::UNIX_EPOCH - millis(1_000),
                -1,
                "1969-12-31T23:59:59.000Z",
            ),
            (
                SystemTime::UNIX_EPOCH - millis(1_001),
                -2,
                "1969-12-31T23:59:58.999Z",
            ),
        ] {
            assert_eq!(unix(time).0, seconds, "{text}");
            assert_eq!(rfc3339_millis(time), text);
        }
    }

    #[test]
    fn the_date_field_is_now() {
        let before = unix(SystemTime::now()).0;
        let field = date_field();
        let after = unix(SystemTime::now()).0;
        let found = (before..=after).any(|second| field == *http_date(second));
        assert!(found, "{field:?}");
    }
}
