//! Whether a certificate may be used: one that an authority issued, that another instance shares,
//! or that an earlier run left.
//!
//! In: facts of the certificate and of the one in use, the domains, and the time in seconds since
//! 1970. Out: nothing, or the first reason against it. That its key belongs to it is no fact here:
//! without its key there is no certificate to judge.

use alloc::string::String;
use core::fmt;

/// 16 KiB: a chain is sent in each handshake, and one of four large certificates takes 8 KiB.
const LONGEST_CHAIN: usize = 16 << 10;

/// The time within which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: u64,
    /// The last second.
    pub not_after: u64,
}

impl Validity {
    /// Its length in seconds.
    #[must_use]
    pub const fn lifetime(self) -> u64 {
        self.not_after.saturating_sub(self.not_before)
    }
}

/// A certificate to judge.
#[derive(Clone, Copy, Debug)]
pub struct Offered<'a> {
    /// The DNS names that it is for.
    pub names: &'a [String],
    /// When it is valid.
    pub validity: Validity,
    /// The size of its chain in DER.
    pub chain_bytes: usize,
}

/// Why a certificate may not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It does not cover this domain.
    Name(String),
    /// It is not valid yet.
    NotYetValid,
    /// It has expired.
    Expired,
    /// Its chain is too large for handshakes.
    LargeChain,
    /// It ends before the one in use, which is not due.
    EndsEarlier,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(domain) => write!(f, "it is not for {domain}"),
            Self::NotYetValid => f.write_str("it is not valid yet: compare the clocks"),
            Self::Expired => f.write_str("it has expired: compare the clocks"),
            Self::LargeChain => write!(f, "its chain is larger than {LONGEST_CHAIN} bytes"),
            Self::EndsEarlier => f.write_str("it ends before the one in use, which is not due"),
        }
    }
}

/// Judges a certificate by itself.
///
/// # Errors
/// Returns the first reason against it.
pub fn judge(offered: &Offered<'_>, domains: &[String], now: u64) -> Result<(), Unfit> {
    let missing = domains
        .iter()
        .find(|domain| !offered.names.iter().any(|name| covers(name, domain)));
    if let Some(domain) = missing {
        return Err(Unfit::Name(domain.clone()));
    }
    if now < offered.validity.not_before {
        return Err(Unfit::NotYetValid);
    }
    if now >= offered.validity.not_after {
        return Err(Unfit::Expired);
    }
    if offered.chain_bytes > LONGEST_CHAIN {
        return Err(Unfit::LargeChain);
    }
    Ok(())
}

/// Judges whether a certificate that is good by itself may replace one that is good and not due.
///
/// # Errors
/// It ends earlier.
pub fn judge_against(offered: Validity, held: Validity) -> Result<(), Unfit> {
    if offered.not_after > held.not_after {
        Ok(())
    } else {
        Err(Unfit::EndsEarlier)
    }
}

/// Whether a certificate for `name` is one for `domain`: RFC 6125, section 6.4. A wildcard stands
/// for one whole label.
fn covers(name: &str, domain: &str) -> bool {
    if name.eq_ignore_ascii_case(domain) {
        return true;
    }
    match (name.strip_prefix("*."), domain.split_once('.')) {
        (Some(parent), Some((_, rest))) => parent.eq_ignore_ascii_case(rest),
        _ => false,
    }
}

/// How an instance and its fleet exchange a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Not at all.
    Nothing,
    /// The instance takes the fleet's certificate.
    Take,
    /// The instance shares its own certificate.
    Share,
}

/// The certificate of an instance, good by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// When it is valid.
    pub validity: Validity,
    /// Whether it is due for renewal.
    pub is_due: bool,
}

