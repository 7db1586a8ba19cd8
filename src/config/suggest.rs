//! "Did you mean": the known name nearest to a mistyped one.

/// A longer word is no typing mistake, and comparing it would cost too much.
const LONGEST: usize = 64;

/// The known name that `word` was most likely meant to be.
///
/// Names are near when the part that `core` picks differs in at most a third of its letters;
/// among equally near ones the whole names decide.
pub(super) fn closest<'n>(
    word: &str,
    names: impl Iterator<Item = &'n str>,
    core: fn(&str) -> &str,
) -> Option<&'n str> {
    if word.chars().count() > LONGEST {
        return None;
    }
    let word = word.to_lowercase();
    let near = |name: &&str| {
        let (a, b) = (core(&word), core(name));
        distance(a, b) * 3 <= a.chars().count().max(b.chars().count())
    };
    names.filter(near).min_by_key(|name| (distance(core(&word), core(name)), distance(&word, name)))
}

/// Letters to insert, drop, replace or swap, whatever their case.
fn distance(word: &str, name: &str) -> usize {
    strsim::damerau_levenshtein(word, &name.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_and_a_far_one_is_not() {
        let names = ["json", "text", "url", "getClassAt"];
        for (word, expected) in [
            ("jsn", Some("json")),
            ("JSON", Some("json")),
            ("ulr", Some("url")),
            ("getclasat", Some("getClassAt")),
            ("getStorageAt", None),
            ("", None),
            ("x", None),
        ] {
            let found = closest(word, names.into_iter(), |name| name);
            assert_eq!(found, expected, "for {word:?}");
        }
        let long = "j".repeat(100_000);
        assert_eq!(closest(&long, names.into_iter(), |name| name), None, "a long word is cut off");
    }
}
