//! The fields of an event: the form of each, which of them go together, and no others.

use super::*;

/// Personal data, which must never be stored here.
#[test]
fn personal_data_is_refused_and_not_echoed() {
    for name in [
        "date_of_birth",
        "dob",
        "birthdate",
        "age",
        "name",
        "first_name",
        "last_name",
        "full_name",
        "email",
        "phone",
        "address",
        "nationality",
        "gender",
        "ip_address",
        "document",
        "document_type",
        "document_number",
        "document_image",
        "photograph",
        "photo",
        "selfie",
        "face_image",
        "video",
        "biometric",
        "evidence",
        "raw",
        "metadata",
        "user_id",
        "did",
        "Status",
        "STATUS",
        "status ",
        "",
        "__proto__",
    ] {
        for event in [verified(), bare("pending")] {
            for value in [
                json!("1990-MARKED"),
                json!(null),
                json!({ "MARKED": ["MARKED"] }),
            ] {
                let body = with(event.clone(), name, Some(value));
                let refusal = signed(&body).unwrap_err();
                assert_eq!(refusal.reason, Reason::InvalidRequest, "{body}");
                let expected = "unknown field: an event has only event_id, subject_ref, status, \
                    age_band, verified_at, expires_at, occurred_at";
                assert_eq!(refusal.message, expected, "{body}");
            }
        }
    }
}

