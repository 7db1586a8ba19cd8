//! The known name that a misspelt one most likely means.

/// The longest compared word, in characters: a longer one is no typo, and comparing is expensive.
const LONGEST: usize = 64;

/// The name that `word` most likely means; `None` if none is near.
///
/// A name is near if the part that `core` picks differs in at most a third of its letters; the
/// distance of the whole names breaks ties. `core` gets the word in lower case. `distance` counts
/// the letters in which it differs from a name, ignoring the name's case.
pub fn nearest<'n>(
    word: &str,
    names: impl Iterator<Item = &'n str>,
    core: fn(&str) -> &str,
    distance: fn(&str, &str) -> usize,
) -> Option<&'n str> {
    if word.chars().count() > LONGEST {
        return None;
    }
    let word = word.to_lowercase();
    let near = |name: &&str| {
        let (a, b) = (core(&word), core(name));
        distance(a, b).saturating_mul(3) <= a.chars().count().max(b.chars().count())
    };
    names
        .filter(near)
        .min_by_key(|name| (distance(core(&word), core(name)), distance(&word, name)))
}
