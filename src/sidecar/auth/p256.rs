//! Points of P-256, unpacked (SEC 1, 2.3.4): what verifies signatures takes no compressed ones.
//!
//! Only public values pass through here, so nothing need take the same time.

use k256::elliptic_curve::bigint::modular::runtime_mod::{DynResidue, DynResidueParams};
use k256::elliptic_curve::bigint::{Encoding as _, U256};

/// Bytes of a compressed point: the parity of `y`, and `x`.
pub(super) const COMPRESSED: usize = 33;
const UNCOMPRESSED: usize = 65;

/// A point that is not compressed: 4, `x`, `y`.
pub(super) type Point = [u8; UNCOMPRESSED];

/// The field's prime, and the curve's `b`; its `a` is -3. FIPS 186, D.1.2.3.
const P: U256 =
    U256::from_be_hex("ffffffff00000001000000000000000000000000ffffffffffffffffffffffff");
const B: U256 =
    U256::from_be_hex("5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b");
/// (P + 1) / 4: this power of a square is its root, because P is 3 modulo 4.
const ROOT: U256 =
    U256::from_be_hex("3fffffffc0000000400000000000000000000000400000000000000000000000");

/// Reads a point of the curve, compressed or not.
pub(super) fn point(bytes: &[u8]) -> Option<Point> {
    let (tag, rest) = bytes.split_first()?;
    let x = U256::from_be_bytes(*rest.first_chunk()?);
    let square = right_side(x)?;
    let y = match (tag, rest.len()) {
        (2 | 3, 32) => {
            let y = square.pow(&ROOT);
            let is_odd = y.retrieve().to_be_bytes()[31] & 1 == 1;
            if is_odd == (*tag == 3) { y } else { y.neg() }
        }
        (4, 64) => element(U256::from_be_slice(&rest[32..]))?,
        _ => return None,
    };
    (y.square() == square).then(|| {
        let mut point = [4; UNCOMPRESSED];
        point[1..33].copy_from_slice(&x.to_be_bytes());
        point[33..].copy_from_slice(&y.retrieve().to_be_bytes());
        point
    })
}

/// `x³ - 3x + b`.
fn right_side(x: U256) -> Option<DynResidue<{ U256::LIMBS }>> {
    let x = element(x)?;
    let three = element(U256::from_u8(3))?;
    Some(x * (x.square() - three) + element(B)?)
}

/// An element of the field; `None` for a number that is none.
fn element(number: U256) -> Option<DynResidue<{ U256::LIMBS }>> {
    (number < P).then(|| DynResidue::new(&number, DynResidueParams::new(&P)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};

    #[test]
    fn a_compressed_point_is_the_one_it_was_made_of() {
        let random = SystemRandom::new();
        let mut parities = [false; 2];
        for _ in 0..32 {
            let scheme = &ECDSA_P256_SHA256_FIXED_SIGNING;
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(scheme, &random).expect("a key");
            let key = EcdsaKeyPair::from_pkcs8(scheme, pkcs8.as_ref(), &random).expect("a key");
            let full = key.public_key().as_ref();
            let odd = full[64] & 1;
            parities[usize::from(odd)] = true;
            let mut compressed = [2 + odd; COMPRESSED];
            compressed[1..].copy_from_slice(&full[1..33]);
            assert_eq!(point(&compressed).as_ref().map(<[u8; 65]>::as_slice), Some(full));
            assert_eq!(point(full).as_ref().map(<[u8; 65]>::as_slice), Some(full));
        }
        assert_eq!(parities, [true; 2], "both were seen");
    }

    #[test]
    fn what_is_not_on_the_curve_is_no_point() {
        let base = "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296";
        let y = "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5";
        let prime = P.to_be_bytes().map(|byte| format!("{byte:02x}")).concat();
        for (text, ok) in [
            (format!("03{base}"), true),
            (format!("02{base}"), true),
            (format!("04{base}{y}"), true),
            (format!("04{y}{base}"), false),
            (format!("04{base}{base}"), false),
            (format!("05{base}"), false),
            (format!("04{base}"), false),
            (format!("02{base}{y}"), false),
            (format!("06{base}{y}"), false),
            // x = 1 has no y
            (format!("02{}1", "0".repeat(63)), false),
            (format!("02{prime}"), false),
            (String::new(), false),
            ("00".to_owned(), false),
        ] {
            let digits = text.as_bytes().chunks(2);
            let byte = |pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
            let bytes: Vec<u8> = digits.map(byte).collect();
            assert_eq!(point(&bytes).is_some(), ok, "{text}");
        }
    }
}
