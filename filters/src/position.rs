//! A position of the chain, as `X-Chain-Position` carries it: `EPOCH.HEIGHT`.
//!
//! An epoch ends whenever blocks may be gone or replaced. Its number only grows: it is the time
//! when the epoch began, in milliseconds since 1970, or the number before plus one. Positions are
//! ordered by epoch, then by height.

use core::str::FromStr;
use http::HeaderMap;
use http::header::HeaderName;

/// The field with a position: in a request, the earliest one to answer it from; in a response, the
/// one reached.
pub static X_CHAIN_POSITION: HeaderName = HeaderName::from_static("x-chain-position");

/// A position of the chain: an epoch, and the newest block known in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainPosition {
    /// The chain's epoch.
    pub epoch: u64,
    /// The newest block of that epoch.
    pub height: u64,
}

/// The field appears twice, or is not `EPOCH.HEIGHT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedPosition;

impl ChainPosition {
    /// The position that a request must be answered from, if it names one.
    ///
    /// # Errors
    /// Returns an error if it is malformed: a client that relies on it must learn that.
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, MalformedPosition> {
        let mut values = headers.get_all(&X_CHAIN_POSITION).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        let text = value.to_str().map_err(|_| MalformedPosition)?;
        if values.next().is_some() {
            return Err(MalformedPosition);
        }
        text.parse().map(Some)
    }
}

impl FromStr for ChainPosition {
    type Err = MalformedPosition;

    fn from_str(text: &str) -> Result<Self, MalformedPosition> {
        let number = |text: &str| {
            let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse()
                .ok()
                .filter(|_| is_decimal)
                .ok_or(MalformedPosition)
        };
        let (epoch, height) = text.split_once('.').ok_or(MalformedPosition)?;
        Ok(Self {
            epoch: number(epoch)?,
            height: number(height)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_two_decimal_numbers() {
        for (text, expected) in [
            ("1763880000123.42", Some((1_763_880_000_123, 42))),
            ("0.0", Some((0, 0))),
            (
                "18446744073709551615.18446744073709551615",
                Some((u64::MAX, u64::MAX)),
            ),
            ("18446744073709551616.0", None),
            ("", None),
            (".", None),
            ("1", None),
            ("1.", None),
            (".1", None),
            ("1.2.3", None),
            ("+1.2", None),
            ("-1.2", None),
            ("1.2 ", None),
            ("0x1.2", None),
            ("1,2", None),
        ] {
            let parsed = text.parse::<ChainPosition>().ok();
            assert_eq!(
                parsed.map(|own| (own.epoch, own.height)),
                expected,
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_later_epoch_is_later_at_any_height() {
        let at = |epoch, height| ChainPosition { epoch, height };
        assert!(at(2, 0) > at(1, 9) && at(1, 9) > at(1, 8));
    }

    #[test]
    fn two_fields_are_malformed() {
        let mut headers = HeaderMap::new();
        assert_eq!(ChainPosition::of(&headers), Ok(None));
        headers.append(&X_CHAIN_POSITION, http::HeaderValue::from_static("1.2"));
        let expected = ChainPosition {
            epoch: 1,
            height: 2,
        };
        assert_eq!(ChainPosition::of(&headers), Ok(Some(expected)));
        headers.append(&X_CHAIN_POSITION, http::HeaderValue::from_static("1.2"));
        assert_eq!(ChainPosition::of(&headers), Err(MalformedPosition));
    }
}
