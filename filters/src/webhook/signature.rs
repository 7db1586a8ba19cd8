//! The header that carries a webhook's signature.

use crate::hmac::Secrets;

/// The signature of a request: 32 bytes, or `None` if it is absent or malformed.
#[derive(Clone, Copy, Debug)]
pub struct Signature(Option<[u8; 32]>);

impl Signature {
    /// Parses all values of the header. A signature is a single value: 64 hexadecimal digits of
    /// either case, with or without `sha256=` before them.
    pub fn of(values: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        let mut values = values.into_iter();
        let first = values.next().filter(|_| values.next().is_none());
        Self(first.and_then(|value| parse(value.as_ref())))
    }

    pub(super) fn signs(self, body: &[u8], secrets: &Secrets) -> bool {
        self.0
            .is_some_and(|signature| secrets.verify(body, &signature))
    }
}

fn parse(value: &[u8]) -> Option<[u8; 32]> {
    let digits = value.strip_prefix(b"sha256=").unwrap_or(value);
    // checked first, because a number may also begin with a sign
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let (high, low) = str::from_utf8(digits).ok()?.split_at_checked(32)?;
    let half = |digits| u128::from_str_radix(digits, 16).ok().map(u128::to_be_bytes);
    [half(high)?, half(low)?].as_flattened().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_64_hexadecimal_digits() {
        let digits = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let bytes: Vec<u8> = (0..64)
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect();
        let upper = digits.to_uppercase();
        let signed = format!("+{}", &digits[1..]);
        let base64 = "dXEH6g6yUJ/CESIczphLijdXC211hsIsRvQ3nIsEPhc=";
        for (values, ok) in [
            (vec![digits.to_owned()], true),
            (vec![upper.clone()], true),
            (vec![format!("sha256={digits}")], true),
            (vec![format!("sha256={upper}")], true),
            (vec![], false),
            (vec![String::new()], false),
            (vec!["sha256=".to_owned()], false),
            (vec![digits.to_owned(), digits.to_owned()], false),
            (vec![digits.to_owned(), String::new()], false),
            (vec![String::new(), digits.to_owned()], false),
            (vec![format!("{digits},{digits}")], false),
            (vec![format!("{digits}, ")], false),
            (vec![format!(" {digits}")], false),
            (vec![format!("{digits}\n")], false),
            (vec![format!("SHA256={digits}")], false),
            (vec![format!("Sha256={digits}")], false),
            (vec![format!("sha1={digits}")], false),
            (vec![format!("sha256:{digits}")], false),
            (vec![format!("sha256= {digits}")], false),
            (vec![format!("sha256=sha256={digits}")], false),
            (vec![format!("v1,{digits}")], false),
            (vec![format!("t=1,v1={digits}")], false),
            (vec![format!("0x{digits}")], false),
            (vec![format!("0x{}", &digits[2..])], false),
            (vec![digits[1..].to_owned()], false),
            (vec![format!("{digits}0")], false),
            (vec![signed.clone()], false),
            (vec![format!("sha256={signed}")], false),
            (vec![digits.replace('e', "é")], false),
            (vec![digits.replace('e', "g")], false),
            (vec![base64.to_owned()], false),
            (vec![format!("sha256={base64}")], false),
        ] {
            let expected = ok.then_some(bytes.as_slice());
            let Signature(found) = Signature::of(&values);
            assert_eq!(
                found.as_ref().map(<[u8; 32]>::as_slice),
                expected,
                "{values:?}"
            );
        }
    }
}
