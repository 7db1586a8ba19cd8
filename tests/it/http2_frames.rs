//! The gateway over HTTP/2, as bytes: what a client library never sends.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::iter;
use std::net::TcpStream;

use crate::http2::Stage;
use crate::support::client::PATIENCE;
use crate::support::request::QUESTION;
use crate::support::secure::{ANY, tunnel};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
pub(crate) const WHOLE: u8 = END_STREAM | END_HEADERS;

pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// The end of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Status(u16),
    Reset,
    /// The connection ended before either.
    Gone,
}

/// The first byte of the head of a response, `None` for a reset, or the error code of GOAWAY.
pub(crate) type Answer = Result<Option<u8>, u8>;

/// A connection that sends frames unchanged.
pub(crate) struct Raw(TcpStream);

impl Raw {
    pub(crate) fn connect(stage: &Stage) -> Self {
        let stream = tunnel(stage.edge.gateway(), stage.pair.config(ANY, &["h2"]));
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout above zero is valid");
        let mut raw = Self(stream);
        raw.0
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .expect("it is open");
        raw.send(SETTINGS, 0, 0, b"");
        raw
    }

    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.write(&frame(kind, flags, stream, payload));
    }

    /// Sends several frames in one write.
    fn write(&mut self, frames: &[u8]) {
        // the gateway may have closed, which the next read reports
        let _sent = self.0.write_all(frames);
    }

    /// Waits until each of these streams has a response, or is one too many at a time.
    fn heads_of(&mut self, streams: &[u32]) {
        let mut open: BTreeSet<_> = streams.iter().copied().collect();
        while !open.is_empty() {
            let frame = self.receive().expect("the connection goes on");
            assert_ne!(
                frame.kind,
                GOAWAY,
                "{:?}",
                String::from_utf8_lossy(&frame.payload)
            );
            if matches!(frame.kind, HEADERS | RST_STREAM) {
                open.remove(&frame.stream);
            }
        }
    }

    /// The next frame; `None` at the end of the connection.
    pub(crate) fn receive(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        if let Err(error) = self.0.read_exact(&mut head) {
            let is_silent = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            assert!(!is_silent, "nothing came, and the connection is open");
            return None;
        }
        let [a, b, c, kind, _flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).ok()?;
        Some(Frame {
            kind,
            stream: u32::from_be_bytes(stream),
            payload,
        })
    }

    pub(crate) fn outcome(&mut self, stream: u32) -> Outcome {
        loop {
            let Some(frame) = self.receive() else {
                return Outcome::Gone;
            };
            if frame.stream != stream {
                continue;
            }
            match (frame.kind, frame.payload.first()) {
                (RST_STREAM, _) => return Outcome::Reset,
                // statuses of the static table; RFC 7541, appendix A
                (HEADERS, Some(0x88)) => return Outcome::Status(200),
                (HEADERS, Some(0x8c)) => return Outcome::Status(400),
                (HEADERS, other) => panic!("a status that is not expected: {other:x?}"),
                _ => {}
            }
        }
    }

    /// Waits for what becomes of the only request.
    pub(crate) fn answer(&mut self) -> Answer {
        loop {
            let frame = self.receive().ok_or(0)?;
            match frame.kind {
                HEADERS => return Ok(frame.payload.first().copied()),
                RST_STREAM => return Ok(None),
                GOAWAY => return Err(frame.payload[7]),
                _ => {}
            }
        }
    }

    /// Waits until everything sent before is read, and returns whether GOAWAY came meanwhile.
    fn is_announced_to_go(&mut self) -> bool {
        self.send(PING, 0, 0, b"12345678");
        let mut is_announced = false;
        while let Some(frame) = self.receive() {
            match frame.kind {
                PING if frame.payload == b"12345678" => return is_announced,
                GOAWAY => is_announced = true,
                _ => {}
            }
        }
        is_announced
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len())
        .expect("it is short")
        .to_be_bytes();
    [&length[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The identifiers of this many streams, from `first` on.
fn streams(first: u32, count: usize) -> Vec<u32> {
    (first..).step_by(2).take(count).collect()
}

/// The head of a call by a client of the proxy.
fn call_of(client: &[u8; 9]) -> Vec<u8> {
    [CALL, b"\x00\x0fx-forwarded-for\x09", client].concat()
}

/// The head of a call.
pub(crate) const CALL: &[u8] = b"\x83\x87\x01\x09edge.test\x04\x04/rpc\x0f\x10\x10application/json";

/// `GET`, with `:path` as it is encoded.
pub(crate) fn get(path: &[u8]) -> Vec<u8> {
    [b"\x82\x87\x01\x09edge.test", path].concat()
}

/// A head with a field of HTTP/1.
fn malformed() -> Vec<u8> {
    [&get(b"\x84")[..], b"\x00\x0aconnection\x05close"].concat()
}

#[test]
fn a_fragment_is_refused_in_each_encoding() {
    let stage = Stage::new(&[]);
    let mut raw = Raw::connect(&stage);
    let (plain, fine) = (get(b"\x04\x0a/healthz#x"), get(b"\x04\x08/healthz"));
    let coded = get(b"\x04\x89\x62\x72\x8e\x84\xcf\xef\xfe\xbc\xff");
    let padded = [&b"\x05"[..], &plain, &[0; 5]].concat();
    let (start, rest) = plain.split_at(20);
    let mut requests = vec![
        ("as text", vec![(HEADERS, WHOLE, &plain[..])]),
        ("in the Huffman code", vec![(HEADERS, WHOLE, &coded)]),
        ("with padding", vec![(HEADERS, WHOLE | PADDED, &padded)]),
        (
            "in two frames",
            vec![
                (HEADERS, END_STREAM, start),
                (CONTINUATION, END_HEADERS, rest),
            ],
        ),
    ];
    let (stored, again) = (get(b"\x44\x0a/healthz#x"), get(b"\xbe"));
    requests.push(("stored", vec![(HEADERS, WHOLE, &stored)]));
    requests.push(("from the table", vec![(HEADERS, WHOLE, &again)]));
    for (stream, (what, frames)) in (1..).step_by(4).zip(requests) {
        for (kind, flags, payload) in frames {
            raw.send(kind, flags, stream, payload);
        }
        assert_eq!(raw.outcome(stream), Outcome::Status(400), "{what}");
        raw.send(HEADERS, WHOLE, stream + 2, &fine);
        assert_eq!(
            raw.outcome(stream + 2),
            Outcome::Status(200),
            "others go on: {what}"
        );
    }
    stage
        .edge
        .line("the refusal", |line| line["reason"] == "invalid_request");
}

#[test]
fn pseudo_fields_in_trailers_are_refused() {
    let stage = Stage::new(&[]);
    let mut raw = Raw::connect(&stage);
    let trailers: [(&[u8], u16); 5] = [
        (b"\x00\x01a\x01b", 200),
        (b"\x84", 400),
        (b"\x88", 400),
        (b"\x00\x05:path\x02/x", 400),
        (b"\x00\x01a\x01b", 200),
    ];
    for (stream, (trailers, status)) in (1..).step_by(4).zip(trailers) {
        raw.send(HEADERS, END_HEADERS, stream, CALL);
        raw.send(DATA, 0, stream, QUESTION.as_bytes());
        raw.send(HEADERS, WHOLE, stream, trailers);
        assert_eq!(
            raw.outcome(stream),
            Outcome::Status(status),
            "at once: {trailers:x?}"
        );
        let stream = stream + 2;
        raw.send(HEADERS, END_HEADERS, stream, CALL);
        raw.send(DATA, 0, stream, QUESTION.as_bytes());
        stage.in_flight(1.0);
        raw.send(HEADERS, WHOLE, stream, trailers);
        assert_eq!(
            raw.outcome(stream),
            Outcome::Status(status),
            "later: {trailers:x?}"
        );
        stage.in_flight(0.0);
    }
}

#[test]
fn a_proxys_malformed_requests_end_no_other() {
    let (stage, latch) = Stage::held(&[]);
    let mut raw = Raw::connect(&stage);
    raw.send(HEADERS, END_HEADERS, 1, CALL);
    raw.send(DATA, END_STREAM, 1, QUESTION.as_bytes());
    stage.in_flight(1.0);
    let is_announced = (3..)
        .step_by(2)
        .take(4_000)
        .collect::<Vec<_>>()
        .chunks(100)
        .any(|streams| {
            for stream in streams {
                raw.send(HEADERS, WHOLE, *stream, &malformed());
            }
            raw.is_announced_to_go()
        });
    assert!(is_announced, "the proxy has to connect again");
    latch.open();
    assert_eq!(
        raw.outcome(1),
        Outcome::Status(200),
        "another client of the same connection"
    );
}

#[test]
fn a_small_answer_is_one_frame() {
    let stage = Stage::new(&[]);
    let mut raw = Raw::connect(&stage);
    raw.send(HEADERS, END_HEADERS, 1, CALL);
    raw.send(DATA, END_STREAM, 1, QUESTION.as_bytes());
    assert_eq!(raw.outcome(1), Outcome::Status(200));
    let data = raw.receive().expect("the body follows its head");
    assert_eq!((data.kind, data.stream), (DATA, 1));
    let answer = serde_json::from_slice::<serde_json::Value>(&data.payload);
    assert_eq!(answer.expect("all of the body")["id"], 7);
}

#[test]
fn a_flood_of_pings_waits_and_is_answered() {
    let stage = Stage::new(&[]);
    let mut raw = Raw::connect(&stage);
    // more than are read at once
    for _ in 0..400 {
        raw.send(PING, 0, 0, b"flooding");
    }
    raw.send(HEADERS, WHOLE, 1, &get(b"\x04\x08/healthz"));
    let answered = iter::from_fn(|| raw.receive())
        .take_while(|frame| frame.kind != HEADERS)
        .filter(|frame| frame.kind == PING)
        .count();
    assert_eq!(answered, 400, "and then the request behind them");
}

#[test]
fn an_undecodable_head_ends_the_connection() {
    let stage = Stage::new(&[]);
    for (flags, payload) in [
        // an index of nothing, a string without an end, more padding than frame
        (WHOLE, &b"\xff\xff\x00"[..]),
        (WHOLE, b"\x82\x87\x04\x0a/rpc"),
        (WHOLE | PADDED, b"\xff\x82\x87\x84"),
        // dependent on itself, for which `h2` forgets what the client stored
        (WHOLE | PRIORITY, b"\x00\x00\x00\x01\x00\x82\x87\x84"),
        // a table that changes its size three times
        (
            WHOLE,
            b"\x20\x20\x20\x82\x87\x01\x09edge.test\x04\x08/healthz",
        ),
    ] {
        let mut raw = Raw::connect(&stage);
        raw.send(HEADERS, flags, 1, payload);
        while raw.receive().is_some() {}
    }
}

#[test]
fn resets_in_one_write_end_no_other_request() {
    let stage = Stage::new(&[]);
    let mut raw = Raw::connect(&stage);
    let mut first = 1;
    for count in [21, 30, 60, 1_000] {
        let streams = streams(first, count);
        first += 2 * count as u32;
        let call = call_of(b"192.0.2.1");
        let frames = streams.iter().flat_map(|stream| {
            let begun = frame(HEADERS, END_HEADERS, *stream, &call);
            [begun, frame(RST_STREAM, 0, *stream, &[0, 0, 0, 8])].concat()
        });
        raw.write(&frames.collect::<Vec<_>>());
        assert!(
            !raw.is_announced_to_go(),
            "{count} requests begun and reset"
        );
    }
    raw.send(HEADERS, END_HEADERS, first, &call_of(b"192.0.2.2"));
    raw.send(DATA, END_STREAM, first, QUESTION.as_bytes());
    assert_eq!(
        raw.outcome(first),
        Outcome::Status(200),
        "another client of the connection"
    );
}

/// Sends uploads that are refused at once, and their remaining frames only after that.
fn upload_late(raw: &mut Raw, head: &[u8], rounds: u32, late: &[(u8, u8, &[u8])]) {
    // room for all refusals
    raw.send(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
    for round in 0..rounds {
        let streams = streams(1_001 + 200 * round, 95);
        let begun = streams
            .iter()
            .flat_map(|stream| frame(HEADERS, END_HEADERS, *stream, head));
        raw.write(&begun.collect::<Vec<_>>());
        raw.heads_of(&streams);
        for (kind, flags, payload) in late {
            let frames = streams
                .iter()
                .flat_map(|stream| frame(*kind, *flags, *stream, payload));
            raw.write(&frames.collect::<Vec<_>>());
        }
        assert!(!raw.is_announced_to_go(), "round {round}");
    }
}

#[test]
fn late_uploads_end_no_other_request() {
    let stage = Stage::new(&[("gateway.requests_per_minute", "5")]);
    let mut raw = Raw::connect(&stage);
    for number in 0..5 {
        raw.send(HEADERS, WHOLE, 1 + 2 * number, &call_of(b"192.0.2.1"));
    }
    let late = [
        (DATA, 0, &b"{"[..]),
        (DATA, 0, b"}"),
        (HEADERS, WHOLE, b"\x00\x01a\x01b"),
    ];
    upload_late(&mut raw, &call_of(b"192.0.2.1"), 25, &late);
    raw.send(HEADERS, END_HEADERS, 9_001, &call_of(b"192.0.2.2"));
    raw.send(DATA, END_STREAM, 9_001, QUESTION.as_bytes());
    assert_eq!(
        raw.outcome(9_001),
        Outcome::Status(200),
        "another client of the connection"
    );
}

#[test]
fn a_client_s_late_uploads_are_ignored() {
    let keys = [
        ("gateway.requests_per_minute", "1"),
        ("gateway.trusted_proxies", "[]"),
    ];
    let stage = Stage::new(&keys);
    let mut raw = Raw::connect(&stage);
    raw.send(HEADERS, END_HEADERS, 1, CALL);
    raw.send(DATA, END_STREAM, 1, QUESTION.as_bytes());
    assert_eq!(raw.outcome(1), Outcome::Status(200));
    upload_late(
        &mut raw,
        CALL,
        20,
        &[(DATA, 0, b"{"), (DATA, END_STREAM, b"}")],
    );
    raw.send(HEADERS, WHOLE, 9_001, &get(b"\x04\x08/healthz"));
    assert_eq!(
        raw.outcome(9_001),
        Outcome::Status(200),
        "the connection goes on"
    );
}

#[test]
fn unfinished_heads_of_one_client_are_bounded() {
    const CALM: u8 = 11;
    const REFUSED: usize = 8;
    let large = ("gateway.connections.header_size", "\"128 KiB\"");
    let stage = Stage::new(&[("gateway.trusted_proxies", "[]"), large]);
    // a value of 120,000 bytes
    let value = [&b"\x00\x01x\x7f\xc1\xa8\x07"[..], &[b'v'; 120_000]].concat();
    let head = [get(b"\x04\x08/healthz"), value].concat();
    let (begun, last) = head.split_at(head.len() - 10);
    let (first, more) = begun.split_at(16_000);
    let mut held: Vec<_> = (0..78)
        .map(|_| {
            let mut raw = Raw::connect(&stage);
            raw.send(HEADERS, END_STREAM, 1, first);
            more.chunks(16_000)
                .for_each(|part| raw.send(CONTINUATION, 0, 1, part));
            raw
        })
        .collect();
    // before a head is complete: then it makes room for another
    let refused = RefCell::new(BTreeSet::new());
    stage.edge.line("the refusals", |line| {
        let mut refused = refused.borrow_mut();
        if line["reason"] == "too_many_in_flight" {
            refused.insert(line["request_id"].to_string());
        }
        refused.len() >= REFUSED
    });
    held.iter_mut()
        .for_each(|raw| raw.send(CONTINUATION, END_HEADERS, 1, last));
    let answers: Vec<_> = held.iter_mut().map(Raw::answer).collect();
    let count = |wanted: &[Answer]| {
        answers
            .iter()
            .filter(|answer| wanted.contains(answer))
            .count()
    };
    assert!(count(&[Err(CALM)]) > 0, "{answers:?}");
    assert!(
        (REFUSED..20).contains(&count(&[Err(CALM), Err(0)])),
        "78 do not fit: {answers:?}"
    );
    assert!(
        count(&[Ok(Some(0x88))]) >= 50,
        "what fits is answered: {answers:?}"
    );
    let mut raw = Raw::connect(&stage);
    raw.send(HEADERS, WHOLE, 1, &get(b"\x04\x08/healthz"));
    assert_eq!(raw.outcome(1), Outcome::Status(200), "afterwards");
}

#[test]
fn malformed_requests_end_a_client_s_connection() {
    let stage = Stage::new(&[("gateway.trusted_proxies", "[]")]);
    let mut raw = Raw::connect(&stage);
    for stream in streams(1, 31) {
        raw.send(HEADERS, WHOLE, stream, &malformed());
    }
    raw.send(HEADERS, WHOLE, 101, &get(b"\x04\x08/healthz"));
    assert_eq!(raw.outcome(101), Outcome::Status(200), "31 of them");
    raw.send(HEADERS, WHOLE, 103, &malformed());
    while raw.receive().is_some() {}
}
