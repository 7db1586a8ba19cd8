//! Public keys and their signatures: ES256 and RS256 (RFC 7518), ES256K (RFC 8812), EdDSA with
//! Ed25519 (RFC 8037).
//!
//! A key has one algorithm, so that a token cannot choose another one for it. ECDSA signatures are
//! `r` and `s`, 32 bytes each, never DER. A high `s` is accepted: AT Protocol has always accepted
//! it in tokens, though not in repositories.

use k256::ecdsa::signature::Verifier as _;
use k256::ecdsa::{Signature, VerifyingKey};
use p256::elliptic_curve::sec1::ToEncodedPoint as _;
use portcullis_filters::named;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};

/// Bytes of a compressed point: the parity of `y`, and `x`.
const COMPRESSED: usize = 33;
/// 2,048 to 8,192 bits, in bytes.
const RSA_MODULUS: std::ops::RangeInclusive<usize> = 256..=1024;
/// The codecs of a Multikey: they name the curve of the compressed point that follows.
const MULTIKEY_P256: [u8; 2] = [0x80, 0x24];
const MULTIKEY_K256: [u8; 2] = [0xe7, 0x01];
/// A compressed key has 48 characters, a full one 89. Decoding takes quadratic time.
const MAX_MULTIBASE: usize = 128;

named! {
    /// The algorithm of a signature, by its name in a token's header.
    pub enum Alg {
        Hs256 = "HS256",
        Es256 = "ES256",
        Es256k = "ES256K",
        Rs256 = "RS256",
        EdDsa = "EdDSA",
    }
}

impl Alg {
    /// The algorithm that a token or a key names. `Ed25519` is the newer name of `EdDSA` with such
    /// a key (RFC 9864).
    pub(super) fn of_header(name: &str) -> Option<Self> {
        match name {
            "Ed25519" => Some(Self::EdDsa),
            _ => Self::parse(name),
        }
    }
}

/// A public key.
#[derive(Debug)]
pub(super) enum PublicKey {
    /// ES256: an uncompressed point.
    P256(p256::EncodedPoint),
    /// ES256K.
    K256(VerifyingKey),
    /// RS256: modulus and exponent.
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    /// EdDSA: a point of Ed25519.
    Ed25519([u8; 32]),
}

impl PublicKey {
    /// A point of P-256, compressed or not.
    pub(super) fn p256(point: &[u8]) -> Option<Self> {
        // `p256` also reads the compact form (tag 5), which is not accepted here
        let key = p256::PublicKey::from_sec1_bytes(point)
            .ok()
            .filter(|_| point[0] != 5)?;
        Some(Self::P256(key.to_encoded_point(false)))
    }

    /// A point of secp256k1, compressed or not.
    pub(super) fn k256(point: &[u8]) -> Option<Self> {
        VerifyingKey::from_sec1_bytes(point).ok().map(Self::K256)
    }

    /// Modulus and exponent, big-endian.
    pub(super) fn rsa(n: &[u8], e: &[u8]) -> Option<Self> {
        // some encoders add a sign byte, which is not part of the number
        let n = n.strip_prefix(&[0]).unwrap_or(n);
        let is_long = RSA_MODULUS.contains(&n.len()) && (n.len() > 256 || n[0] >= 0x80);
        is_long.then(|| {
            Self::Rsa(RsaPublicKeyComponents {
                n: n.to_owned(),
                e: e.to_owned(),
            })
        })
    }

    /// Parses a Multikey: the curve's codec and a compressed point, in base58.
    pub(super) fn multikey(text: &str) -> Option<Self> {
        let bytes = multibase(text)?;
        match bytes.split_first_chunk()? {
            (&MULTIKEY_P256, point) if point.len() == COMPRESSED => Self::p256(point),
            (&MULTIKEY_K256, point) if point.len() == COMPRESSED => Self::k256(point),
            _ => None,
        }
    }

    /// The only algorithm that the key verifies.
    pub(super) fn alg(&self) -> Alg {
        match self {
            Self::P256(_) => Alg::Es256,
            Self::K256(_) => Alg::Es256k,
            Self::Rsa(_) => Alg::Rs256,
            Self::Ed25519(_) => Alg::EdDsa,
        }
    }

    /// Whether the key signed the message with this algorithm.
    pub(super) fn verify(&self, alg: Alg, message: &[u8], signature: &[u8]) -> bool {
        alg == self.alg()
            && match self {
                Self::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature)
                    .is_ok(),
                Self::K256(key) => Signature::from_slice(signature).is_ok_and(|signature| {
                    let low = signature.normalize_s().unwrap_or(signature);
                    key.verify(message, &low).is_ok()
                }),
                Self::Ed25519(point) => UnparsedPublicKey::new(&ED25519, point)
                    .verify(message, signature)
                    .is_ok(),
                Self::Rsa(key) => key
                    .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
                    .is_ok(),
            }
    }
}

/// Decodes multibase, of which only base58 is supported.
pub(super) fn multibase(text: &str) -> Option<Vec<u8>> {
    let digits = text
        .strip_prefix('z')
        .filter(|digits| digits.len() <= MAX_MULTIBASE)?;
    bs58::decode(digits).into_vec().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rsa_key_has_2048_to_8192_bits() {
        let sized = |first: u8, length: usize| {
            let mut n = vec![0xff; length];
            n[0] = first;
            n
        };
        for (what, n, ok) in [
            ("2048 bits", sized(0x80, 256), true),
            (
                "2048 bits after a sign byte",
                [vec![0], sized(0x80, 256)].concat(),
                true,
            ),
            ("8192 bits", sized(0x80, 1024), true),
            ("2047 bits", sized(0x7f, 256), false),
            ("1024 bits", sized(0x80, 128), false),
            ("more than 8192 bits", sized(0x01, 1025), false),
            ("none", Vec::new(), false),
        ] {
            assert_eq!(PublicKey::rsa(&n, &[1, 0, 1]).is_some(), ok, "{what}");
        }
    }

    #[test]
    fn only_points_on_the_curve_are_keys() {
        let x = "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296";
        let y = "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5";
        let prime = "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff";
        let is_key = |digits: &String| {
            let digits = digits.as_bytes().chunks(2);
            let byte = |pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
            PublicKey::p256(&digits.map(byte).collect::<Vec<_>>()).is_some()
        };
        for point in [format!("03{x}"), format!("02{x}"), format!("04{x}{y}")] {
            assert!(is_key(&point), "{point}");
        }
        // x = 1 has no y
        let (no_y, too_large) = (format!("02{}1", "0".repeat(63)), format!("02{prime}"));
        let off_curve = [format!("04{y}{x}"), format!("04{x}{x}"), no_y, too_large];
        let wrong_form = ["05{x}", "04{x}", "02{x}{y}", "06{x}{y}", "", "00"]
            .map(|form| form.replace("{x}", x).replace("{y}", y));
        for point in [&off_curve[..], &wrong_form].concat() {
            assert!(!is_key(&point), "{point}");
        }
    }
}
