//! The rules of import for texts that were stored past it, by a writer of the tables.

use super::categories::is_category;
use super::field::{FieldType, Member};
use super::types::RECORD_TYPES;

/// Whether a document may show the text of a member: of a record's type, by its name, and by the
/// name of its own member if it is a list of objects. A member that no type has shows nothing.
pub fn may_show(path: &[&str], text: &str) -> bool {
    let Some((of, path)) = path.split_first() else {
        return false;
    };
    let of = RECORD_TYPES.iter().find(|one| one.name == *of);
    of.and_then(|of| field(of.members, path))
        .is_some_and(|field| field.shows(text))
}

/// The parts of a podcast's category that a document may show: both, the category alone, or none.
pub fn shown_category<'a>(
    category: &'a str,
    subcategory: Option<&'a str>,
) -> (Option<&'a str>, Option<&'a str>) {
    if is_category(category, subcategory) {
        (Some(category), subcategory)
    } else if is_category(category, None) {
        (Some(category), None)
    } else {
        (None, None)
    }
}

fn field(members: &[Member], path: &[&str]) -> Option<FieldType> {
    let (name, rest) = path.split_first()?;
    let field = members.iter().find(|one| one.name == *name)?.field;
    match (field, rest) {
        (_, []) => Some(field),
        (FieldType::List(FieldType::Object(members), ..), rest) => self::field(members, rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_show_what_import_accepts() {
        for (path, text, shows) in [
            (&["podcast", "link"][..], "https://a.example/", true),
            (&["podcast", "link"], "http://a.example/", true),
            (&["podcast", "link"], "javascript:alert(1)", false),
            (&["podcast", "link"], "", false),
            (&["podcast", "language"], "en", true),
            (&["podcast", "language"], "English", false),
            (&["podcast", "medium"], "zzz", false),
            (&["podcast", "funding", "url"], "data:text/html,x", false),
            (&["podcast", "funding", "url"], "https://a.example", true),
            (&["episode", "transcripts", "kind"], "text/vtt", true),
            (&["episode", "transcripts", "kind"], "text/x", false),
            (&["episode", "transcripts"], "[]", false),
            (&["episode", "nothing"], "x", false),
            (&["nothing"], "x", false),
            (&[], "x", false),
        ] {
            assert_eq!(may_show(path, text), shows, "{path:?} {text}");
        }
        let both = |category, sub| shown_category(category, Some(sub));
        assert_eq!(
            both("Leisure", "Hobbies"),
            (Some("Leisure"), Some("Hobbies"))
        );
        assert_eq!(both("Leisure", "Cards"), (Some("Leisure"), None));
        assert_eq!(both("Cards", "Hobbies"), (None, None));
    }
}
