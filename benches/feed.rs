//! The cost of an episode in a podcast's feed, by the size and the kind of its text: linear in the
//! size up to the bounds of a feed, and constant above them.
//!
//! `cargo bench --bench feed`. An episode of the worst kind must not take more than some
//! milliseconds: pages are bounded by bytes.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use portcullis::sidecar::podcast::{Feed, render};
use portcullis::store::{Episode, Podcast};
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
            };
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_with_input(BenchmarkId::new(kind, size), &feed, |bencher, feed| {
                bencher.iter(|| render(black_box(feed)));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, feed);
criterion_main!(benches);
