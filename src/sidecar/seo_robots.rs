//! `seo-robots`: what crawlers may look at (RFC 9309).
//!
//! Made from the configuration alone: a crawler that gets an error takes the whole site for
//! forbidden.

use super::document::Document;

/// What `/robots.txt` is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Robots<'a> {
    /// Where this program is reached.
    pub(super) base_url: &'a str,
    /// Whether crawlers may look at anything.
    pub(super) indexing: bool,
    /// Paths that are nothing to find.
    pub(super) disallow: &'a [String],
    /// Crawlers that may not look at anything.
    pub(super) blocked_agents: &'a [String],
}

/// Functions that are made for machines which obey `/robots.txt`. They come before the rule that
/// forbids the others, for readers that take the first rule that fits instead of the longest.
const ALLOWED: [&str; 2] = ["/functions/podcast-rss-feed", "/functions/seo-sitemap"];
/// The others, which answer with nothing to show.
const DISALLOWED: [&str; 2] = ["/functions/", "/xrpc/"];

/// The rules as a document.
pub(super) fn robots(settings: &Robots<'_>) -> Document {
    let mut rules = String::new();
    if settings.indexing {
        for agent in settings.blocked_agents {
            field(&mut rules, "User-agent", agent);
        }
        if !settings.blocked_agents.is_empty() {
            rules.push_str("Disallow: /\n\n");
        }
        field(&mut rules, "User-agent", "*");
        ALLOWED.iter().for_each(|path| field(&mut rules, "Allow", path));
        DISALLOWED.iter().for_each(|path| field(&mut rules, "Disallow", path));
        settings.disallow.iter().for_each(|path| field(&mut rules, "Disallow", path));
        rules.push('\n');
        field(&mut rules, "Sitemap", &format!("{}/sitemap.xml", settings.base_url));
    } else {
        rules.push_str("User-agent: *\nDisallow: /\n");
    }
    Document::new(rules.into(), "text/plain; charset=utf-8", None)
}

fn field(rules: &mut String, name: &str, value: &str) {
    rules.extend([name, ": ", value, "\n"]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(indexing: bool, disallow: &[&str], blocked_agents: &[&str]) -> String {
        let [disallow, blocked_agents] = [disallow, blocked_agents]
            .map(|list| list.iter().map(|one| String::from(*one)).collect::<Vec<_>>());
        let settings = Robots {
            base_url: "https://cards.example",
            indexing,
            disallow: &disallow,
            blocked_agents: &blocked_agents,
        };
        let document = robots(&settings);
        assert_eq!(document.media_type, "text/plain; charset=utf-8");
        String::from_utf8(document.body.into()).unwrap()
    }

    #[test]
    fn what_is_allowed_comes_before_what_is_not() {
        assert_eq!(
            text(true, &["/auth", "/settings"], &["GPTBot", "CCBot"]),
            "User-agent: GPTBot\n\
             User-agent: CCBot\n\
             Disallow: /\n\
             \n\
             User-agent: *\n\
             Allow: /functions/podcast-rss-feed\n\
             Allow: /functions/seo-sitemap\n\
             Disallow: /functions/\n\
             Disallow: /xrpc/\n\
             Disallow: /auth\n\
             Disallow: /settings\n\
             \n\
             Sitemap: https://cards.example/sitemap.xml\n"
        );
    }

    #[test]
    fn without_blocked_agents_there_is_one_group() {
        assert!(text(true, &[], &[]).starts_with("User-agent: *\nAllow: "));
    }

    #[test]
    fn without_indexing_everything_is_disallowed() {
        assert_eq!(text(false, &["/auth"], &["GPTBot"]), "User-agent: *\nDisallow: /\n");
    }
}
