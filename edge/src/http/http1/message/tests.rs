//! Which heads and bodies are read, refused, and recognized.

use super::*;

fn framing_of(lines: &str) -> Result<(BodyReader, bool), Reason> {
    let head = Bytes::from(format!("{}\r\n\r\n", lines.replace('\n', "\r\n")));
    parse(&head).map(|head| (head.body, head.keeps_alive))
}

#[test]
fn framing_and_persistence_are_read_strictly() {
    let (none, framing) = (BodyReader::DONE, Err(Reason::ConflictingFraming));
    for (lines, expected) in [
        ("GET / HTTP/1.1\nHost: x", Ok((none, true))),
        (
            "GET / HTTP/1.1\nHost: x\nConnection: close",
            Ok((none, false)),
        ),
        (
            "GET / HTTP/1.1\nHost: x\nConnection: keep-alive, Close",
            Ok((none, false)),
        ),
        ("GET / HTTP/1.0\nHost: x", Ok((none, false))),
        ("GET / HTTP/1.0\nConnection: Keep-Alive", Ok((none, true))),
        (
            "POST / HTTP/1.1\nContent-Length: 012",
            Ok((BodyReader::Length(12), true)),
        ),
        ("POST / HTTP/1.1\nContent-Length: 3, 3", framing),
        (
            "POST / HTTP/1.1\nContent-Length: 3\nContent-Length: 3",
            framing,
        ),
        (
            "POST / HTTP/1.1\nContent-Length: 3\nContent-Length: 4",
            framing,
        ),
        ("POST / HTTP/1.1\nContent-Length: +3", framing),
        ("POST / HTTP/1.1\nContent-Length:", framing),
        ("POST / HTTP/1.1\nContent-Length: 3,", framing),
        (
            "POST / HTTP/1.1\nTransfer-Encoding: Chunked",
            Ok((BodyReader::ChunkSize, true)),
        ),
        ("POST / HTTP/1.0\nTransfer-Encoding: chunked", framing),
        (
            "POST / HTTP/1.1\nTransfer-Encoding: chunked\nTransfer-Encoding: gzip",
            framing,
        ),
        ("POST / HTTP/1.1\nTransfer-Encoding: chunked, gzip", framing),
        ("POST / HTTP/1.1\nTransfer-Encoding : chunked", framing),
    ] {
        assert_eq!(framing_of(lines), expected, "{lines:?}");
    }
}

#[test]
fn absolute_targets_have_a_path_and_a_host() {
    for (target, expected) in [
        ("http://a/b?c", Some(("/b?c", Some("a")))),
        ("HTTPS://a:80", Some(("/", Some("a:80")))),
        ("http://[::1]?b", Some(("/?b", Some("[::1]")))),
        ("/http://a/b", Some(("/http://a/b", None))),
        ("ftp://a/b", Some(("ftp://a/b", None))),
        ("http://a@b/c", None),
        ("http:///a", None),
        ("http://:80/a", None),
    ] {
        let found = Target::parse(target);
        let found = found.as_ref().map(|found| (&*found.path, found.host));
        assert_eq!(found, expected, "{target}");
    }
}

#[test]
fn malformed_heads_are_refused_with_their_reason() {
    let many = format!("GET / HTTP/1.1{}", "\nX: y".repeat(MAX_FIELDS + 1));
    for (lines, reason) in [
        ("CONNECT x:1 HTTP/1.1\nHost: x:1", Reason::WrongHttpMethod),
        ("GET /#x HTTP/1.1\nHost: x", Reason::InvalidRequest),
        ("GET /a b HTTP/1.1\nHost: x", Reason::InvalidRequest),
        ("GET / HTTP/1.1\nHost: x\nHost: x", Reason::InvalidRequest),
        ("GET http://u@y/ HTTP/1.1\nHost: x", Reason::InvalidRequest),
        ("GET / HTTP/1.1\nX: a\n b", Reason::InvalidRequest),
        ("GET / HTTP/1.1\nX : a", Reason::InvalidRequest),
        ("GET / HTTP/2.0\nHost: x", Reason::InvalidRequest),
        (&many, Reason::HeaderTooLarge),
    ] {
        assert_eq!(framing_of(lines), Err(reason), "{lines:?}");
    }
}

#[test]
fn a_head_ends_at_its_first_empty_line() {
    for (read, end) in [
        ("GET / HTTP/1.1\r\n\r\nx", Some(18)),
        ("GET / HTTP/1.1\n\nx", Some(16)),
        ("\r\n\nGET / HTTP/1.1\r\n\r\n", Some(21)),
        ("GET / HTTP/1.1\r\n", None),
        ("\r\n\r\n", None),
    ] {
        assert_eq!(end_of_head(read.as_bytes(), 0), end, "{read:?}");
    }
}

