//! The STARK curve and its hashes: the only file that names the libraries which compute them.
//!
//! In and out are our [`Felt`]s; the libraries' own parsers accept more texts, so they are not
//! used. Nothing here runs in constant time: signature timings with a precision of microseconds
//! leak the key, so only few callers may trigger one.

use crate::felt::Felt;
use alloc::vec::Vec;
use starknet_core::crypto::ecdsa_sign;
use starknet_core::utils::{get_contract_address, get_selector_from_name};
use starknet_crypto::{get_public_key, poseidon_hash_many};
use starknet_types_core::curve::{AffinePoint, ProjectivePoint};
use starknet_types_core::felt::{Felt as Element, NonZeroFelt};

/// The order of the curve's group (Starknet specification, "STARK curve"): private keys and both
/// numbers of a signature are below it.
const ORDER: [u64; 4] = [
    0x0800_0000_0000_0010,
    u64::MAX,
    0xb781_126d_cae7_b232,
    0x1e66_a241_adc6_4d2f,
];
/// (p - 1) / 2, where p is the prime of the field.
const HALF: [u64; 4] = [0x0400_0000_0000_0008, 0x8000_0000_0000_0000, 0, 0];

fn element(felt: Felt) -> Element {
    Element::from_bytes_be(&felt.to_bytes_be())
}

fn felt(element: Element) -> Felt {
    Felt::from_bytes_be(&element.to_bytes_be())
        .expect("an element of the library is below the prime")
}

/// The selector of an entrypoint, computed from its ASCII name.
pub fn selector(name: &str) -> Felt {
    // no entrypoint has a name that is not ASCII, and none has the selector zero
    get_selector_from_name(name).map(felt).unwrap_or(Felt::ZERO)
}

/// The Poseidon hash of a list.
pub(crate) fn poseidon(felts: &[Felt]) -> Felt {
    let elements: Vec<_> = felts.iter().copied().map(element).collect();
    felt(poseidon_hash_many(&elements))
}

/// The address of a contract that `deployer` deploys; accounts have the deployer zero.
pub fn contract_address(deployer: Felt, salt: Felt, class: Felt, constructor: &[Felt]) -> Felt {
    let constructor: Vec<_> = constructor.iter().copied().map(element).collect();
    felt(get_contract_address(
        element(salt),
        element(class),
        &constructor,
        element(deployer),
    ))
}

/// The address of the account of `class` that `public_key` controls: the key is the salt and the
/// only constructor argument.
pub fn account_address(public_key: Felt, class: Felt) -> Felt {
    contract_address(Felt::ZERO, public_key, class, &[public_key])
}

/// Whether a key is a public key: not zero, and the abscissa of a point of the curve. Euler's
/// criterion decides that, since a square root takes more than ten times as long.
pub fn is_public_key(key: Felt) -> bool {
    let generator = AffinePoint::generator();
    #[expect(clippy::arithmetic_side_effects, reason = "a field has no overflow")]
    let without_beta = |x: Element| x * x * x + x;
    #[expect(clippy::arithmetic_side_effects, reason = "a field has no overflow")]
    let square = without_beta(element(key)) + generator.y().square() - without_beta(generator.x());
    // no point of the curve has the ordinate zero: the order of its group is odd
    let is_square = |half| square.pow_felt(&element(half)) == Element::ONE;
    key != Felt::ZERO && Felt::from_limbs(HALF).is_some_and(is_square)
}

/// One of the two points of this abscissa; a signature verifies with either.
fn point(x: Felt) -> Option<ProjectivePoint> {
    AffinePoint::new_from_x(&element(x), false)?.try_into().ok()
}

/// Whether `k` can be a private key or a number of a signature: not zero, below the order.
pub(crate) fn is_scalar(k: Felt) -> bool {
    k != Felt::ZERO && k.limbs() < ORDER
}

/// The public key of a private one.
pub(crate) fn public_key(private_key: Felt) -> Felt {
    felt(get_public_key(&element(private_key)))
}

/// Signs a hash deterministically (RFC 6979).
pub(crate) fn sign(private_key: Felt, hash: Felt) -> [Felt; 2] {
    ecdsa_sign(&element(private_key), &element(hash)).map_or(
        // one hash in 2^54 is too large for the library: no account accepts this signature
        [Felt::ZERO; 2],
        |signature| [felt(signature.r), felt(signature.s)],
    )
}

