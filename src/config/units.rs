//! Durations, sizes and amounts as the configuration writes them: a number and its unit.
//!
//! In: the text of a value (`"8s"`, `"64 KiB"`, `"10 STRK"`). Out: a [`Duration`], a [`Size`] or an
//! [`Amount`], and the same text back. Bounds are in the rows of the keys.

use std::fmt;
use std::time::Duration;

/// Milliseconds in each unit of time, largest first.
const TIMES: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Bytes in each unit of size, largest first.
const SIZES: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A number of bytes, shown with the largest unit that holds it exactly (`64 KiB`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

impl Size {
    /// A size in bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A size in KiB.
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib << 10)
    }

    /// A size in MiB.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// The bytes, for use as a length in memory.
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// Reads `64 KiB`, with or without the space.
    pub(super) fn parse(text: &str) -> Option<Self> {
        scaled(text, &SIZES).map(Self)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = largest_exact(self.0, &SIZES);
        write!(f, "{count} {unit}")
    }
}

/// An amount of the native token in fri (10^-18 STRK), shown in STRK if that is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(u128);

impl Amount {
    const STRK: u128 = 1_000_000_000_000_000_000;

    /// The amount in fri.
    pub const fn fri(self) -> u128 {
        self.0
    }

    /// Reads `10 STRK`, `0.5 STRK` or `1000 fri`, with or without the space.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Some(fri) = text.strip_suffix("fri") {
            return digits(fri.trim_end_matches(' ')).map(Self);
        }
        let strk = text.strip_suffix("STRK")?.trim_end_matches(' ');
        let (whole, part) = strk.split_once('.').unwrap_or((strk, "0"));
        let scale = 18_u32.checked_sub(u32::try_from(part.len()).ok()?)?;
        let part = digits(part)?.checked_mul(10_u128.pow(scale))?;
        digits(whole)?.checked_mul(Self::STRK)?.checked_add(part).map(Self)
    }
}

fn digits(text: &str) -> Option<u128> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            fri if fri != 0 && fri.is_multiple_of(Self::STRK) => {
                write!(f, "{} STRK", fri / Self::STRK)
            }
            fri => write!(f, "{fri} fri"),
        }
    }
}

/// Shows a duration as the configuration writes it: `8s`, `500ms`, `1h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Readable(pub Duration);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u64::try_from(self.0.as_millis()) {
            Ok(0) if self.0.is_zero() => f.write_str("0s"),
            Ok(millis) if Duration::from_millis(millis) == self.0 => {
                let (count, unit) = largest_exact(millis, &TIMES);
                write!(f, "{count}{unit}")
            }
            // finer than a millisecond or too long: not from a configuration
            _ => write!(f, "{:?}", self.0),
        }
    }
}

/// Reads `8s`, with or without a space before the unit.
pub(super) fn duration(text: &str) -> Option<Duration> {
    scaled(text, &TIMES).map(Duration::from_millis)
}

/// The integer before the unit, times the factor of the unit.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(digits);
    let unit = unit.trim_start_matches(' ');
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    count.parse::<u64>().ok()?.checked_mul(*factor)
}

/// The largest unit that leaves no remainder; zero is shown in the smallest.
fn largest_exact<'u>(amount: u64, units: &[(&'u str, u64)]) -> (u64, &'u str) {
    let exact = |(_, factor): &&(&str, u64)| amount != 0 && amount.is_multiple_of(*factor);
    let smallest = units.len() - 1;
    let (unit, factor) = units.iter().find(exact).unwrap_or(&units[smallest]);
    (amount / factor, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_in_strk_or_fri() {
        for (text, fri) in [
            ("10 STRK", Some(10_000_000_000_000_000_000)),
            ("0.5STRK", Some(500_000_000_000_000_000)),
            ("0.000000000000000001 STRK", Some(1)),
            ("7 fri", Some(7)),
            ("0.0000000000000000001 STRK", None),
            ("340282366920938463463374607431768211456 fri", None),
            ("340282366920938463464 STRK", None),
            ("7", None),
            ("-1 fri", None),
            ("+1 fri", None),
            (".5 STRK", None),
            ("5. STRK", None),
            ("fri", None),
        ] {
            assert_eq!(Amount::parse(text).map(Amount::fri), fri, "{text}");
        }
        assert_eq!(Amount::parse("10 STRK").unwrap().to_string(), "10 STRK");
        assert_eq!(Amount::parse("0.5 STRK").unwrap().to_string(), "500000000000000000 fri");
    }

    #[test]
    fn a_duration_is_shown_as_it_was_read() {
        for (text, millis, shown) in [
            ("500ms", 500, "500ms"),
            ("8s", 8_000, "8s"),
            ("8 s", 8_000, "8s"),
            ("90s", 90_000, "90s"),
            ("120s", 120_000, "2m"),
            ("2m", 120_000, "2m"),
            ("1h", 3_600_000, "1h"),
            ("0s", 0, "0s"),
            ("0h", 0, "0s"),
        ] {
            let read = duration(text);
            assert_eq!(read, Some(Duration::from_millis(millis)), "{text} read");
            assert_eq!(read.map(|d| Readable(d).to_string()).as_deref(), Some(shown), "{text}");
        }
    }

    #[test]
    fn a_size_is_shown_as_it_was_read() {
        for (text, bytes, shown) in [
            ("64 KiB", 65_536, "64 KiB"),
            ("64KiB", 65_536, "64 KiB"),
            ("4 MiB", 4 << 20, "4 MiB"),
            ("1 GiB", 1 << 30, "1 GiB"),
            ("100 B", 100, "100 B"),
            ("1024 B", 1_024, "1 KiB"),
            ("0 MiB", 0, "0 B"),
        ] {
            assert_eq!(Size::parse(text), Some(Size(bytes)), "{text} read");
            assert_eq!(Size(bytes).to_string(), shown, "{text} shown");
        }
    }

    #[test]
    fn a_number_without_a_known_unit_is_refused() {
        for text in [
            "",
            "8",
            "s",
            "-8s",
            "+8s",
            "1.5s",
            "8 sec",
            "8S",
            " 8s",
            "8s ",
            "8_0s",
            "1h30m",
            "8\ts",
            "18446744073709551616s",
            "18446744073709551615h",
        ] {
            assert_eq!(duration(text), None, "{text:?} is not a duration");
        }
        for text in ["", "64", "KiB", "64 KB", "64 kib", "1.5 MiB", "64 KiB ", "99999999999 GiB"] {
            assert_eq!(Size::parse(text), None, "{text:?} is not a size");
        }
    }

    #[test]
    fn microseconds_are_shown_too() {
        assert_eq!(Readable(Duration::from_micros(1_500)).to_string(), "1.5ms");
        assert_eq!(Readable(Duration::from_nanos(1)).to_string(), "1ns");
    }
}
