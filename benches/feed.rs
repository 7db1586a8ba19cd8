//! The cost of an episode in a podcast's feed, and of a URL in the sitemap, by the size and the
//! kind of its text: linear in the size. Above the bounds of a feed it is constant.
//!
//! `cargo bench --bench feed`. An episode of the worst kind must not take more than some
//! milliseconds: pages are bounded by bytes.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use portcullis_edge::sidecar::podcast::{Feed, render};
use portcullis_edge::sidecar::seo_sitemap::Urlset;
use portcullis_store::{Episode, Podcast, SitemapNumber, SitemapUrl};
use std::hint::black_box;

/// The program's own allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Text that is repeated.
const KINDS: [(&str, &str); 9] = [
    ("words", "some plain words "),
    ("less-than", "<"),
    ("ampersand", "&"),
    ("reference", "&lt;"),
    ("unknown reference", "&aaaaaaaaaaaaaaaaaaaaaaaaaaaaa;"),
    ("quote", "\""),
    ("tag", "<b>x</b>"),
    ("link", "<a href='https://cards.example/'>x</a>"),
    ("hidden", "<script></"),
];

fn episode(html: String) -> Episode {
    Episode {
        id: "e1".to_owned(),
        guid: "g1".to_owned(),
        title: "Episode".to_owned(),
        description_html: html,
        enclosure_url: "https://media.cards.example/1.mp3".to_owned(),
        enclosure_length: 1,
        enclosure_type: "audio/mpeg".to_owned(),
        kind: "full".to_owned(),
        ..Episode::default()
    }
}

fn feed(criterion: &mut Criterion) {
    let podcast = Podcast {
        title: "Podcast".to_owned(),
        ..Podcast::default()
    };
    let mut group = criterion.benchmark_group("feed");
    group.sample_size(10);
    for (kind, piece) in KINDS {
        for size in [1 << 10, 8 << 10, 64 << 10, 256 << 10] {
            let episodes = [episode(piece.repeat(size / piece.len()))];
            let feed = Feed {
                podcast: &podcast,
                episodes: &episodes,
                pages: (1, 1),
                changed_us: None,
                handle: None,
                base_url: "https://cards.example",
                hub_url: None,
            };
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_with_input(BenchmarkId::new(kind, size), &feed, |bencher, feed| {
                bencher.iter(|| render(black_box(feed)));
            });
        }
    }
    group.finish();
}

/// Parts of a URL that are repeated.
const URL_KINDS: [(&str, &str); 4] = [
    ("plain", "card-"),
    ("ampersand", "&"),
    ("percent", "%"),
    ("encoded", "é"),
];

fn sitemap(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sitemap");
    group.sample_size(10);
    for (kind, piece) in URL_KINDS {
        for images in [1, 8, 64, 512] {
            let image = format!("https://media.cards.example/{}", piece.repeat(300));
            let row = SitemapUrl {
                id: 45_001,
                loc: "https://cards.example/1".to_owned(),
                images: vec![image; images],
                ..SitemapUrl::default()
            };
            group.throughput(Throughput::Bytes(row.length() as u64));
            group.bench_with_input(BenchmarkId::new(kind, images), &row, |bencher, row| {
                bencher.iter(|| {
                    let number = SitemapNumber { page: 2, part: 1 };
                    let mut file = Urlset::begin(number, "https://cards.example", None);
                    file.last(vec![black_box(row).clone()])
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, feed, sitemap);
criterion_main!(benches);
