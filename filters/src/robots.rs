//! A rule of `robots.txt` (RFC 9309, section 2.2.2): which paths it forbids.
//!
//! In: the rule and a path, both in ASCII. `*` matches any bytes, and `$` at the end of a rule is
//! the end of the path. Percent-encoded bytes are compared as they are written.

/// A rule of `robots.txt`.
#[derive(Clone, Copy, Debug)]
pub struct Rule<'a>(pub &'a str);

impl<'a> Rule<'a> {
    /// The beginning of every path that the rule matches.
    pub fn prefix(self) -> &'a str {
        let (pattern, _) = self.parts();
        pattern.split_once('*').map_or(pattern, |(first, _)| first)
    }

    /// Whether the rule matches the path, with its query.
    pub fn matches(self, path: &str) -> bool {
        let (pattern, is_whole) = self.parts();
        let mut pieces = pattern.split('*');
        let first = pieces.next().unwrap_or_default();
        let Some(mut rest) = path.strip_prefix(first) else {
            return false;
        };
        let mut pieces = pieces.peekable();
        if pieces.peek().is_none() {
            return !is_whole || rest.is_empty();
        }
        while let Some(piece) = pieces.next() {
            if is_whole && pieces.peek().is_none() {
                return rest.ends_with(piece);
            }
            let Some((_, after)) = rest.split_once(piece) else {
                return false;
            };
            rest = after;
        }
        true
    }

    /// The pattern, and whether a path must end with it.
    fn parts(self) -> (&'a str, bool) {
        match self.0.strip_suffix('$') {
            Some(pattern) => (pattern, true),
            None => (self.0, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_matches_as_the_standard_says() {
        for (rule, path, matches) in [
            ("/auth/", "/auth/login", true),
            ("/auth/", "/auth", false),
            ("/auth/", "/authors", false),
            ("/auth", "/authors", true),
            ("/auth$", "/auth", true),
            ("/auth$", "/auth?next=/", false),
            ("/auth$", "/authors", false),
            ("/search?", "/search?q=mew", true),
            ("/", "/", true),
            ("/*.pdf$", "/a/b.pdf", true),
            ("/*.pdf$", "/a/b.pdf?x", false),
            ("/*.pdf", "/a/b.pdf?x", true),
            ("/a*b*c", "/a1b2c3", true),
            ("/a*b*c", "/a1c2b3", false),
            ("/a*b*c$", "/a1b2c3", false),
            ("/a*b*c$", "/abbcc", true),
            ("/a*a$", "/a", false),
            ("/a**b", "/ab", true),
            ("/a*$", "/a/anything", true),
            ("/A", "/a", false),
        ] {
            assert_eq!(Rule(rule).matches(path), matches, "{rule} on {path}");
            assert!(!matches || path.starts_with(Rule(rule).prefix()), "{rule}");
        }
    }
}
