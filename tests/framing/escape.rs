//! Streams as text: one line of printable ASCII for any bytes.

/// The bytes as text; [`unescape`] reads it.
pub(crate) fn escape(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// The bytes that a text stands for, in the escapes of Rust.
pub(crate) fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next().expect("a whole escape") {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'x' => {
                let digits = [rest.next(), rest.next()].map(|digit| digit.expect("two digits"));
                let digits = std::str::from_utf8(&digits).expect("digits");
                u8::from_str_radix(digits, 16).expect("hexadecimal digits")
            }
            other => other,
        });
    }
    bytes
}

#[test]
fn any_byte_survives_its_text() {
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(unescape(&escape(&all)), all);
}
