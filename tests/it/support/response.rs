//! A strict response parser: it rejects anything that a careless server could get wrong.
//!
//! In: the head of a response. Out: a [`Response`] that knows its framing. It never guesses: two
//! framings, bare line feeds, a signed length or bytes after the end are errors.

use std::io::Read as _;

use flate2::bufread::GzDecoder;

/// How the end of a response is determined.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Framing {
    /// No body can follow.
    Bodiless,
    /// `Content-Length`.
    Length,
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The end of the connection.
    Close,
}

/// One complete, well-formed response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) version: String,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) framing: Framing,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The value of a header that may occur once; panics if it occurs twice.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self
            .headers
            .iter()
            .filter(|(own, _)| own.eq_ignore_ascii_case(name));
        let first = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is sent twice: {self:?}");
        first
    }

    /// The body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("an answer of the edge is UTF-8")
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("the body is not JSON ({error}): {self:?}"),
        }
    }

    /// The body without its content coding, which is one whole gzip member if it is named.
    pub(crate) fn decoded(&self) -> Vec<u8> {
        match self.header("Content-Encoding") {
            Some("gzip") if !self.body.is_empty() => gunzip(&self.body),
            None | Some("gzip") => self.body.clone(),
            Some(coding) => panic!("the edge knows no {coding}: {self:?}"),
        }
    }

    /// True if the response has `Connection: close`.
    pub(crate) fn announces_close(&self) -> bool {
        self.header("Connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// The contents of one gzip member, after which nothing may follow.
fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let (mut decoder, mut text) = (GzDecoder::new(bytes), Vec::new());
    decoder
        .read_to_end(&mut text)
        .expect("a body in gzip is whole, with the right checksum");
    assert!(
        decoder.into_inner().is_empty(),
        "nothing follows a body in gzip"
    );
    text
}

/// Parses one whole response from bytes that ended with the connection.
pub(crate) fn parse_whole(bytes: &[u8]) -> Result<Response, String> {
    let end = bytes
        .windows(4)
        .position(|seen| seen == b"\r\n\r\n")
        .ok_or("no end of the head")?;
    let mut response = parse_head(&bytes[..end])?;
    response.body = bytes[end + 4..].to_vec();
    match response.framing {
        Framing::Chunked => Err("chunks are not expected here".into()),
        Framing::Bodiless if !response.body.is_empty() => Err("a body that cannot be".into()),
        Framing::Length => {
            let stated = content_length(&response.headers)?;
            let came = response.body.len();
            if stated == came {
                Ok(response)
            } else {
                Err(format!("{stated} declared, {came} received"))
            }
        }
        _ => Ok(response),
    }
}

/// Parses a head, without its empty line.
pub(crate) fn parse_head(head: &[u8]) -> Result<Response, String> {
    let text = std::str::from_utf8(head).map_err(|_| "the head is not ASCII".to_owned())?;
    let mut lines = text.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let (version, rest) = status_line.split_once(' ').ok_or("no status line")?;
    let (status, phrase) = rest.split_once(' ').ok_or("no space after the status")?;
    if version != "HTTP/1.1" && version != "HTTP/1.0" {
        return Err(format!("unknown version {version:?}"));
    }
    if status.len() != 3
        || !phrase
            .chars()
            .all(|own| own == ' ' || own.is_ascii_graphic())
    {
        return Err(format!("bad status line {status_line:?}"));
    }
    let status: u16 = status
        .parse()
        .map_err(|_| format!("bad status {status:?}"))?;
    let headers = lines.map(parse_header).collect::<Result<Vec<_>, _>>()?;
    let framing = framing_of(status, &headers)?;
    Ok(Response {
        version: version.into(),
        status,
        headers,
        framing,
        body: Vec::new(),
    })
}

/// Parses one header line.
pub(crate) fn parse_header(line: &str) -> Result<(String, String), String> {
    let (name, value) = line
        .split_once(':')
        .ok_or_else(|| format!("no colon in {line:?}"))?;
    let token = |own: char| own.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(own);
    if name.is_empty() || !name.chars().all(token) {
        return Err(format!("bad header name {name:?}"));
    }
    if value
        .chars()
        .any(|own| own.is_ascii_control() && own != '\t')
    {
        return Err(format!("bad header value {value:?}"));
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

fn framing_of(status: u16, headers: &[(String, String)]) -> Result<Framing, String> {
    let lines = |wanted: &str| {
        headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .collect::<Vec<_>>()
    };
    let (lengths, codings) = (lines("content-length"), lines("transfer-encoding"));
    let bodiless = status < 200 || status == 204;
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) if bodiless || status == 304 => Ok(Framing::Bodiless),
        _ if bodiless => Err(format!("{status} cannot have a length or a coding")),
        (_, []) if status == 304 => Ok(Framing::Bodiless),
        ([_], []) => Ok(Framing::Length),
        ([], [(_, coding)]) if coding == "chunked" => Ok(Framing::Chunked),
        ([], []) => Ok(Framing::Close),
        _ => Err("more than one framing".into()),
    }
}

/// The length declared by the headers.
pub(crate) fn content_length(headers: &[(String, String)]) -> Result<usize, String> {
    let found = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let value = found.map(|(_, value)| value.as_str()).unwrap_or_default();
    if value.is_empty() || !value.bytes().all(|own| own.is_ascii_digit()) {
        return Err(format!("bad Content-Length {value:?}"));
    }
    value
        .parse()
        .map_err(|_| format!("bad Content-Length {value:?}"))
}

/// Parses the line that starts a chunk.
pub(crate) fn chunk_size(line: &[u8]) -> Result<usize, String> {
    let text = std::str::from_utf8(line).map_err(|_| "bad chunk size".to_owned())?;
    if text.is_empty() || !text.bytes().all(|own| own.is_ascii_hexdigit()) {
        return Err(format!("bad chunk size {text:?}"));
    }
    usize::from_str_radix(text, 16).map_err(|_| format!("bad chunk size {text:?}"))
}

#[test]
fn the_client_rejects_malformed_responses() {
    let cases: [(&str, &[u8]); 9] = [
        (
            "two lengths",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        ),
        (
            "a signed length",
            b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx",
        ),
        ("a body after 204", b"HTTP/1.1 204 No Content\r\n\r\nx"),
        (
            "a length on 204",
            b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
        ),
        (
            "a space in a name",
            b"HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\nx",
        ),
        (
            "a bare line feed",
            b"HTTP/1.1 200 OK\r\nA: b\nContent-Length: 1\r\n\r\nx",
        ),
        (
            "a byte too many",
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy",
        ),
        (
            "a byte too few",
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nx",
        ),
        (
            "another version",
            b"HTTP/2.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
        ),
    ];
    for (what, bytes) in cases {
        assert!(
            parse_whole(bytes).is_err(),
            "{what} must not pass for an answer"
        );
    }
    let fine = parse_whole(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").unwrap();
    assert_eq!(
        (fine.status, fine.text()),
        (200, "x"),
        "a plain answer passes"
    );
}
