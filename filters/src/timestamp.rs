//! Points in time as text: seconds since 1970 in RFC 3339, always in UTC and with four digits of
//! the year.

use alloc::format;
use alloc::string::String;
use time::OffsetDateTime;

/// The last second of the year 9999, where RFC 3339 ends, in seconds since 1970.
pub const LAST_SECOND: u64 = 253_402_300_799;

/// Formats seconds since 1970, up to [`LAST_SECOND`], as in RFC 3339.
pub(crate) fn rfc3339(seconds: u64) -> String {
    let seconds = i64::try_from(seconds.min(LAST_SECOND)).unwrap_or_default();
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        time.year(),
        u8::from(time.month()),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}
