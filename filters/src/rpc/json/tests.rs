//! Which texts are JSON, and how they are parsed.

use super::scan::{scanned, select};
use super::*;
use alloc::format;
use alloc::string::String;
use serde_json::value::RawValue;

#[test]
fn names_are_compared_after_unescaping() {
    let object = Json::parse(br#"{"a":1,"\u0061":2}"#).unwrap();
    assert_eq!(object.members(&["a"]), Err(MemberError::Duplicate("a")));
    let object = Json::parse(br#"{"t\u0069p":1}"#).unwrap();
    assert_eq!(object.members(&["tip"]), Ok([Some(Json::Integer(1))]));
    let object = Json::parse(br#"{"tip":1,"b":2}"#).unwrap();
    assert_eq!(object.members(&["tip"]), Err(MemberError::Unknown));
    assert_eq!(
        Json::parse(b"[]").unwrap().members(&["a"]),
        Err(MemberError::NotAnObject)
    );
}

#[test]
fn the_65th_level_is_refused() {
    for (levels, ok) in [
        (1, true),
        (64, true),
        (65, false),
        (200, false),
        (30_000, false),
    ] {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            let text = format!("{}1{}", open.repeat(levels), close.repeat(levels));
            assert_eq!(
                Json::parse(text.as_bytes()).is_some(),
                ok,
                "{levels} levels of {open}"
            );
        }
    }
}

#[test]
fn only_one_rfc_8259_text_is_json() {
    for text in [
        &b"\xef\xbb\xbf{}"[..],
        b"{} {}",
        b"{},",
        b"",
        b"  ",
        b"{\"a\":\"\xff\"}",
        b"\"\\ud800\"",
        b"\"\x01\"",
        b"{'a':1}",
        b"{a:1}",
        b"[1,]",
        b"[01]",
        b"[+1]",
        b"[.5]",
        b"[NaN]",
        b"[1e]",
        b"//\n{}",
        b"\x00{}",
        b"{}\x00",
    ] {
        assert_eq!(
            Json::parse(text),
            None,
            "{:?}",
            String::from_utf8_lossy(text)
        );
    }
}

#[test]
fn only_plain_integers_are_integers() {
    for (text, expected) in [
        ("7", Json::Integer(7)),
        ("18446744073709551615", Json::Integer(u64::MAX)),
        ("18446744073709551616", Json::Number),
        ("7.0", Json::Number),
        ("7e0", Json::Number),
        ("-1", Json::Number),
    ] {
        assert_eq!(Json::parse(text.as_bytes()), Some(expected), "{text}");
    }
}

#[test]
fn members_are_selected_at_the_top_level_only() {
    let names = ["a", "b"];
    let found = |text: &'static str| {
        select(text.as_bytes(), names).map(|found| found.map(|text| text.map(str::from_utf8)))
    };
    let both = |a, b| Some([Some(Ok(a)), Some(Ok(b))]);
    for (object, expected) in [
        (r#"{"a":1,"b":[{"a":2}]}"#, both("1", r#"[{"a":2}]"#)),
        (" {}", None),
        (
            "{ \n\"b\" : \"\\\"\" , \"c\":{},\t\"\\u0061\":null } ",
            both("null", r#""\"""#),
        ),
        ("{}", Some([None, None])),
        (r#"{"c":{"a":1}}"#, Some([None, None])),
        (r#"{"a":1,"\u0061":2}"#, None),
        (r#"{"a":1,}"#, None),
        (r#"{"a":1"#, None),
        (r#"{"a":1}}"#, None),
        (r#"{"a"}"#, None),
        (r#"{"\ud800":1}"#, Some([None, None])),
        (r#"["a"]"#, None),
        ("", None),
    ] {
        assert_eq!(found(object), expected, "{object}");
    }
}

/// Bytes that can begin, end or break a value somewhere.
const BYTES: &[u8] =
    b"\"\\[]{},:0123456789-+.eEtrufalsn/b \t\n\r\x00\x1f\x20\x7f\xc3\xa9\xed\xa0\x80\xf0\x9f";

const SEEDS: [&str; 6] = [
    r#"{"events":[{"block_hash":"0x1fd38616408aa2fc","data":["0x0","0x12"],"n":600000}],"b":{}}"#,
    r#"{"abi":"[{\"type\": \"é\\u00e9\\n\"}]", "program" : [ "0x1" , "0x2" ] , "e":[]}"#,
    "[0,-0.5e+10,1E-2,true,false,null,[[[]]],{\"\":{}},\"\"]",
    r#""\ud800\"\\\/\b\f\n\r\t""#,
    "  -12.75e3 ",
    "null",
];

/// Compares a scan with `serde_json`, the reference.
fn assert_same(text: &[u8]) {
    let found = scanned(text, u8::MAX);
    let expected = serde_json::from_slice::<&RawValue>(text)
        .ok()
        .map(RawValue::get);
    let text = String::from_utf8_lossy(text);
    assert_eq!(found, expected.map(str::as_bytes), "{text:?}");
}

#[test]
fn mutated_texts_are_judged_as_serde_json_does() {
    for seed in SEEDS {
        for at in 0..=seed.len() {
            let (before, after) = seed.as_bytes().split_at(at);
            assert_same(before);
            assert_same(after);
            let rest = after.get(1..).unwrap_or_default();
            assert_same(&[before, rest].concat());
            for byte in BYTES {
                assert_same(&[before, &[*byte], after].concat());
                assert_same(&[before, &[*byte], rest].concat());
            }
        }
    }
}

#[test]
fn random_texts_are_judged_as_serde_json_does() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound as u64).expect("below a usize")
    };
    for _ in 0..50_000 {
        let mut text = String::from(SEEDS[below(SEEDS.len())]).into_bytes();
        for _ in 0..=below(6) {
            let (at, byte) = (below(text.len().max(1)), BYTES[below(BYTES.len())]);
            match below(4) {
                0 => text.insert(at, byte),
                1 if at < text.len() => drop(text.remove(at)),
                2 => text.truncate(at.max(1)),
                _ => text.iter_mut().skip(at).take(1).for_each(|old| *old = byte),
            }
        }
        assert_same(&text);
    }
}

#[test]
fn a_string_ends_wherever_its_block_does() {
    for length in 0..200 {
        for (end, before) in [("\"", ""), ("\\\"\"", " "), ("", "["), ("\u{1}\"", "\t")] {
            assert_same(format!("{before}\"{}{end}", "é".repeat(length / 2)).as_bytes());
            assert_same(format!("{before}\"{}{end}", "x".repeat(length)).as_bytes());
        }
    }
}

#[test]
fn depth_is_bounded_and_every_bracket_counts() {
    for levels in [1, 63, 64, 65, 100_000] {
        let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels)).into_bytes();
        let expected = if levels > 64 { None } else { Some(&*text) };
        assert_eq!(scanned(&text, 64), expected, "{levels}");
        assert_eq!(scanned(&text[1..], 64), None);
    }
}

#[test]
fn brackets_close_in_the_order_of_their_kinds() {
    for levels in [1, 2, 63, 64, 65, 128, 129, 192, 193, 255] {
        let is_object = |level: &usize| level % 3 == 1;
        let opened: String = (0..levels)
            .map(|level| if is_object(&level) { "{\"\":" } else { "[" })
            .collect();
        let closed: Vec<_> = (0..levels)
            .rev()
            .map(|level| if is_object(&level) { '}' } else { ']' })
            .collect();
        let with = |closed: &[char]| {
            assert_same(format!("{opened}0{}", closed.iter().collect::<String>()).as_bytes());
        };
        with(&closed);
        for at in 0..levels {
            let mut other = closed.clone();
            other[at] = if closed[at] == '}' { ']' } else { '}' };
            with(&other);
        }
    }
}
