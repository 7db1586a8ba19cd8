//! A request in parts, each of which may be distorted before it is written as tokens.

use crate::grammar::id_of;
use crate::oddities::spellings;
use crate::rng::Rng;

const CRLF: &[u8] = b"\r\n";
/// A request before it is written.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// Bytes before the request line.
    leading: &'static [u8],
    method: &'static [u8],
    target: &'static [u8],
    version: &'static [u8],
    host: &'static [u8],
    /// The value of `Content-Length`, as a template.
    length: Option<&'static [u8]>,
    /// The value of `Transfer-Encoding`.
    coding: Option<&'static [u8]>,
    /// Lines before those two, and behind them.
    before: Vec<Vec<u8>>,
    behind: Vec<Vec<u8>>,
    line_end: &'static [u8],
    /// The end of one line only.
    odd_end: Option<&'static [u8]>,
    body: Vec<u8>,
    chunks: Option<Chunks>,
    /// By how much the length, or the size of one chunk, is wrong.
    excess: i64,
    /// Bytes that are put anywhere.
    stray: Option<&'static [u8]>,
}

/// How the chunks of a body are written.
#[derive(Clone, Debug)]
struct Chunks {
    /// The template of one size; those of the others are plain.
    size: &'static [u8],
    size_end: &'static [u8],
    data_end: &'static [u8],
    last: &'static [u8],
    last_end: &'static [u8],
    trailers: &'static [u8],
    /// The empty line at the end.
    end: &'static [u8],
}

const CHUNKS: Chunks = Chunks {
    size: b"{x}",
    size_end: CRLF,
    data_end: CRLF,
    last: b"0",
    last_end: CRLF,
    trailers: b"",
    end: CRLF,
};

impl Draft {
    /// A well-formed request of any kind.
    pub(crate) fn new(rng: &mut Rng) -> Self {
        const LENGTH: Option<&[u8]> = Some(b"{}");
        let (method, target, length, chunks): (&[u8], &[u8], _, _) = match rng.below(20) {
            0..=8 => (b"POST", b"/rpc", LENGTH, None),
            9..=15 => (b"POST", b"/rpc", None, Some(CHUNKS)),
            16 => (b"GET", b"/healthz", None, None),
            17 => (b"POST", b"/nothing", LENGTH, None),
            18 => (b"HEAD", b"/healthz", LENGTH, None),
            _ => (b"OPTIONS", b"/rpc", None, None),
        };
        Self {
            leading: b"",
            method,
            target,
            version: b"HTTP/1.1",
            host: b"Host: edge.test",
            length,
            coding: chunks.as_ref().map(|_| &b"chunked"[..]),
            before: vec![b"Content-Type: application/json".to_vec()],
            behind: Vec::new(),
            line_end: CRLF,
            odd_end: None,
            body: Vec::new(),
            chunks,
            excess: 0,
            stray: None,
        }
    }

    /// Sets the body, with the id of this place in the stream.
    pub(crate) fn set_body(&mut self, rng: &mut Rng, index: u64, place: usize) {
        let read = read_with(&id_of(index, place));
        self.body = match rng.below(16) {
            _ if self.length.is_none() && self.coding.is_none() => Vec::new(),
            0 => hidden(&read_with(&id_of(index, "hidden"))),
            1 => format!("{read}\r\n").into_bytes(),
            2 => format!("\n {read}").into_bytes(),
            3 => Vec::new(),
            _ => read.into_bytes(),
        };
    }

    /// Makes one part unusual or malformed.
    pub(crate) fn distort(&mut self, rng: &mut Rng) {
        match rng.below(100) {
            0..=3 => self.method = rng.pick(spellings("methods")),
            4..=10 => self.target = rng.pick(spellings("targets")),
            11..=13 => self.version = rng.pick(spellings("versions")),
            14..=18 => self.host = rng.pick(spellings("hosts")),
            19..=27 => self.length = Some(rng.pick(spellings("lengths"))),
            28..=35 => self.coding = Some(rng.pick(spellings("codings"))),
            36..=38 => {
                self.length = self.length.or(Some(b"{}"));
                self.coding = self.coding.or(Some(b"chunked"));
            }
            39..=57 => self.distort_chunks(rng),
            58..=67 => self.add(rng, b"", spellings("plain fields")),
            68..=71 => self.add(rng, b"", spellings("malformed fields")),
            72..=73 => self.line_end = rng.pick(&spellings("line ends")[..4]),
            74..=76 => self.odd_end = Some(rng.pick(spellings("line ends"))),
            77..=82 => self.add(rng, b"Connection: ", spellings("connections")),
            83..=85 => self.add(rng, b"Expect: ", spellings("expectations")),
            86..=90 => self.leading = rng.pick(spellings("between requests")),
            91..=95 => self.excess = rng.pick(&[-9, -2, -1, 1, 2, 7, 30, 5000]),
            _ => self.stray = Some(rng.pick(spellings("bytes"))),
        }
    }