/// Decides between certificates that are good by themselves; `None` stands for one that is missing
/// or unfit. The newer one wins, unless it would end before one that is not due: the instance then
/// keeps its own, and leaves the newer one to the others.
#[must_use]
pub fn exchange(ours: Option<Own>, theirs: Option<Validity>) -> Exchange {
    match (ours, theirs) {
        (None, None) => Exchange::Nothing,
        (None, Some(_)) => Exchange::Take,
        (Some(_), None) => Exchange::Share,
        (Some(own), Some(theirs)) => {
            let ours = own.validity;
            if theirs.not_before < ours.not_before {
                Exchange::Share
            } else if theirs.not_before == ours.not_before {
                Exchange::Nothing
            } else if own.is_due || judge_against(theirs, ours).is_ok() {
                Exchange::Take
            } else {
                Exchange::Nothing
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;
    const DAY: u64 = 86_400;

    fn lasting(begin: u64, end: u64) -> Validity {
        Validity {
            not_before: begin,
            not_after: end,
        }
    }

    fn good(names: &[String]) -> Offered<'_> {
        Offered {
            names,
            validity: lasting(NOW, NOW + DAY),
            chain_bytes: 4_000,
        }
    }

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_certificate_has_all_domains() {
        for (names, domains, missing) in [
            (&["a.test"][..], &["a.test"][..], None),
            (&["A.TEST", "b.test"], &["b.test", "a.test"], None),
            (&["a.test"], &["a.test", "b.test"], Some("b.test")),
            (&[], &["a.test"], Some("a.test")),
            (&["other.example"], &["a.test"], Some("a.test")),
            (&["*.a.test"], &["x.a.test"], None),
            (&["*.a.test"], &["a.test"], Some("a.test")),
            (&["*.a.test"], &["x.y.a.test"], Some("x.y.a.test")),
            (&["*"], &["test"], Some("test")),
        ] {
            let names = strings(names);
            let expected = missing.map_or(Ok(()), |one| Err(Unfit::Name(one.to_owned())));
            let found = judge(&good(&names), &strings(domains), NOW);
            assert_eq!(found, expected, "{names:?} for {domains:?}");
        }
    }

    #[test]
    fn a_certificate_is_valid_now() {
        let names = strings(&["a.test"]);
        for (begin, end, expected) in [
            (NOW, NOW + 1, Ok(())),
            (NOW + 1, NOW + DAY, Err(Unfit::NotYetValid)),
            (NOW - DAY, NOW, Err(Unfit::Expired)),
            (NOW + DAY, NOW - DAY, Err(Unfit::NotYetValid)),
            (0, u64::MAX, Ok(())),
        ] {
            let offered = Offered {
                validity: lasting(begin, end),
                ..good(&names)
            };
            assert_eq!(judge(&offered, &names, NOW), expected, "{begin} to {end}");
        }
    }

    #[test]
    fn a_chain_fits_into_a_handshake() {
        let names = strings(&["a.test"]);
        for (chain_bytes, expected) in [
            (LONGEST_CHAIN, Ok(())),
            (LONGEST_CHAIN + 1, Err(Unfit::LargeChain)),
        ] {
            let offered = Offered {
                chain_bytes,
                ..good(&names)
            };
            assert_eq!(judge(&offered, &names, NOW), expected, "{chain_bytes}");
        }
    }

    #[test]
    fn the_newest_good_certificate_of_a_fleet_wins() {
        let older = lasting(NOW - 60 * DAY, NOW + 30 * DAY);
        let newer = lasting(NOW - DAY, NOW + 89 * DAY);
        let shorter = lasting(NOW - DAY, NOW + 5 * DAY);
        let own = |validity| {
            Some(Own {
                validity,
                is_due: false,
            })
        };
        let due = Some(Own {
            validity: older,
            is_due: true,
        });
        for (ours, theirs, expected) in [
            (None, None, Exchange::Nothing),
            (None, Some(older), Exchange::Take),
            (own(older), None, Exchange::Share),
            (own(older), Some(newer), Exchange::Take),
            (own(newer), Some(older), Exchange::Share),
            (own(newer), Some(newer), Exchange::Nothing),
            (own(older), Some(shorter), Exchange::Nothing),
            (due, Some(shorter), Exchange::Take),
            (own(shorter), Some(older), Exchange::Share),
        ] {
            assert_eq!(exchange(ours, theirs), expected, "{ours:?} {theirs:?}");
        }
    }
}
