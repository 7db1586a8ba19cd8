//! `seo-robots`: the paths that crawlers may fetch (RFC 9309).
//!
//! Built from the configuration alone: a crawler that gets an error takes the whole site for
//! forbidden.

use super::document::Document;
use crate::config::RobotsConfig;

/// Functions for machines that obey `/robots.txt`. They precede the rule that forbids the others,
/// for crawlers that apply the first matching rule instead of the longest.
const ALLOWED: [&str; 2] = ["/functions/podcast-rss-feed", "/functions/seo-sitemap"];
/// The others have nothing to index.
const DISALLOWED: [&str; 2] = ["/functions/", "/xrpc/"];

/// The rules as a document.
pub(super) fn robots(base_url: &str, config: &RobotsConfig) -> Document {
    let mut rules = String::new();
    if config.indexing {
        for agent in &config.blocked_agents {
            field(&mut rules, "User-agent", agent);
        }
        if !config.blocked_agents.is_empty() {
            rules.push_str("Disallow: /\n\n");
        }
        field(&mut rules, "User-agent", "*");
        ALLOWED.iter().for_each(|path| field(&mut rules, "Allow", path));
        DISALLOWED.iter().for_each(|path| field(&mut rules, "Disallow", path));
        config.disallow.iter().for_each(|path| field(&mut rules, "Disallow", path));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text(indexing: bool, disallow: &[&str], blocked_agents: &[&str]) -> String {
        let owned = |list: &[&str]| list.iter().map(|one| String::from(*one)).collect();
        let (disallow, blocked_agents) = (owned(disallow), owned(blocked_agents));
        let config = RobotsConfig { indexing, disallow, blocked_agents };
        let document = robots("https://cards.example", &config);
        assert_eq!(document.media_type, "text/plain; charset=utf-8");
        String::from_utf8(document.body.into()).unwrap()
    }

    #[test]
    fn allowed_paths_precede_disallowed_ones() {
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
