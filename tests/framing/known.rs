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
pub(crate) const KNOWN: &[Known] = &[Known {
    judge: "llhttp",
    reason: "llhttp obeys `Connection: close` in a trailer; a trailer is no header field \
             (RFC 9110, section 6.5.1), and where the request ends is the same",
    shown_by: concat!(
        r"POST /rpc HTTP/1.1\r\nHost: edge.test\r\nContent-Type: application/json\r\n",
        r"Transfer-Encoding: chunked\r\n\r\n",
        r"0\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\nHost: edge.test\r\n\r\n",
    ),
    matches: |stream, difference| {
        let trailer = b"\r\nConnection: close\r\n\r\n";
        matches!(difference, Difference::Boundary { .. })
            && stream.windows(trailer.len()).any(|bytes| bytes == trailer)
    },
}];
