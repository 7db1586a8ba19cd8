//! Which texts are felts, and how felts are written.

use super::*;
use proptest::prelude::*;

fn canonical(text: &str) -> Option<String> {
    let mut out = Vec::new();
    Felt::parse(text)?.write(&mut out);
    String::from_utf8(out).ok()
}

#[test]
fn a_felt_is_prefixed_hexadecimal_below_the_prime() {
    let prime = "0x800000000000011000000000000000000000000000000000000000000000001";
    let below = "0x800000000000011000000000000000000000000000000000000000000000000";
    let padded = format!("0x0{}", &below[2..]);
    let too_long = format!("0x00{}", &below[2..]);
    for (text, expected) in [
        ("0x0", Some("0x0")),
        ("0x00", Some("0x0")),
        ("0xAbC", Some("0xabc")),
        ("0x0000000000000001", Some("0x1")),
        (below, Some(below)),
        (&padded, Some(below)),
        (prime, None),
        (&too_long, None),
        ("0x", None),
        ("", None),
        ("12", None),
        ("0X12", None),
        ("0x0x12", None),
        ("0x-1", None),
        ("0x+1", None),
        ("0x1 ", None),
        (" 0x1", None),
        ("0xg", None),
        ("0x１", None),
    ] {
        assert_eq!(canonical(text).as_deref(), expected, "{text:?}");
    }
}

#[test]
fn a_felt_is_shown_as_it_is_written() {
    let felt = Felt::from(0xab_u64);
    assert_eq!(format!("{felt} {felt:?} {felt:>6}"), "0xab 0xab   0xab");
}

#[test]
fn limbs_come_back() {
    assert_eq!(
        Felt::from_limbs([1, 2, 3, 4]).unwrap().limbs(),
        [1, 2, 3, 4]
    );
}

#[test]
fn a_number_is_bounded_by_its_bits() {
    for (text, as_u64, as_u128) in [
        ("0x0", Some(0), Some(0)),
        (
            "0xffffffffffffffff",
            Some(u64::MAX),
            Some(u128::from(u64::MAX)),
        ),
        ("0x10000000000000000", None, Some(1 << 64)),
        ("0xffffffffffffffffffffffffffffffff", None, Some(u128::MAX)),
        ("0x100000000000000000000000000000000", None, None),
    ] {
        let felt = Felt::parse(text).unwrap();
        assert_eq!((felt.to_u64(), felt.to_u128()), (as_u64, as_u128), "{text}");
        assert_eq!(as_u128.map(Felt::from).unwrap_or(felt), felt, "{text}");
    }
}

#[test]
fn an_address_is_positive_and_below_the_bound() {
    let bound = "0x7ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff00";
    let last = "0x7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeff";
    for (text, ok) in [("0x0", false), ("0x1", true), (last, true), (bound, false)] {
        assert_eq!(Felt::parse(text).unwrap().is_address(), ok, "{text}");
    }
}

proptest! {
    #[test]
    fn bytes_and_numbers_come_back(bytes: [u8; 32], number: u128, short in "[ -~]{1,31}") {
        if let Some(felt) = Felt::from_bytes_be(&bytes) {
            prop_assert_eq!(felt.to_bytes_be(), bytes);
            prop_assert_eq!(Felt::parse(&felt.to_string()), Some(felt));
        }
        prop_assert_eq!(Felt::from(number).to_u128(), Some(number));
        let felt = Felt::from_short_string(&short);
        prop_assert_eq!(felt.and_then(|felt| felt.to_short_string()), Some(short));
    }
}

#[test]
fn any_other_byte_spoils_the_digits() {
    let digits = "0123456789abcdefABCDEF".repeat(3);
    for length in 1..=64 {
        for at in 0..length {
            for byte in 0..=127_u8 {
                let mut text = format!("0x{}", &digits[..length]).into_bytes();
                text[2 + at] = byte;
                let is_read = parse_hex(str::from_utf8(&text).unwrap()).is_some();
                assert_eq!(
                    is_read,
                    byte.is_ascii_hexdigit(),
                    "{byte} at {at} of {length}"
                );
            }
        }
    }
    assert_eq!(
        parse_hex("0xé0123456789abcdef"),
        None,
        "more bytes than letters"
    );
}

#[test]
fn leading_zeros_change_nothing() {
    for length in 1..=64 {
        let text = format!("0x{:0>length$}", "7");
        assert_eq!(parse_hex(&text), Some([0, 0, 0, 7]), "{text}");
    }
}

proptest! {
    #[test]
    fn digits_match_the_formatter_s(high: u128, low: u128, shift in 0..128) {
        for [high, low] in [[high >> shift, low], [0, high >> shift]] {
            let halves = [high >> 64, high, low >> 64, low].map(|limb| limb as u64);
            let mut text = Vec::new();
            write_hex(&halves, &mut text);
            let expected = match high {
                0 => format!("{low:#x}"),
                _ => format!("{high:#x}{low:032x}"),
            };
            prop_assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_written_parses_to_the_same_value(limbs: [u64; 4]) {
        let mut text = Vec::new();
        write_hex(&limbs, &mut text);
        let text = String::from_utf8(text).unwrap();
        prop_assert_eq!(parse_hex(&text), Some(limbs));
        prop_assert!(text == "0x0" || !text.starts_with("0x0"), "{}", text);
        prop_assert_eq!(parse_hex(&text.to_uppercase().replacen("0X", "0x", 1)), Some(limbs));
    }
}
