//! Every id that was ever exposed, and a shout at the first that is exposed twice.
//!
//! This is the one judge that matters, so it knows nothing of ranges, grants or regions' promises: it
//! sees numbers as callers saw them. Seen ids are bits in 64-bit words keyed by `id / 64` (dense ids cost
//! two bits, scattered ones some 30 bytes), and each batch is remembered as runs of equal steps, so that
//! a duplicate can be reported with both its origins without an entry per id.
//!
//! One ledger per namespace: the same number in two namespaces is no duplicate.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Details are kept for so many duplicates; all are counted.
const DETAILED: usize = 100;

/// Who exposed an id, and when after the ledger was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The region, or whatever the test calls its source.
    pub region: String,
    /// Time since the ledger was opened.
    pub at: Duration,
}

/// An id that was exposed twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Duplicate {
    /// The id.
    pub id: i64,
    /// Who had it first.
    pub first: Origin,
    /// Who had it again.
    pub second: Origin,
}

impl fmt::Display for Duplicate {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (one, two) = (&self.first, &self.second);
        write!(to, "id {} from {} at {:?}", self.id, one.region, one.at)?;
        write!(to, " and again from {} at {:?}", two.region, two.at)
    }
}

/// The ledger. Share it freely among threads and tasks.
pub struct Exposed {
    opened: Instant,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    words: BTreeMap<i64, u64>,
    regions: Vec<String>,
    per_region: BTreeMap<String, u64>,
    batches: Vec<Batch>,
    runs: Vec<Run>,
    total: u64,
    highest: Option<i64>,
    duplicates: Vec<Duplicate>,
    duplicate_count: u64,
}

/// Its runs begin at `from` and end where the next batch's begin.
struct Batch {
    region: u32,
    at: Duration,
    from: usize,
}

/// `first, first + step, ...`: `count` ids.
struct Run {
    first: i64,
    step: i64,
    count: u32,
}

impl Run {
    fn contains(&self, id: i64) -> bool {
        let away = i128::from(id) - i128::from(self.first);
        if self.step == 0 || self.count == 1 {
            return away == 0;
        }
        let step = i128::from(self.step);
        away % step == 0 && (0..i128::from(self.count)).contains(&(away / step))
    }
}

impl Default for Exposed {
    fn default() -> Self {
        Self { opened: Instant::now(), inner: Mutex::new(Inner::default()) }
    }
}

impl Exposed {
    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// Enters ids that one answer exposed; the duplicates among them, printed as well.
    pub fn record(&self, region: &str, ids: &[i64]) -> Vec<Duplicate> {
        let at = self.opened.elapsed();
        let mut inner = self.inner();
        let twice = inner.mark(ids);
        // The first origins are looked up before this batch is remembered, so that an id which came
        // twice within this one answer is recognised as that.
        let second = Origin { region: region.to_owned(), at };
        let found: Vec<Duplicate> = twice
            .iter()
            .take(DETAILED)
            .map(|id| {
                let first = inner.origin(*id).unwrap_or_else(|| second.clone());
                Duplicate { id: *id, first, second: second.clone() }
            })
            .collect();
        inner.remember(region, at, ids);
        inner.duplicate_count += twice.len() as u64;
        for duplicate in &found {
            if inner.duplicates.len() < DETAILED {
                eprintln!("DUPLICATE: {duplicate}");
                inner.duplicates.push(duplicate.clone());
            }
        }
        found
    }

    /// How many ids were exposed, duplicates counted each time.
    pub fn total(&self) -> u64 {
        self.inner().total
    }

    /// The same by region.
    pub fn by_region(&self) -> BTreeMap<String, u64> {
        self.inner().per_region.clone()
    }

    /// The highest id of all.
    pub fn highest(&self) -> Option<i64> {
        self.inner().highest
    }

    /// Whether this id was exposed.
    pub fn contains(&self, id: i64) -> bool {
        let word = self.inner().words.get(&(id >> 6)).copied().unwrap_or_default();
        word & (1 << (id & 63)) != 0
    }

    /// Who exposed this id first.
    pub fn origin(&self, id: i64) -> Option<Origin> {
        self.inner().origin(id)
    }

    /// How many ids came once too often, and the first hundred of them.
    pub fn duplicates(&self) -> (u64, Vec<Duplicate>) {
        let inner = self.inner();
        (inner.duplicate_count, inner.duplicates.clone())
    }

    /// Fails the test with the duplicates, if there is one.
    pub fn assert_no_duplicates(&self) {
        let (count, first) = self.duplicates();
        let words: Vec<String> = first.iter().take(20).map(Duplicate::to_string).collect();
        assert!(count == 0, "{count} of {} ids were exposed twice:\n{}", self.total(), words.join("\n"));
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

impl Inner {
    /// Sets the ids' bits; those that were set already.
    fn mark(&mut self, ids: &[i64]) -> Vec<i64> {
        let mut twice = Vec::new();
        let mut rest = ids;
        while let Some(id) = rest.first() {
            // Neighbours share a word: one look-up for all of them.
            let key = id >> 6;
            let end = rest.iter().position(|other| other >> 6 != key).unwrap_or(rest.len());
            let word = self.words.entry(key).or_default();
            for id in &rest[..end] {
                let bit = 1 << (id & 63);
                if *word & bit != 0 {
                    twice.push(*id);
                }
                *word |= bit;
            }
            rest = &rest[end..];
        }
        self.total += ids.len() as u64;
        self.highest = self.highest.max(ids.iter().max().copied());
        twice
    }

    fn remember(&mut self, region: &str, at: Duration, ids: &[i64]) {
        let known = self.regions.iter().position(|name| name == region);
        let index = known.unwrap_or_else(|| {
            self.regions.push(region.to_owned());
            self.regions.len() - 1
        });
        *self.per_region.entry(region.to_owned()).or_default() += ids.len() as u64;
        self.batches.push(Batch { region: index as u32, at, from: self.runs.len() });
        let mut rest = ids;
        while let Some(first) = rest.first() {
            let step = rest.get(1).map_or(0, |second| second.wrapping_sub(*first));
            let even = rest.windows(2).take_while(|pair| pair[1].wrapping_sub(pair[0]) == step);
            let count = even.count() + 1;
            self.runs.push(Run { first: *first, step, count: count as u32 });
            rest = &rest[count..];
        }
    }

    /// The slow way, walked only for a duplicate: the earliest batch that holds the id.
    fn origin(&self, id: i64) -> Option<Origin> {
        let run = self.runs.iter().position(|run| run.contains(id))?;
        let batch = self.batches.partition_point(|batch| batch.from <= run);
        let batch = self.batches.get(batch.checked_sub(1)?)?;
        Some(Origin { region: self.regions.get(batch.region as usize)?.clone(), at: batch.at })
    }
}
