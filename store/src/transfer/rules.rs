//! Rules for records beyond the types of their members, from the documents of the tables.
//!
//! In: a record, and the settings of the import. Rules about stored rows are steps in `types.rs`.

use super::categories::is_category;
use super::record::{Action, Record};
use crate::syntax::is_page_of;
use serde_json::Value;

/// Whether Apple has the category of a podcast, and each further one.
fn has_known_categories(record: &Record) -> bool {
    let row = &record.row;
    let further = row.get("categories").and_then(Value::as_array);
    let mut further = further.into_iter().flatten();
    is_known(row.get("category"), row.get("subcategory"))
        && further.all(|one| is_known(one.get("category"), one.get("subcategory")))
}

fn is_known(category: Option<&Value>, subcategory: Option<&Value>) -> bool {
    let category = category.and_then(Value::as_str).unwrap_or_default();
    is_category(category, subcategory.and_then(Value::as_str))
}

/// One day: the clocks of writers differ, and no post may lead its feed for longer.
const MAX_AHEAD_US: i64 = 24 * 3_600 * 1_000_000;

/// The rules of an import.
#[derive(Debug, Clone, Copy)]
pub struct ImportRules<'a> {
    /// The origin of pages and feeds. New podcasts without a guid get one derived from it, and only
    /// its own pages are accepted; without it, neither applies.
    pub base_url: Option<&'a str>,
    /// The time, in microseconds since 1970 UTC.
    pub now_us: i64,
}

impl ImportRules<'_> {
    /// Returns the record if it follows the rules, or else the message for the broken rule.
    pub(super) fn judge(&self, record: Record) -> Result<Record, String> {
        let text = |column| record.row.get(column).and_then(Value::as_str);
        let broken = match (record.of.name, self.base_url) {
            _ if record.action != Action::Put => None,
            // crawlers accept only pages of the sitemap's own origin
            ("page", Some(base)) if !is_page_of(base, text("loc").unwrap_or_default()) => Some(
                format!("page.loc must be below {base}/ and have no fragment"),
            ),
            ("podcast", _) if !has_known_categories(&record) => {
                let why = "podcast.category must be one of Apple's, and subcategory one of its own";
                Some(format!("{why}, exactly as Apple spells them"))
            }
            ("feed_item", _) if self.is_ahead(record.row.get("sort_us")) => {
                Some("feed_item.sort_at must be at most one day in the future".to_owned())
            }
            _ => None,
        };
        broken.map_or(Ok(record), Err)
    }

    fn is_ahead(&self, instant: Option<&Value>) -> bool {
        let latest = self.now_us.saturating_add(MAX_AHEAD_US);
        instant
            .and_then(Value::as_i64)
            .is_some_and(|at| at > latest)
    }
}