/// Whether `[r, s]` signs `hash` for `public_key` (ECDSA with a public key of unknown sign).
/// Written out because the library panics on `r = ±hash / private key`, which any user can choose.
pub(crate) fn verify(public_key: Felt, hash: Felt, [r, s]: [Felt; 2]) -> bool {
    if !is_scalar(r) || !is_scalar(s) {
        return false;
    }
    let Some(key) = point(public_key) else {
        return false;
    };
    let Ok(generator) = ProjectivePoint::try_from(AffinePoint::generator()) else {
        return false;
    };
    let Some(order) = Felt::from_limbs(ORDER).and_then(|n| NonZeroFelt::try_from(element(n)).ok())
    else {
        return false;
    };
    let Some(inverse) = element(s).mod_inverse(&order) else {
        return false;
    };
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a multiple of a point never overflows"
    )]
    let scaled = |point: &ProjectivePoint, by: Felt| point * element(by).mul_mod(&inverse, &order);
    let (of_hash, of_r) = (scaled(&generator, hash), scaled(&key, r));
    // the point at infinity has no abscissa
    let is_r = |sum: ProjectivePoint| sum.to_affine().is_ok_and(|sum| felt(sum.x()) == r);
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "points are added, and none overflows"
    )]
    let (sum, difference) = (&of_hash + &of_r, &of_hash - &of_r);
    is_r(sum) || is_r(difference)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(text: &str) -> Felt {
        Felt::parse(text).expect(text)
    }

    /// `felt` times `by`, modulo the curve's order.
    fn times(felt: Felt, by: Felt) -> Felt {
        let order = NonZeroFelt::try_from(element(Felt::from_limbs(ORDER).unwrap())).unwrap();
        super::felt(element(felt).mul_mod(&element(by), &order))
    }

    #[test]
    fn a_public_key_is_a_point_s_abscissa() {
        assert!(is_public_key(public_key(Felt::from(7_u64))));
        assert!(!is_public_key(Felt::ZERO), "zero is no key, point or not");
        let found: Vec<u64> = (0..12).filter(|x| !is_public_key(Felt::from(*x))).collect();
        assert_eq!(found, [0, 5, 9], "by Euler's criterion on x^3 + x + b");
    }

    proptest! {
        #[test]
        fn a_public_key_has_a_square_root(limbs in any::<[u64; 4]>()) {
            let key = Felt::from_limbs(limbs.map(|limb| limb >> 5)).unwrap_or(Felt::ZERO);
            prop_assert_eq!(is_public_key(key), key != Felt::ZERO && point(key).is_some());
        }
    }

    #[test]
    fn scalars_are_positive_and_below_the_order() {
        let order = Felt::from_limbs(ORDER).unwrap();
        let one_less = Felt::from_limbs([ORDER[0], ORDER[1], ORDER[2], ORDER[3] - 1]).unwrap();
        let table = [
            (Felt::ZERO, false),
            (Felt::from(1_u64), true),
            (one_less, true),
        ];
        for (k, ok) in table.into_iter().chain([(order, false)]) {
            assert_eq!(is_scalar(k), ok, "{k}");
        }
    }

    /// For such a signature, the sum of the two points is the point at infinity.
    #[test]
    fn a_signature_made_to_cancel_is_refused() {
        let (key, hash) = (Felt::from(3_u64), hex("0x123456789abcdef"));
        let order = Felt::from_limbs(ORDER).unwrap();
        let third = super::felt(
            element(key)
                .mod_inverse(&NonZeroFelt::try_from(element(order)).unwrap())
                .unwrap(),
        );
        let r = times(hash, third);
        let minus = times(
            r,
            Felt::from_limbs([ORDER[0], ORDER[1], ORDER[2], ORDER[3] - 1]).unwrap(),
        );
        for r in [r, minus] {
            assert!(
                !verify(public_key(key), hash, [r, Felt::from(1_u64)]),
                "{r}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn what_is_signed_verifies_and_nothing_else_does(key: u128, hash: u128, other: u128) {
            let (key, hash) = (Felt::from(key.max(1)), Felt::from(hash));
            let [r, s] = sign(key, hash);
            let public_key = public_key(key);
            prop_assert!(verify(public_key, hash, [r, s]));
            let negated = times(s, Felt::from_limbs(
                [ORDER[0], ORDER[1], ORDER[2], ORDER[3] - 1]).unwrap());
            prop_assert!(verify(public_key, hash, [r, negated]), "the other signature of the pair");
            let other = Felt::from(other);
            if other != hash {
                prop_assert!(!verify(public_key, other, [r, s]));
            }
            prop_assert!(!verify(public_key, hash, [s, r]));
            prop_assert!(!verify(public_key, hash, [r, Felt::ZERO]));
        }
    }
}
