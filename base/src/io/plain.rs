//! Characters that change how a terminal shows others.

/// Whether a character neither controls a terminal nor invisibly changes how it shows others.
pub fn is_plain(c: char) -> bool {
    let is_format = matches!(
        c,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    );
    !c.is_control() && !is_format
}
