//! Disagreements in which the program is right. Each has a shortest stream that shows it, which a
//! test sends, so that an entry goes when its judge has changed.

use crate::differ::Difference;

/// A disagreement with one judge, and the reason why the program is right.
pub(crate) struct Known {
    pub(crate) judge: &'static str,
    pub(crate) reason: &'static str,
    /// The shortest stream that shows it, escaped.
    pub(crate) shown_by: &'static str,
    /// Whether a disagreement is this one.
    pub(crate) matches: fn(stream: &[u8], difference: &Difference) -> bool,
}

/// All of them.
pub(crate) const KNOWN: &[Known] = &[
    Known {
        judge: "llhttp",
        reason: "llhttp obeys `Connection: close` in a trailer; a trailer is no header field \
                 (RFC 9110, section 6.5.1), and where the request ends is the same",
        shown_by: concat!(
            r"POST /rpc HTTP/1.1\r\nHost: edge.test\r\nContent-Type: application/json\r\n",
            r"Transfer-Encoding: chunked\r\n\r\n",
            r"0\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\nHost: edge.test\r\n\r\n",
        ),
        matches: |stream, difference| {
            matches!(difference, Difference::Boundary { .. })
                && contains(stream, b"\r\nConnection: close\r\n\r\n")
        },
    },
    Known {
        judge: "llhttp",
        reason: "llhttp does not know `chunked` with a tab behind it, which is white space \
                 (RFC 9110, section 5.6.3): it refuses that, except in a request to upgrade, \
                 whose body it skips",
        shown_by: concat!(
            r"POST /rpc HTTP/1.1\r\nHost: edge.test\r\nContent-Type: application/json\r\n",
            r"Connection: upgrade\r\nUpgrade: websocket\r\n",
            r"Transfer-Encoding: chunked\t\r\n\r\n1\r\na\r\n0\r\n\r\n",
        ),
        matches: |stream, difference| {
            let is_skipped = match difference {
                Difference::Other { theirs, .. } => theirs.body.is_empty(),
                _ => false,
            };
            let has_tab = [&b"chunked\t"[..], b"chunked \t"]
                .iter()
                .any(|end| contains(stream, end));
            is_skipped && has_tab && contains(stream, b"\r\nUpgrade: ")
        },
    },
    Known {
        judge: "hyper",
        reason: "hyper closes without a response where the preface of HTTP/2 follows a request \
                 that it refuses, here for its target; otherwise it answers that with 400",
        shown_by: concat!(
            r"TRACE ?x HTTP/1.1\r\nHost: edge.test\r\n\r\n",
            r"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ),
        matches: |stream, difference| {
            matches!(difference, Difference::Longer { .. })
                && contains(stream, b"\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        },
    },
];

fn contains(stream: &[u8], part: &[u8]) -> bool {
    stream.windows(part.len()).any(|bytes| bytes == part)
}
