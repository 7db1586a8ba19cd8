//! `seo-robots`: the paths that crawlers may fetch (RFC 9309).
//!
//! Built from the configuration alone, so that it cannot fail: a crawler that gets an error treats
//! the whole site as forbidden.

use super::document::Document;
use portcullis_base::config::SidecarLive;
use portcullis_filters::robots::Rule;
use portcullis_store::{Sitemap, StoreError};

/// Functions for machines that obey `/robots.txt`. They precede the rule that forbids the others,
/// for crawlers that apply the first matching rule instead of the longest.
const ALLOWED: [&str; 2] = ["/functions/podcast-rss-feed", "/functions/seo-sitemap"];
/// The other functions have nothing to index.
const DISALLOWED: [&str; 2] = ["/functions/", "/xrpc/"];

/// Pages that are compared with a rule, of those that begin as the rule does.
const MAX_COMPARED: u32 = 10_000;

/// The rules as a document.
pub(super) fn robots(config: &SidecarLive) -> Document {
    let SidecarLive {
        base_url,
        robots: config,
        ..
    } = config;
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

/// Warnings about rules that forbid pages of the sitemap, which crawlers then skip. None if the
/// configuration excludes every crawler.
///
/// # Errors
/// Fails if the store does.
pub async fn conflicts(
    sitemap: Sitemap<'_>,
    config: &SidecarLive,
) -> Result<Vec<String>, StoreError> {
    let mut warnings = Vec::new();
    if !config.robots.indexing {
        return Ok(warnings);
    }
    let own = DISALLOWED.into_iter();
    for rule in own.chain(config.robots.disallow.iter().map(String::as_str)) {
        let prefix = format!("{}{}", config.base_url, Rule(rule).prefix());
        for page in sitemap.pages_below(&prefix, MAX_COMPARED).await? {
            let path = page.strip_prefix(&config.base_url).unwrap_or_default();
            if Rule(rule).matches(path) {
                warnings.push(format!(
                    "{rule} forbids pages of the sitemap, such as {page}: crawlers skip them"
                ));
                break;
            }
        }
    }
    Ok(warnings)
}

fn field(rules: &mut String, name: &str, value: &str) {
    rules.extend([name, ": ", value, "\n"]);
}
