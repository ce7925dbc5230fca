//! The steps of the issuing path, one by one: for whoever changes one of them and wants to know what it costs now.
//!
//! `cargo bench -p cadastre-core`. Against peers, with threads and over sockets it is `cadastre bench`. Absent on
//! purpose: an opinion; no figure here has a target.

use std::hint::black_box;
use std::num::NonZeroU64;

use cadastre_core::chunks::Chunks;
use cadastre_core::range::Range;
use cadastre_core::segment::Cursor;
use cadastre_core::sequence::{Definition, Sequence};
use criterion::{Criterion, Throughput};

/// The length of the segments that cursors are filled with.
const SEGMENT: u64 = 10_000_000;
/// Ids in one measured step.
const IDS: u64 = 1_024;

#[cold]
fn fill(cursor: &Cursor) {
    let lo = cursor.floor();
    if let Ok(segment) = Range::new(lo, lo + SEGMENT) {
        let _ = cursor.install(segment);
    }
}

fn cursor(c: &mut Criterion) {
    let cursor = Cursor::new();
    let mut group = c.benchmark_group("cursor");
    group.throughput(Throughput::Elements(IDS));
    group.bench_function("next", |b| {
        b.iter(|| {
            for _ in 0..IDS {
                while cursor.next().map(black_box).is_none() {
                    fill(&cursor);
                }
            }
        });
    });
    let size = NonZeroU64::new(IDS).unwrap_or(NonZeroU64::MIN);
    let mut chunks = Chunks::new(&cursor, size);
    group.bench_function("chunks", |b| {
        b.iter(|| {
            for _ in 0..IDS {
                while chunks.next().map(black_box).is_none() {
                    fill(&cursor);
                }
            }
        });
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("next_n", |b| {
        b.iter(|| {
            while cursor.next_n(IDS).map(black_box).is_none() {
                fill(&cursor);
            }
        });
    });
    group.bench_function("left", |b| b.iter(|| black_box(cursor.left())));
    group.finish();
}

fn values(c: &mut Criterion) {
    let definition = Definition::first(Sequence::default());
    let mut ordinal = 0;
    c.bench_function("value_at", |b| {
        b.iter(|| {
            ordinal += 1;
            black_box(definition.value_at(black_box(ordinal)))
        });
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    cursor(&mut criterion);
    values(&mut criterion);
    criterion.final_summary();
}
