//! "Did you mean": the known name nearest to a mistyped one.

/// A longer word is no typo, and comparing it is expensive.
const LONGEST: usize = 64;

/// The known name that `word` most likely means.
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

/// The number of letters to insert, drop, replace or swap, ignoring case.
fn distance(word: &str, name: &str) -> usize {
    strsim::damerau_levenshtein(word, &name.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_near_name_is_suggested() {
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
