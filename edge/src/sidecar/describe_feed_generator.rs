//! `describeFeedGenerator`: the feeds and their publisher; and the DID document of this service.
//!
//! <https://docs.bsky.app/docs/api/app-bsky-feed-describe-feed-generator>,
//! <https://atproto.com/specs/did>.

use super::{HOUR, Refused, Settings, refused};
use crate::reply::Reply;
use portcullis_filters::verdict::Reason;
use serde_json::{Value, json};

/// The collection of the records that publish feeds.
pub(super) const COLLECTION: &str = "app.bsky.feed.generator";
/// Feeds that need no authentication.
pub(super) const PUBLIC: [&str; 6] = [
    "trade-listings",
    "collection-posts",
    "fresh-pulls",
    "showcase",
    "journals",
    "card-reviews",
];
/// The feed of an authenticated reader.
pub(super) const PERSONAL: &str = "whoto-follow";

/// Describes the feed generator.
pub(super) fn answer(settings: &Settings) -> Reply {
    let feeds = &settings.live.feeds;
    let listed = PUBLIC
        .into_iter()
        .chain([PERSONAL])
        .map(|name| json!({ "uri": format!("at://{}/{COLLECTION}/{name}", feeds.publisher_did) }));
    let mut body = json!({ "did": feeds.service_did, "feeds": listed.collect::<Vec<_>>() });
    let links = [
        ("privacyPolicy", &feeds.privacy_policy),
        ("termsOfService", &feeds.terms_of_service),
    ];
    for (name, link) in links {
        if let Some(link) = link {
            body["links"][name] = link.as_str().into();
        }
    }
    lasting(&body)
}

/// The DID document of the feed generator, if its DID belongs to this origin.
pub(super) fn did_document(settings: &Settings) -> Result<Reply, Refused> {
    let (did, origin) = (&settings.live.feeds.service_did, &settings.live.base_url);
    let host = origin.split_once("://").map_or("", |(_, host)| host);
    if *did != format!("did:web:{}", host.replace(':', "%3A")) {
        return Err(refused(Reason::NotFound, "this origin is not a DID"));
    }
    Ok(lasting(&json!({
        "@context": ["https://www.w3.org/ns/did/v1"],
        "id": did,
        "service": [{
            "id": "#bsky_fg",
            "type": "BskyFeedGenerator",
            "serviceEndpoint": origin,
        }],
    })))
}

/// The liveness of the service, as XRPC servers report it.
pub(super) fn health() -> Reply {
    Reply::serialize(200, &json!({ "version": env!("CARGO_PKG_VERSION") }))
}

fn lasting(body: &Value) -> Reply {
    Reply {
        cache_control: Some(HOUR.into()),
        ..Reply::serialize(200, body)
    }
}