/// Decodes `bytes` that arrive in pieces of `step`; returns the body, and the bytes after it.
fn decoded(mut reader: BodyReader, bytes: &[u8], step: usize) -> Result<(Vec<u8>, Vec<u8>), &str> {
    let (mut buffer, mut body) = (BytesMut::new(), Vec::new());
    let mut pieces = bytes.chunks(step);
    loop {
        match reader.decode(&mut buffer) {
            Err(Malformed) => return Err("malformed"),
            Ok(Decoded::Piece(piece)) => body.extend_from_slice(&piece),
            Ok(Decoded::End) => {
                pieces.for_each(|piece| buffer.extend_from_slice(piece));
                return Ok((body, buffer.to_vec()));
            }
            Ok(Decoded::Incomplete) => match pieces.next() {
                Some(piece) => buffer.extend_from_slice(piece),
                None => return Err("incomplete"),
            },
        }
    }
}

#[test]
fn a_body_ends_where_its_framing_says() {
    let long = format!("0\r\n{}", "X: y\r\n".repeat(2000));
    let extension = format!("3;{}", "a".repeat(10_000));
    for (reader, bytes, body) in [
        (BodyReader::Length(0), "GET", Ok("")),
        (BodyReader::Length(3), "abcGET", Ok("abc")),
        (BodyReader::Length(4), "abc", Err("incomplete")),
        (BodyReader::ChunkSize, "3\r\nabc\r\n0\r\n\r\nGET", Ok("abc")),
        (
            BodyReader::ChunkSize,
            "3;x=\"y\"\r\nabc\r\n02\r\nde\r\n0\r\nX: y\r\n\r\n",
            Ok("abcde"),
        ),
        (
            BodyReader::ChunkSize,
            "A\r\n0123456789\r\n000\r\n\r\n",
            Ok("0123456789"),
        ),
        (
            BodyReader::ChunkSize,
            "3\r\nabc\r\n0\r\n",
            Err("incomplete"),
        ),
        (BodyReader::ChunkSize, "3\r\nab", Err("incomplete")),
        (
            BodyReader::ChunkSize,
            "\r\nabc\r\n0\r\n\r\n",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            " 3\r\nabc\r\n0\r\n\r\n",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            "+3\r\nabc\r\n0\r\n\r\n",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            "0x3\r\nabc\r\n0\r\n\r\n",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            "10000000000000003\r\nabc",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            "3\nabc\r\n0\r\n\r\n",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            "3\r\nabcX0\r\n\r\n",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            "3\r\nabc\n0\r\n\r\n",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            "3;a\tb=\"ä\"\r\nabc\r\n0;\r\nX:\r\n\r\n",
            Ok("abc"),
        ),
        (
            BodyReader::ChunkSize,
            "3;\nabc\r\n0\r\n\r\n",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            "3;a=\"\n\"\r\nabc\r\n0\r\n\r\n",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            "3;\n\r\nabc\r\n0\r\n\r\n",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            "3;a\rb\r\nabc\r\n0\r\n\r\n",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            "3;\0\r\nabc\r\n0\r\n\r\n",
            Err("malformed"),
        ),
        (BodyReader::ChunkSize, "0;\n\r\n\r\n", Err("malformed")),
        (BodyReader::ChunkSize, "0\r\nX: y\n\r\n", Err("malformed")),
        (
            BodyReader::ChunkSize,
            "0\r\nX: y\rz\r\n\r\n",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            "0\r\nX: \0\r\n\r\n",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            "0\r\nX : y\r\n\r\n",
            Err("malformed"),
        ),
        (
            BodyReader::ChunkSize,
            "0\r\nX: y\r\n z\r\n\r\n",
            Err("malformed"),
        ),
        (BodyReader::ChunkSize, "0\r\n: y\r\n\r\n", Err("malformed")),
        (
            BodyReader::ChunkSize,
            "0\r\nGET / HTTP/1.1\r\n\r\n",
            Err("malformed"),
        ),
        (BodyReader::ChunkSize, "0\r\n \r\n\r\n", Err("malformed")),
        (BodyReader::ChunkSize, &long, Err("malformed")),
        (BodyReader::ChunkSize, &extension, Err("malformed")),
    ] {
        for step in [1, 2, 7, 1 << 20] {
            let found = decoded(reader, bytes.as_bytes(), step);
            let rest = if bytes.ends_with("GET") { "GET" } else { "" };
            let expected = body.map(|body| (body.as_bytes().to_vec(), rest.as_bytes().to_vec()));
            assert_eq!(found, expected, "{reader:?} {bytes:?} by {step}");
        }
    }
}

