//! `seo-sitemap`: the pages that search engines may list. Its content: [`super::sitemap`].

use super::document::validated;
use super::query::{Query, invalid};
use super::{HOUR, Refused, Settings, refused, sitemap};
use crate::reply::{BodyStream, Reply, StreamAborted};
use crate::store::Store;
use futures_util::StreamExt as _;
use portcullis_filters::policy::RequestParts;
use portcullis_filters::verdict::Reason;
use std::sync::Arc;

pub(super) async fn answer(
    store: &Arc<Store>,
    settings: &Settings,
    request: &RequestParts,
) -> Result<Reply, Refused> {
    let base_url = &settings.config.base_url;
    let query = Query::parse(&request.query);
    let page = match query.one("page")? {
        Some(page) => {
            let is_number = page.bytes().all(|byte| byte.is_ascii_digit());
            let page = page.parse().ok().filter(|page| is_number && *page > 0);
            page.ok_or_else(|| invalid("page must be 1 or more"))?
        }
        None => {
            let pages = store.sitemap().pages().await?;
            if !sitemap::fits_one_page(&pages) {
                return Ok(sitemap::index(&pages, base_url).reply(request, HOUR));
            }
            1
        }
    };
    let stamp = store.sitemap().stamp(page).await?;
    if stamp.is_none() && page != 1 {
        return Err(refused(Reason::NotFound, "the sitemap has no such page"));
    }
    let etag = sitemap::page_etag(base_url, page, stamp.as_ref());
    let mut reply = validated(request, HOUR, &etag, stamp.map(|stamp| stamp.lastmod_us));
    if reply.status == 200 {
        let chunks = sitemap::urlset(Arc::clone(store), page, base_url);
        let rest = chunks.map(|chunk| {
            chunk.map_err(|error| {
                error.log();
                StreamAborted
            })
        });
        reply.media_type = Some(sitemap::MEDIA_TYPE);
        reply.rest = Some(BodyStream::new(rest));
    }
    Ok(reply)
}
