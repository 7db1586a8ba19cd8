//! Compares a judge's reading of a stream with the program's.

use ::http::Version;

use crate::http::{Ending, Reading, Request};
use crate::judges::{End, Judgement};

/// How a judge's reading relates to the program's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is the same, as far as both go.
    Same,
    /// The judge refuses the request at this place.
    Stricter(usize),
    /// They disagree.
    Different(Difference),
}

/// A disagreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    /// The request at this place is another one to the judge.
    Other { place: usize, theirs: Request },
    /// The judge waits for more of the request at this place.
    Longer { place: usize },
    /// The judge accepts a request of which the program waits for more.
    Shorter { place: usize },
    /// The judge finds a request behind the last one.
    Extra { place: usize },
    /// The judge refuses the request at this place, and accepts its bytes by themselves: the one
    /// before ends elsewhere.
    Boundary { place: usize },
}

/// Compares the readings of one stream.
pub(crate) fn compare(ours: &Reading, theirs: &Judgement) -> Outcome {
    let mut version = Version::HTTP_11;
    for (place, accepted) in ours.accepted.iter().enumerate() {
        match theirs.requests.get(place) {
            Some(request) if *request == accepted.request => version = accepted.version,
            Some(request) => {
                let theirs = request.clone();
                return Outcome::Different(Difference::Other { place, theirs });
            }
            None => {
                return match theirs.end {
                    End::Refused => Outcome::Stricter(place),
                    End::Closed => Outcome::Same,
                    // whether a connection of HTTP/1.0 persists is up to the server
                    End::Silent if version == Version::HTTP_10 => Outcome::Same,
                    End::Silent => Outcome::Different(Difference::Longer { place }),
                };
            }
        }
    }
    let place = ours.accepted.len();
    match ours.ending {
        _ if theirs.requests.len() == place => Outcome::Same,
        Ending::Incomplete => Outcome::Different(Difference::Shorter { place }),
        Ending::Whole => Outcome::Different(Difference::Extra { place }),
        Ending::Refused(_) | Ending::Closed => Outcome::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Accepted;

    fn request(body: &str) -> Request {
        Request::new("POST", b"/rpc", body.as_bytes())
    }

    fn ours(bodies: &[&str], ending: Ending) -> Reading {
        let accepted = bodies.iter().enumerate().map(|(place, body)| Accepted {
            request: request(body),
            version: Version::HTTP_11,
            end: place,
            status: 200,
            id: None,
            persists: true,
        });
        Reading {
            accepted: accepted.collect(),
            ending,
        }
    }

    #[test]
    fn only_stricter_readings_are_no_disagreement() {
        use Difference::{Extra, Longer, Other, Shorter};
        let two = ["a", "b"];
        for (bodies, ending, theirs, end, expected) in [
            (
                &two[..],
                Ending::Whole,
                &two[..],
                End::Silent,
                Outcome::Same,
            ),
            (
                &two,
                Ending::Whole,
                &two[..1],
                End::Refused,
                Outcome::Stricter(1),
            ),
            (&two, Ending::Whole, &[], End::Refused, Outcome::Stricter(0)),
            (&two, Ending::Whole, &two[..1], End::Closed, Outcome::Same),
            (
                &two,
                Ending::Whole,
                &two[..1],
                End::Silent,
                Outcome::Different(Longer { place: 1 }),
            ),
            (
                &two[..1],
                Ending::Refused(400),
                &two,
                End::Silent,
                Outcome::Same,
            ),
            (&two[..1], Ending::Closed, &two, End::Silent, Outcome::Same),
            (
                &two[..1],
                Ending::Whole,
                &two,
                End::Silent,
                Outcome::Different(Extra { place: 1 }),
            ),
            (
                &two[..1],
                Ending::Incomplete,
                &two,
                End::Silent,
                Outcome::Different(Shorter { place: 1 }),
            ),
            (
                &two,
                Ending::Whole,
                &["a", "c"],
                End::Silent,
                Outcome::Different(Other {
                    place: 1,
                    theirs: request("c"),
                }),
            ),
        ] {
            let requests = theirs.iter().map(|body| request(body)).collect();
            let found = compare(&ours(bodies, ending), &Judgement { requests, end });
            assert_eq!(found, expected, "{bodies:?} {ending:?} {theirs:?} {end:?}");
        }
    }
}
