//! `describeFeedGenerator`: which feeds there are, and whose; and the DID document that leads here.
//!
//! <https://docs.bsky.app/docs/api/app-bsky-feed-describe-feed-generator>,
//! <https://atproto.com/specs/did>.

use super::settings::Settings;
use super::{HOUR, Refused, refused};
use crate::reply::Reply;
use portcullis_filters::verdict::Reason;
use serde_json::json;

/// The collection of the records that publish feeds.
pub(super) const COLLECTION: &str = "app.bsky.feed.generator";
/// Feeds for everybody.
pub(super) const PUBLIC: [&str; 6] =
    ["trade-listings", "collection-posts", "fresh-pulls", "showcase", "journals", "card-reviews"];
/// The feed for whoever is signed in.
pub(super) const PERSONAL: &str = "whoto-follow";

/// Describes the feed generator.
pub(super) fn answer(settings: &Settings) -> Reply {
    let feeds = &settings.feeds;
    let listed = PUBLIC
        .into_iter()
        .chain([PERSONAL])
        .map(|name| json!({ "uri": format!("at://{}/{COLLECTION}/{name}", feeds.publisher_did) }));
    let mut body = json!({ "did": feeds.service_did, "feeds": listed.collect::<Vec<_>>() });
    let links =
        [("privacyPolicy", &feeds.privacy_policy), ("termsOfService", &feeds.terms_of_service)];
    for (name, link) in links {
        if let Some(link) = link {
            body["links"][name] = link.as_str().into();
        }
    }
    Reply { cache_control: Some(HOUR.into()), ..Reply::json(200, body.to_string()) }
}

/// The DID document of the feed generator, where its DID is this origin's.
pub(super) fn did_document(settings: &Settings) -> Result<Reply, Refused> {
    let (did, origin) = (&settings.feeds.service_did, &settings.base_url);
    let host = origin.split_once("://").map_or("", |(_, host)| host);
    if *did != format!("did:web:{}", host.replace(':', "%3A")) {
        return Err(refused(Reason::NotFound, "this origin is no DID"));
    }
    let body = json!({
        "@context": ["https://www.w3.org/ns/did/v1"],
        "id": did,
        "service": [{
            "id": "#bsky_fg",
            "type": "BskyFeedGenerator",
            "serviceEndpoint": origin,
        }],
    });
    Ok(Reply { cache_control: Some(HOUR.into()), ..Reply::json(200, body.to_string()) })
}