#[test]
fn a_body_names_each_field_once() {
    let good = verified().to_string();
    let open = good.strip_suffix('}').unwrap();
    let deep = format!(r#"{open},"x":{}1{}}}"#, "[".repeat(64), "]".repeat(64));
    let (parse, shape) = (Reason::ParseError, Reason::InvalidRequest);
    for (body, reason, message) in [
        (String::new(), parse, "the body is not one JSON"),
        (format!("\u{feff}{good}"), parse, "the body is not one JSON"),
        (format!("{good}{good}"), parse, "the body is not one JSON"),
        (format!("{good},"), parse, "the body is not one JSON"),
        (format!("{good}\0"), parse, "the body is not one JSON"),
        (format!("{open},}}"), parse, "the body is not one JSON"),
        (deep, parse, "the body is not one JSON"),
        (
            good.replace("evt_1", r"\ud800"),
            parse,
            "the body is not one JSON",
        ),
        (format!("[{good}]"), shape, "the body must be a JSON object"),
        ("null".into(), shape, "the body must be a JSON object"),
        (
            json!(good).to_string(),
            shape,
            "the body must be a JSON object",
        ),
        ("{}".into(), shape, "event_id is required"),
        (
            format!(r#"{open},"status":"verified"}}"#),
            shape,
            "status appears twice",
        ),
        (
            format!(r#"{open},"st\u0061tus":"revoked"}}"#),
            shape,
            "status appears twice",
        ),
        (
            format!(r#"{open},"age_band":null}}"#),
            shape,
            "age_band appears twice",
        ),
        (
            format!(r#"{{"expires_at":null,{}"#, &good[1..]),
            shape,
            "expires_at appears twice",
        ),
    ] {
        let refusal = signed(&body).unwrap_err();
        assert_eq!(refusal.reason, reason, "{body}");
        assert!(
            refusal.message.starts_with(message),
            "{body}: {}",
            refusal.message
        );
    }
    let refusal = signed(good.replace("evt_1", "\u{0}").as_bytes()).unwrap_err();
    assert_eq!(
        refusal.reason,
        Reason::ParseError,
        "a control character must be escaped"
    );
    let bytes: Vec<u8> = good
        .bytes()
        .map(|byte| if byte == b'_' { 0xff } else { byte })
        .collect();
    assert_eq!(
        signed(bytes).unwrap_err().reason,
        Reason::ParseError,
        "not UTF-8"
    );
}

#[test]
fn each_field_is_taken_in_one_form_only() {
    let long = "a".repeat(128);
    let short = &SUBJECT[1..];
    let upper = SUBJECT.to_uppercase();
    let wide = format!("{SUBJECT}0");
    let cases: &[(&str, &[Value], &[Value])] = &[
        (
            "event_id",
            &[json!("a"), json!("A.b_c:d-9"), json!(long)],
            &[
                json!(""),
                json!("a b"),
                json!("é"),
                json!("a/b"),
                json!(format!("{long}a")),
            ],
        ),
        (
            "subject_ref",
            &[json!(SUBJECT)],
            &[
                json!(short),
                json!(wide),
                json!(upper),
                json!(SUBJECT.replace('0', "g")),
            ],
        ),
        (
            "status",
            &[json!("verified")],
            &[
                json!("Verified"),
                json!("approved"),
                json!(""),
                json!("verified "),
                json!("unverified"),
            ],
        ),
        (
            "age_band",
            &[
                json!("under_13"),
                json!("13_15"),
                json!("16_17"),
                json!("18_plus"),
            ],
            &[
                json!("18_PLUS"),
                json!(""),
                json!("21_plus"),
                json!("18_plus "),
            ],
        ),
    ];
    let wrong_types = [
        json!(5),
        json!(1.5),
        json!(true),
        json!([]),
        json!({}),
        json!(["a"]),
    ];
    for (name, good, bad) in cases {
        for value in *good {
            let body = with(verified(), name, Some(value.clone()));
            assert!(signed(&body).is_ok(), "{body}");
        }
        let absent = [None, Some(Value::Null)];
        for value in absent
            .into_iter()
            .chain(bad.iter().chain(&wrong_types).cloned().map(Some))
        {
            let body = with(verified(), name, value.clone());
            let Refusal {
                reason, message, ..
            } = signed(&body).unwrap_err();
            assert_eq!(reason, Reason::InvalidRequest, "{body}");
            let absent = value.is_none_or(|value| value.is_null());
            let expected = format!("{name} {}", if absent { "is required" } else { "must be " });
            assert!(message.starts_with(&expected), "{body}: {message}");
        }
    }
}

#[test]
fn an_instant_is_rfc_3339_with_an_offset() {
    for (text, expected) in [
        ("2026-03-01T12:00:00Z", Some(NOON)),
        ("2026-03-01t12:00:00z", Some(NOON)),
        ("2026-03-01T12:00:00+00:00", Some(NOON)),
        ("2026-03-01T12:00:00-00:00", Some(NOON)),
        ("2026-03-01T17:30:00+05:30", Some(NOON)),
        ("2026-03-01T00:00:00.000-12:00", Some(NOON)),
        ("2026-03-01T11:59:59.123456789Z", Some(NOON - 876_544)),
        ("2016-12-31T23:59:60Z", Some(1_483_228_799_999_999)),
        ("2000-01-01T00:00:00Z", Some(946_684_800_000_000)),
        ("1999-12-31T23:59:59.999999Z", None),
        ("2000-01-01T00:00:00+00:01", None),
        ("1970-01-01T00:00:00Z", None),
        ("0000-01-01T00:00:00Z", None),
        ("2026-03-01T12:00:00", None),
        ("2026-03-01 12:00:00Z", None),
        ("2026-03-01_12:00:00Z", None),
        ("2026-03-01", None),
        ("2026-02-29T12:00:00Z", None),
        ("2026-13-01T12:00:00Z", None),
        ("2026-03-01T24:00:00Z", None),
        ("2026-03-01T12:00:60Z", None),
        ("2026-03-01T12:00Z", None),
        ("2026-03-01T12:00:00.Z", None),
        ("2026-03-01T12:00:00+0000", None),
        ("2026-03-01T12:00:00Z ", None),
        ("+2026-03-01T12:00:00Z", None),
        ("20260301T120000Z", None),
        ("1772366400", None),
        ("", None),
    ] {
        let found = signed(with(bare("pending"), "occurred_at", Some(json!(text))));
        match expected {
            Some(us) => assert_eq!(found.unwrap().occurred_us(), us, "{text}"),
            None => {
                let message = found.expect_err(text).message;
                assert!(
                    message.starts_with("occurred_at must be an RFC 3339 time"),
                    "{text}"
                );
            }
        }
    }
    for number in [json!(1_772_366_400), json!(1_772_366_400.5)] {
        assert!(signed(with(bare("pending"), "occurred_at", Some(number))).is_err());
    }
}

#[test]
fn the_fields_of_an_event_fit_together() {
    let (at, none) = (|text: &str| Some(json!(text)), Some(Value::Null));
    let noon = at("2026-03-01T12:00:00Z");
    for (event, name, value, message) in [
        (verified(), "expires_at", None, ""),
        (verified(), "expires_at", none.clone(), ""),
        (
            verified(),
            "expires_at",
            at("2026-03-01T11:59:00.000001Z"),
            "",
        ),
        (
            verified(),
            "expires_at",
            at("2026-03-01T11:59:00Z"),
            "expires_at must be later than",
        ),
        (
            verified(),
            "expires_at",
            at("2020-01-01T00:00:00Z"),
            "expires_at must be later than",
        ),
        (
            verified(),
            "expires_at",
            at(""),
            "expires_at must be an RFC 3339 time",
        ),
        (verified(), "verified_at", at("2001-01-01T00:00:00Z"), ""),
        (verified(), "verified_at", at("2026-03-01T12:05:00Z"), ""),
        (
            verified(),
            "verified_at",
            at("2026-03-01T12:05:00.000001Z"),
            "verified_at must not be",
        ),
        (verified(), "verified_at", None, "verified_at is required"),
        (
            verified(),
            "verified_at",
            none.clone(),
            "verified_at is required",
        ),
        (verified(), "occurred_at", at("2026-03-01T12:05:00Z"), ""),
        (
            verified(),
            "occurred_at",
            at("2026-03-01T12:05:00.000001Z"),
            "occurred_at must not be",
        ),
        (
            verified(),
            "occurred_at",
            at("9999-12-31T23:59:59Z"),
            "occurred_at must not be",
        ),
        (verified(), "occurred_at", None, "occurred_at is required"),
        (
            bare("pending"),
            "expires_at",
            noon.clone(),
            "expires_at must be absent when pending",
        ),
        (
            bare("rejected"),
            "expires_at",
            noon.clone(),
            "expires_at must be absent when rejected",
        ),
        (
            bare("revoked"),
            "expires_at",
            noon.clone(),
            "expires_at must be absent when revoked",
        ),
        (bare("revoked"), "expires_at", none.clone(), ""),
        (bare("expired"), "expires_at", noon.clone(), ""),
        (bare("expired"), "expires_at", none.clone(), ""),
        (
            bare("expired"),
            "verified_at",
            noon.clone(),
            "verified_at must be absent when",
        ),
        (
            bare("expired"),
            "age_band",
            Some(json!("18_plus")),
            "age_band must be absent when",
        ),
        (
            bare("rejected"),
            "age_band",
            Some(json!("under_13")),
            "age_band must be absent when",
        ),
        (
            bare("pending"),
            "age_band",
            Some(json!(5)),
            "age_band must be absent when",
        ),
        (bare("pending"), "age_band", none, ""),
        (
            bare("pending"),
            "verified_at",
            noon,
            "verified_at must be absent when pending",
        ),
    ] {
        let body = with(event, name, value);
        match signed(&body) {
            Ok(_) => assert_eq!(message, "", "{body} is refused"),
            Err(refusal) => {
                assert_eq!(refusal.reason, Reason::InvalidRequest, "{body}");
                let text = refusal.message;
                assert!(
                    !message.is_empty() && text.starts_with(message),
                    "{body}: {text}"
                );
            }
        }
    }
}

#[test]
fn a_digest_tells_meanings_apart_and_not_spellings() {
    let digest = |body: &str| signed(body).expect(body).digest();
    let (plain, event) = (verified().to_string(), bare("expired").to_string());
    let spaced = serde_json::to_string_pretty(&verified()).unwrap();
    for same in [
        spaced,
        plain.replace("evt_1", r"\u0065vt_1"),
        plain.replace("12:00:00Z", "14:00:00.0000009+02:00"),
    ] {
        assert_eq!(digest(&same), digest(&plain), "{same}");
    }
    assert_eq!(
        digest(&with(bare("expired"), "age_band", Some(Value::Null))),
        digest(&event)
    );
    let mut digests = vec![digest(&plain), digest(&event)];
    for (event, name, value) in [
        (verified(), "event_id", Some("evt_2".into())),
        (verified(), "subject_ref", Some(SUBJECT.replace("01", "10"))),
        (verified(), "age_band", Some("16_17".into())),
        (
            verified(),
            "verified_at",
            Some("2026-03-01T11:59:00.000001Z".into()),
        ),
        (
            verified(),
            "expires_at",
            Some("2027-03-01T11:59:00.000001Z".into()),
        ),
        (verified(), "expires_at", None),
        (
            verified(),
            "occurred_at",
            Some("2026-03-01T12:00:00.000001Z".into()),
        ),
        (bare("expired"), "status", Some("revoked".into())),
        (
            bare("expired"),
            "expires_at",
            Some("2026-03-01T12:00:00Z".into()),
        ),
    ] {
        let body = with(event, name, value.map(Value::from));
        let found = digest(&body);
        assert!(!digests.contains(&found), "{body}");
        digests.push(found);
    }
}
