//! Parsing the lines of `store import`: `simd-json`, as the import uses it, next to `serde_json`
//! building the same duplicate-preserving tree.
//!
//! `cargo bench --bench import`. The lines are those of `conf/dev/content`.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use portcullis_filters::rpc::json::Json;
use simd_json::Buffers;
use std::hint::black_box;

const FILES: [(&str, &str); 3] = [
    (
        "account",
        include_str!("../conf/dev/content/1-accounts.ndjson"),
    ),
    (
        "podcast",
        include_str!("../conf/dev/content/2-podcasts.ndjson"),
    ),
    (
        "feed_item",
        include_str!("../conf/dev/content/3-feed-items.ndjson"),
    ),
];

fn parsing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("import_line");
    for (name, text) in FILES {
        let lines: Vec<&[u8]> = text.lines().map(str::as_bytes).collect();
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(BenchmarkId::new("simd-json", name), |bencher| {
            let (mut line, mut buffers) = (Vec::new(), Buffers::default());
            bencher.iter(|| {
                for bytes in &lines {
                    line.clear();
                    line.extend_from_slice(bytes);
                    let tape = simd_json::to_tape_with_buffers(&mut line, &mut buffers);
                    black_box(tape.expect("a line is JSON").0.len());
                }
            });
        });
        group.bench_function(BenchmarkId::new("serde_json", name), |bencher| {
            bencher.iter(|| {
                for bytes in &lines {
                    black_box(Json::parse(black_box(bytes)).expect("a line is JSON"));
                }
            });
        });
    }
}

criterion_group!(benches, parsing);
criterion_main!(benches);
