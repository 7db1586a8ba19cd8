//! `seo-sitemap`: the pages that search engines may list. What is in it: [`super::sitemap`].

use super::query::{Query, invalid};
use super::{HOUR, Refused, Settings, Sidecar, document_reply, refused, sitemap, validated};
use crate::reply::{BodyStream, Reply, StreamAborted};
use futures_util::StreamExt as _;
use portcullis_filters::policy::Asked;
use portcullis_filters::verdict::Reason;
use std::sync::Arc;

impl Sidecar {
    pub(super) async fn seo_sitemap(
        &self,
        settings: &Settings,
        asked: &Asked,
    ) -> Result<Reply, Refused> {
        let query = Query::parse(&asked.query);
        let Some(page) = query.one("page")? else {
            let pages = self.store.sitemap_pages().await?;
            if sitemap::fits_one_page(&pages) {
                return self.sitemap_page(settings, asked, 1).await;
            }
            return Ok(document_reply(&sitemap::index(&pages, &settings.base_url), asked, HOUR));
        };
        let is_number = page.bytes().all(|byte| byte.is_ascii_digit());
        let page = page.parse().ok().filter(|page| is_number && *page > 0);
        self.sitemap_page(settings, asked, page.ok_or_else(|| invalid("page is 1 or more"))?).await
    }

    async fn sitemap_page(
        &self,
        settings: &Settings,
        asked: &Asked,
        page: i64,
    ) -> Result<Reply, Refused> {
        let stamp = self.store.sitemap_stamp(page).await?;
        if stamp.is_none() && page != 1 {
            return Err(refused(Reason::NotFound, "the sitemap has no such page"));
        }
        let etag = sitemap::page_etag(&settings.base_url, page, stamp.as_ref());
        let modified = stamp.map(|stamp| stamp.lastmod_us);
        let mut reply = validated(asked, HOUR, &etag, modified);
        if reply.status == 200 {
            let urls = sitemap::urlset(Arc::clone(&self.store), page, &settings.base_url);
            let rest = urls.map(|piece| {
                piece.map_err(|error| {
                    log::error!("store: {error}");
                    StreamAborted
                })
            });
            reply.media_type = Some(sitemap::MEDIA_TYPE);
            reply.rest = Some(BodyStream::new(rest));
        }
        Ok(reply)
    }
}
