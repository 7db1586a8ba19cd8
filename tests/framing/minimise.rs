//! Delta debugging: the fewest tokens of a stream that still show a disagreement.

/// Removes tokens while `shows` holds for what is left; no single token of the result can be
/// removed.
pub(crate) fn minimise(
    tokens: &[Vec<u8>],
    mut shows: impl FnMut(&[Vec<u8>]) -> bool,
) -> Vec<Vec<u8>> {
    let mut left = tokens.to_vec();
    let mut size = left.len().div_ceil(2).max(1);
    loop {
        let mut is_shorter = false;
        let mut start = 0;
        while start < left.len() {
            let end = (start + size).min(left.len());
            let without = [&left[..start], &left[end..]].concat();
            if shows(&without) {
                left = without;
                is_shorter = true;
            } else {
                start = end;
            }
        }
        match (size, is_shorter) {
            (1, false) => return left,
            (1, true) => {}
            _ => size = size.div_ceil(2),
        }
    }
}

#[test]
fn only_necessary_tokens_are_left() {
    let tokens: Vec<Vec<u8>> = (0..40).map(|number| vec![number]).collect();
    for wanted in [vec![7], vec![0, 39], vec![3, 4, 5, 20], vec![]] {
        let shows = |left: &[Vec<u8>]| wanted.iter().all(|number| left.contains(&vec![*number]));
        let expected: Vec<_> = wanted.iter().map(|number| vec![*number]).collect();
        assert_eq!(minimise(&tokens, shows), expected);
    }
}