    fn add(&mut self, rng: &mut Rng, name: &[u8], values: &[&'static [u8]]) {
        let line = [name, rng.pick(values)].concat();
        if rng.percent(50) {
            self.before.push(line)
        } else {
            self.behind.push(line)
        }
    }

    fn distort_chunks(&mut self, rng: &mut Rng) {
        let Some(chunks) = &mut self.chunks else {
            // chunks that the head does not announce
            self.chunks = rng.percent(20).then_some(CHUNKS);
            return;
        };
        match rng.below(20) {
            0..=8 => chunks.size = rng.pick(spellings("chunk sizes")),
            9..=11 => chunks.last = rng.pick(spellings("last chunks")),
            12..=16 => chunks.trailers = rng.pick(spellings("trailers")),
            17 => chunks.size_end = rng.pick(spellings("line ends")),
            18 => chunks.data_end = rng.pick(spellings("line ends")),
            _ if rng.percent(50) => chunks.last_end = rng.pick(spellings("line ends")),
            _ => chunks.end = rng.pick(spellings("line ends")),
        }
    }

    /// Appends the request.
    pub(crate) fn write(&self, rng: &mut Rng, tokens: &mut Vec<Vec<u8>>) {
        let first = tokens.len();
        let mut body = Vec::new();
        match &self.chunks {
            Some(chunks) => self.write_chunks(rng, chunks, &mut body),
            None => body.push(self.body.clone()),
        }
        self.write_head(rng, body.concat().len(), tokens);
        tokens.append(&mut body);
        if let Some(stray) = self.stray {
            let place = first + rng.below(tokens.len() - first);
            let at = rng.below(tokens[place].len() + 1);
            let rest = tokens[place].split_off(at);
            // in the place of a byte, or before it
            let rest = if rng.percent(50) {
                rest.get(1..).unwrap_or_default()
            } else {
                &rest
            };
            tokens.splice(place + 1..place + 1, [stray.to_vec(), rest.to_vec()]);
        }
    }

    fn write_head(&self, rng: &mut Rng, body: usize, tokens: &mut Vec<Vec<u8>>) {
        let length = usize::try_from(body as i64 + self.excess).unwrap_or(0);
        let mut lines = vec![self.host.to_vec()];
        lines.extend(self.before.iter().cloned());
        let mut framing = Vec::new();
        if let Some(template) = self.length {
            framing.push([&b"Content-Length: "[..], &filled(template, length)].concat());
        }
        if let Some(coding) = self.coding {
            framing.push([&b"Transfer-Encoding: "[..], coding].concat());
        }
        if rng.percent(50) {
            framing.reverse();
        }
        lines.append(&mut framing);
        lines.extend(self.behind.iter().cloned());
        lines.retain(|line| !line.is_empty());
        tokens.push(self.leading.to_vec());
        for part in [self.method, b" ", self.target, b" ", self.version] {
            tokens.push(part.to_vec());
        }
        // one line end more than there are lines
        let count = lines.len();
        let odd = rng.below(count + 2);
        let end = |at| {
            self.odd_end
                .filter(|_| at == odd)
                .unwrap_or(self.line_end)
                .to_vec()
        };
        tokens.push(end(0));
        for (at, line) in lines.into_iter().enumerate() {
            tokens.extend([line, end(at + 1)]);
        }
        tokens.push(end(count + 1));
    }

    fn write_chunks(&self, rng: &mut Rng, chunks: &Chunks, tokens: &mut Vec<Vec<u8>>) {
        let mut pieces = Vec::new();
        let mut rest = self.body.as_slice();
        while !rest.is_empty() {
            let (piece, more) = rest.split_at(1 + rng.below(rest.len()));
            pieces.push(piece);
            rest = more;
        }
        let odd = rng.below(pieces.len().max(1));
        for (at, piece) in pieces.into_iter().enumerate() {
            let (size, size_end, data_end, excess) = match at == odd {
                true => (chunks.size, chunks.size_end, chunks.data_end, self.excess),
                false => (CHUNKS.size, CRLF, CRLF, 0),
            };
            let length = usize::try_from(piece.len() as i64 + excess).unwrap_or(0);
            let size = filled(size, length);
            tokens.extend([size, size_end.to_vec(), piece.to_vec(), data_end.to_vec()]);
        }
        tokens.extend([chunks.last.to_vec(), chunks.last_end.to_vec()]);
        if !chunks.trailers.is_empty() {
            tokens.extend([chunks.trailers.to_vec(), CRLF.to_vec()]);
        }
        tokens.push(chunks.end.to_vec());
    }
}

/// A JSON-RPC request with this id.
pub(crate) fn read_with(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"starknet_chainId","params":[]}}"#)
}

/// The end of chunks and another request: a body in which no reader may find either.
fn hidden(read: &str) -> Vec<u8> {
    let length = read.len();
    format!(
        "0\r\n\r\nPOST /rpc HTTP/1.1\r\nHost: edge.test\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{read}"
    )
    .into_bytes()
}

/// A template with this length.
fn filled(template: &[u8], length: usize) -> Vec<u8> {
    let forms = [
        (&b"{}"[..], length.to_string()),
        (b"{x}", format!("{length:x}")),
        (b"{X}", format!("{length:X}")),
    ];
    let mut filled = template.to_vec();
    for (place, text) in forms {
        while let Some(at) = filled.windows(place.len()).position(|bytes| bytes == place) {
            filled.splice(at..at + place.len(), text.bytes());
        }
    }
    filled
}