#[test]
fn only_an_exact_body_is_taken_whole() {
    for (length, is_whole) in [(3, true), (2, false), (4, false)] {
        let mut buffer = BytesMut::from("abc");
        let whole = BodyReader::Length(length).take_whole(&mut buffer);
        assert_eq!(whole.is_some(), is_whole, "{length} of 3 bytes");
    }
    assert_eq!(BodyReader::ChunkSize.take_whole(&mut BytesMut::new()), None);
}

const HEAD: &str = "POST /rpc HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\nAccept: */*\r\n\r\n";

fn plain_header(length: usize) -> RequestHeader {
    let mut header = RequestHeader::build("POST", b"/rpc", None).expect("a head");
    for (name, value) in [("Host", "x"), ("Content-Length", &length.to_string())] {
        header
            .insert_header(name.to_owned(), value)
            .expect("a field");
    }
    header
}

fn cached() -> CachedHead {
    CachedHead::new(HEAD.as_bytes(), &plain_header(12)).expect("a head with one plain length")
}

#[test]
fn only_whole_requests_match_a_cached_head() {
    let same = |length: &str, body: &str| {
        HEAD.replace("Content-Length: 12", &format!("Content-Length: {length}")) + body
    };
    for (read, body) in [
        (same("12", "123456789012"), Some("123456789012")),
        (same("3", "abc"), Some("abc")),
        (same("0", ""), Some("")),
        (same("3", "ab"), None),
        (same("3", "abcd"), None),
        (same("03", "abc"), None),
        (same("+3", "abc"), None),
        (same(" 3", "abc"), None),
        (same("3 ", "abc"), None),
        (same("", ""), None),
        (same("3\r\nX: y", "abc"), None),
        (same("99999999", "abc"), None),
        (same("3", "abc").replace("Host", "host"), None),
        (same("3", "abc").replace("/rpc", "/RPC"), None),
        (same("3", "abc").replace("*/*", "*/x"), None),
        (format!("\r\n{}", same("3", "abc")), None),
    ] {
        let mut bytes = BytesMut::from(read.as_bytes());
        let found = cached().take_match(&mut bytes);
        let length = found.as_ref().map(|(_, length)| *length);
        assert_eq!(length, body.map(|body| body.len() as u64), "{read:?}");
        if let (Some((header, _)), Some(body)) = (found, body) {
            let length = header.headers.get(CONTENT_LENGTH);
            assert_eq!(length, None, "the length of another request");
            assert_eq!(bytes, body, "only the body is left");
        }
    }
}

#[test]
fn a_head_with_other_framing_is_never_cached() {
    for (line, instead) in [
        ("Accept: */*", "Content-Length: 12"),
        ("Accept: */*", "content-length:12"),
        ("Content-Length: 12", "Content-Length: 012"),
        ("Content-Length: 12", "Content-Length: 12, 12"),
        ("Content-Length: 12", "Content-Length:12"),
        ("Content-Length: 12\r\n", "Content-Length: 12\n"),
        ("Content-Length: 12\r\n", ""),
    ] {
        let head = HEAD.replace(line, instead);
        assert!(
            CachedHead::new(head.as_bytes(), &plain_header(12)).is_none(),
            "{head:?}"
        );
    }
    for (name, value) in [
        ("Connection", "close"),
        ("Expect", "100-continue"),
        ("Transfer-Encoding", "chunked"),
    ] {
        let mut header = plain_header(12);
        header.insert_header(name, value).expect("a field");
        assert!(
            CachedHead::new(HEAD.as_bytes(), &header).is_none(),
            "{name}"
        );
    }
    let long = HEAD.replace("*/*", &"x".repeat(MAX_CACHED_SIZE));
    assert!(
        CachedHead::new(long.as_bytes(), &plain_header(12)).is_none(),
        "an idle connection is small"
    );
    let mut header = plain_header(12);
    for field in 0..MAX_CACHED_FIELDS {
        header
            .insert_header(format!("x-{field}"), "")
            .expect("a field");
    }
    assert!(
        CachedHead::new(HEAD.as_bytes(), &header).is_none(),
        "and so is what is made of it"
    );
    let mut header = plain_header(12);
    header.set_version(Version::HTTP_10);
    assert!(
        CachedHead::new(HEAD.as_bytes(), &header).is_none(),
        "HTTP/1.0"
    );
}

#[test]
fn heads_may_differ_in_the_length_only() {
    let other = |from: &str, to: &str| HEAD.replace(from, to);
    for (head, alike) in [
        (HEAD.to_owned(), true),
        (other(": 12", ": 7"), true),
        (other(": 12", ": 65536"), true),
        (other("Host", "host"), false),
        (other("*/*", "*/x"), false),
        (other("Length: 12", "Length: 1x"), false),
        (String::new(), false),
    ] {
        let found = differ_in_length_only(HEAD.as_bytes(), head.as_bytes());
        assert_eq!(found, alike, "{head:?}");
    }
}
