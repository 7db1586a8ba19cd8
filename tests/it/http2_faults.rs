//! The gateway over HTTP/2, as bytes: faults on streams that are answered or ended (RFC 9113,
//! section 5.1).

use crate::http2::Stage;
use crate::http2_frames::{
    CALL, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Outcome, RST_STREAM, Raw, WHOLE,
    WINDOW_UPDATE, get,
};

const NO_ERROR: u8 = 0;
const PROTOCOL_ERROR: u8 = 1;
const FLOW_CONTROL_ERROR: u8 = 3;
const STREAM_CLOSED: u8 = 5;

/// A frame on the stream of a test: its type, flags and payload.
type Sent<'a> = (u8, u8, &'a [u8]);

/// Returns the code of the next frame of this type.
fn code_of(raw: &mut Raw, kind: u8) -> u8 {
    loop {
        let frame = raw.receive().expect("the code comes before the end");
        if frame.kind == kind {
            return *frame
                .payload
                .get(if kind == GOAWAY { 7 } else { 3 })
                .expect("a code");
        }
    }
}

#[test]
fn frames_after_the_end_close_the_connection() {
    let stage = Stage::new(&[]);
    let (health, upload) = (get(b"\x04\x08/healthz"), CALL);
    let whole: Sent<'_> = (HEADERS, WHOLE, &health);
    let begun: Sent<'_> = (HEADERS, END_HEADERS, upload);
    let cancel: Sent<'_> = (RST_STREAM, 0, &[0, 0, 0, 8]);
    for (what, frames) in [
        (
            "data after a request",
            [whole, (DATA, END_STREAM, b"{}")].to_vec(),
        ),
        ("another request", vec![whole, whole]),
        (
            "data after its last",
            vec![begun, (DATA, END_STREAM, b"{"), (DATA, 0, b"}")],
        ),
        ("data after a reset", vec![begun, cancel, (DATA, 0, b"{}")]),
        ("trailers after a reset", vec![begun, cancel, whole]),
    ] {
        for is_answered in [false, true] {
            let mut raw = Raw::connect(&stage);
            let (last, first) = frames.split_last().expect("there are some");
            for (kind, flags, payload) in first {
                raw.send(*kind, *flags, 1, payload);
            }
            if is_answered {
                // its answer follows those before
                raw.send(HEADERS, WHOLE, 3, &health);
                assert_eq!(raw.outcome(3), Outcome::Status(200), "{what}");
            }
            raw.send(last.0, last.1, 1, last.2);
            assert_eq!(
                code_of(&mut raw, GOAWAY),
                STREAM_CLOSED,
                "{what}, answered: {is_answered}"
            );
            while raw.receive().is_some() {}
        }
    }
}

#[test]
fn faults_after_an_early_answer_are_reported() {
    let stage = Stage::new(&[]);
    let mut raw = Raw::connect(&stage);
    // no such path
    let upload = b"\x83\x87\x01\x09edge.test\x04\x08/nothing";
    let of_one_byte = [&upload[..], b"\x0f\x0d\x011"].concat();
    let widest = &(u32::MAX >> 1).to_be_bytes();
    let widen: Sent<'_> = (WINDOW_UPDATE, 0, widest);
    let cases: [(&str, &[u8], &[Sent<'_>], u8); 7] = [
        ("nothing follows", upload, &[], NO_ERROR),
        ("one update", upload, &[widen], NO_ERROR),
        (
            "a window that is too wide",
            upload,
            &[widen, widen],
            FLOW_CONTROL_ERROR,
        ),
        (
            "trailers without an end",
            upload,
            &[(DATA, 0, b"{}"), (HEADERS, END_HEADERS, b"\x00\x01a\x01b")],
            PROTOCOL_ERROR,
        ),
        (
            "pseudo-fields in trailers",
            upload,
            &[(HEADERS, END_HEADERS, b"\x83")],
            PROTOCOL_ERROR,
        ),
        (
            "more than its length",
            &of_one_byte,
            &[(DATA, 0, b"{}")],
            PROTOCOL_ERROR,
        ),
        (
            "less than its length",
            &of_one_byte,
            &[(DATA, END_STREAM, b"")],
            PROTOCOL_ERROR,
        ),
    ];
    for (stream, (what, head, frames, code)) in (1..).step_by(4).zip(cases) {
        raw.send(HEADERS, END_HEADERS, stream, head);
        assert_eq!(raw.answer(), Ok(Some(0x8d)), "404: {what}");
        for (kind, flags, payload) in frames {
            raw.send(*kind, *flags, stream, payload);
        }
        assert_eq!(code_of(&mut raw, RST_STREAM), code, "{what}");
        raw.send(HEADERS, WHOLE, stream + 2, &get(b"\x04\x08/healthz"));
        assert_eq!(
            raw.outcome(stream + 2),
            Outcome::Status(200),
            "others go on: {what}"
        );
    }
}

#[test]
fn an_upload_ends_after_its_answer() {
    let stage = Stage::new(&[]);
    let mut raw = Raw::connect(&stage);
    raw.send(
        HEADERS,
        END_HEADERS,
        1,
        b"\x83\x87\x01\x09edge.test\x04\x08/nothing",
    );
    assert_eq!(raw.answer(), Ok(Some(0x8d)), "404");
    raw.send(DATA, 0, 1, &[b' '; 10_000]);
    raw.send(DATA, END_STREAM, 1, b"{}");
    // longer than an answered stream stays open
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    raw.send(HEADERS, WHOLE, 3, &get(b"\x04\x08/healthz"));
    loop {
        let frame = raw.receive().expect("the connection goes on");
        assert_ne!((frame.kind, frame.stream), (RST_STREAM, 1), "it has ended");
        if (frame.kind, frame.stream) == (HEADERS, 3) {
            break;
        }
    }
}
