//! A file line by line, in bounded memory.

use std::io::{self, BufRead, Read as _};

/// 1 MiB: far beyond any record, and a bound for files without lines.
const MAX_LINE: usize = 1 << 20;

/// The lines of a file that are not blank.
pub(super) struct Lines<R> {
    from: R,
    line: Vec<u8>,
    /// The number of the current line, from 1.
    pub(super) number: u64,
    /// Bytes read so far.
    pub(super) bytes: u64,
}

/// A line.
pub(super) enum Line<'a> {
    /// Mutable, as the parser unescapes strings in place.
    Bytes(&'a mut [u8]),
    TooLong,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, line: Vec::new(), number: 0, bytes: 0 }
    }

    /// The next line; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            self.line.clear();
            if self.read()? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.line.len() > MAX_LINE {
                self.skip()?;
                return Ok(Some(Line::TooLong));
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some(Line::Bytes(&mut self.line)));
            }
        }
    }

    /// Reads to the end of the line, or one byte beyond the limit.
    fn read(&mut self) -> io::Result<usize> {
        let bound = MAX_LINE as u64 + 1;
        let read = self.from.by_ref().take(bound).read_until(b'\n', &mut self.line)?;
        self.bytes += read as u64;
        Ok(read)
    }

    /// Skips the rest of a line that is too long.
    fn skip(&mut self) -> io::Result<()> {
        while !self.line.ends_with(b"\n") {
            self.line.clear();
            if self.read()? == 0 {
                break;
            }
        }
        Ok(())
    }
}
