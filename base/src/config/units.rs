//! Durations, sizes and amounts as the configuration writes them: a number and its unit.
//!
//! In: the text of a value (`"8s"`, `"64 KiB"`, `"10 STRK"`). Out: a [`Duration`], a [`Size`] or an
//! [`Amount`], and the same text back. Bounds are in the rows of the keys.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// Milliseconds in each unit of time, largest first.
const TIMES: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Bytes in each unit of size, largest first.
const SIZES: [(&str, u64); 4] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

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

    /// An amount in fri.
    pub const fn from_fri(fri: u128) -> Self {
        Self(fri)
    }

    /// The amount in fri.
    pub const fn fri(self) -> u128 {
        self.0
    }

    /// Formats fri as STRK with all decimals, for people.
    pub fn in_strk(fri: u128) -> String {
        let (whole, part) = (fri / Self::STRK, fri % Self::STRK);
        let text = format!("{whole}.{part:018}");
        format!("{} STRK", text.trim_end_matches('0').trim_end_matches('.'))
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
        digits(whole)?
            .checked_mul(Self::STRK)?
            .checked_add(part)
            .map(Self)
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

fn digits(text: &str) -> Option<u128> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
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

/// Shows how long something took, each unit by itself, in whole milliseconds: `1m 3s 217ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Elapsed(pub Duration);

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_millis();
        if rest == 0 {
            return f.write_str("0s");
        }
        let mut separator = "";
        for (unit, factor) in TIMES {
            let count = rest / u128::from(factor);
            rest %= u128::from(factor);
            if count > 0 {
                write!(f, "{separator}{count}{unit}")?;
                separator = " ";
            }
        }
        Ok(())
    }
}

/// Reads `8s`, with or without a space before the unit.
pub fn duration(text: &str) -> Option<Duration> {
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
    fn an_elapsed_time_shows_each_unit_that_counts() {
        for (millis, text) in [
            (0, "0s"),
            (217, "217ms"),
            (63_217, "1m 3s 217ms"),
            (3_600_000, "1h"),
            (90_061_001, "1d 1h 1m 1s 1ms"),
        ] {
            assert_eq!(Elapsed(Duration::from_millis(millis)).to_string(), text);
        }
        assert_eq!(Elapsed(Duration::from_nanos(999_999)).to_string(), "0s");
        assert_eq!(
            Elapsed(Duration::MAX).to_string(),
            "213503982334601d 7h 15s 999ms"
        );
    }
}
