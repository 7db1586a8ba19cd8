//! Detects which URL of the node serves, from the number of answers of each.

use super::UrlStats;

/// The URL that serves, and the number of its answers at the last update.
#[derive(Debug, Default)]
pub struct Serving {
    index: usize,
    answers: u64,
}

/// A change of the URL that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The URL that served.
    pub from: String,
    /// The URL that serves.
    pub to: String,
    /// Why the previous URL no longer answers; `None` if a preferred one answers again.
    pub cause: Option<String>,
}

impl Serving {
    /// Compares the answers of the URLs, in order of preference, with those of the last update. The
    /// URL that answered last serves, unless a preferred one has only lost a few calls. Returns a
    /// change.
    pub fn update(&mut self, urls: &[UrlStats]) -> Option<Switch> {
        let latest = urls.iter().position(|url| url.is_latest)?;
        let (from, to) = (urls.get(self.index)?, urls.get(latest)?);
        let (is_worse, is_alive) = (latest > self.index, from.answers > self.answers);
        self.answers = from.answers;
        if latest == self.index || (is_worse && is_alive) {
            return None;
        }
        (self.index, self.answers) = (latest, to.answers);
        let cause = is_worse.then(|| {
            let cause = from.known.cause.as_ref().or(from.cause.as_ref());
            cause.map_or_else(|| "its head is behind".to_owned(), String::clone)
        });
        Some(Switch {
            from: from.url.clone(),
            to: to.url.clone(),
            cause,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::slots::Slots;
    use super::*;
    use portcullis_filters::chain::UrlView;

    #[test]
    fn each_switch_is_noticed_once() {
        let mut serving = Serving::default();
        for (answers, latest, switch) in [
            ([0, 0, 0], 0, None),
            ([5, 0, 0], 0, None),
            // the preferred one lost a few calls
            ([6, 3, 0], 1, None),
            ([7, 3, 0], 0, None),
            // the preferred one answered until just now
            ([8, 4, 0], 1, None),
            ([8, 4, 0], 1, Some(("a", "b", Some("down")))),
            ([8, 12, 0], 1, None),
            ([8, 12, 0], 1, None),
            ([8, 12, 4], 2, Some(("b", "c", Some("down")))),
            ([9, 12, 9], 0, Some(("c", "a", None))),
            ([9, 12, 9], 0, None),
        ] {
            let urls = ["a", "b", "c"].into_iter().zip(answers).enumerate();
            let urls = urls.map(|(index, (url, answers))| UrlStats {
                url: url.to_owned(),
                idle: 0,
                busy: 0,
                reads: Slots::new(1).stats(),
                failure: None,
                cause: Some("down".to_owned()),
                answers,
                is_latest: index == latest,
                known: UrlView {
                    head: None,
                    head_time: None,
                    left_out: None,
                    cause: None,
                    fault: None,
                },
            });
            let found = serving.update(&urls.collect::<Vec<_>>());
            let found = found
                .as_ref()
                .map(|found| (&*found.from, &*found.to, found.cause.as_deref()));
            assert_eq!(found, switch, "{answers:?}");
        }
    }
}
