//! `seo-robots`: the paths that crawlers may fetch (RFC 9309).
//!
//! Built from the configuration alone, so that it cannot fail: a crawler that gets an error treats
//! the whole site as forbidden.

use super::document::Document;
use crate::config::RobotsLive;

/// Functions for machines that obey `/robots.txt`. They precede the rule that forbids the others,
/// for crawlers that apply the first matching rule instead of the longest.
const ALLOWED: [&str; 2] = ["/functions/podcast-rss-feed", "/functions/seo-sitemap"];
/// The other functions have nothing to index.
const DISALLOWED: [&str; 2] = ["/functions/", "/xrpc/"];

/// The rules as a document.
pub(super) fn robots(base_url: &str, config: &RobotsLive) -> Document {
    let mut rules = String::new();
    if config.indexing {
        for agent in &config.blocked_agents {
            field(&mut rules, "User-agent", agent);
        }
        if !config.blocked_agents.is_empty() {
            rules.push_str("Disallow: /\n\n");
        }
        field(&mut rules, "User-agent", "*");
        ALLOWED
            .iter()
            .for_each(|path| field(&mut rules, "Allow", path));
        DISALLOWED
            .iter()
            .for_each(|path| field(&mut rules, "Disallow", path));
        config
            .disallow
            .iter()
            .for_each(|path| field(&mut rules, "Disallow", path));
        rules.push('\n');
        field(&mut rules, "Sitemap", &format!("{base_url}/sitemap.xml"));
    } else {
        rules.push_str("User-agent: *\nDisallow: /\n");
    }
    Document::new(rules.into(), "text/plain; charset=utf-8", None)
}

fn field(rules: &mut String, name: &str, value: &str) {
    rules.extend([name, ": ", value, "\n"]);
}
