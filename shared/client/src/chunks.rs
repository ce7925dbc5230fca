//! IDs for one thread that prefers speed to the order between threads.
//!
//! The way of one ID: one load (is this still the process that was given the chunk?), the core's [`Chunk`] (a
//! comparison and an increment in registers), and a multiplication. The load cannot be left to the fetching of a
//! chunk: a child has a copy of what is left of one. Keeping the chunk itself in the page that the kernel empties
//! would save the load, and cost every ID a store and the load of what it stored, which takes longer.

use cadastre_core::chunks::Chunk;
use cadastre_core::range::Range;

use crate::error::Error;
use crate::id::Id;
use crate::lane::Mapping;
use crate::namespace::{MAX_BATCH, Namespace};

/// A handle for one thread: takes IDs out of the shared segment in chunks; see [`Namespace::chunks`].
///
/// What is left of a chunk when this is dropped is a gap. In a forked child the inherited chunk is thrown away.
///
/// ```
/// # fn main() -> Result<(), cadastre_client::Error> {
/// let orders = cadastre_client::Client::in_memory()?.namespace("orders")?;
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         let mut mine = orders.chunks(1_000);
///         scope.spawn(move || {
///             let first = mine.next_blocking()?;
///             assert!(mine.next_blocking()? > first);
///             Ok::<(), cadastre_client::Error>(())
///         });
///     }
/// });
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Chunks {
    namespace: Namespace,
    size: u64,
    chunk: Chunk,
    mapping: Mapping,
}

impl Chunks {
    pub(crate) fn new(namespace: Namespace, size: usize) -> Chunks {
        let size = size.clamp(1, MAX_BATCH) as u64;
        Chunks { namespace, size, chunk: Chunk::default(), mapping: Mapping::default() }
    }

    /// The next ID of the chunk, or of the next one if memory has it.
    #[inline]
    pub fn try_next(&mut self) -> Option<Id> {
        if !self.namespace.is_here() {
            return None;
        }
        if self.chunk.left() == 0 {
            let (range, mapping) = fetch(&self.namespace, self.size)?;
            (self.chunk, self.mapping) = (range.into(), mapping);
        }
        self.chunk.pop().map(|ordinal| Id::new(self.mapping.value(ordinal)))
    }

    /// The next ID.
    ///
    /// # Errors
    /// As [`Namespace::next`].
    pub async fn next(&mut self) -> Result<Id, Error> {
        if let Some(id) = self.try_next() {
            return Ok(id);
        }
        self.begin_anew()?;
        let namespace = self.namespace.clone();
        namespace.wait(1, &mut || self.try_next()).await
    }

    /// As [`Self::next`], for code without a runtime.
    ///
    /// # Errors
    /// As [`Self::next`].
    #[inline]
    pub fn next_blocking(&mut self) -> Result<Id, Error> {
        match self.try_next() {
            Some(id) => Ok(id),
            None => self.late_blocking(),
        }
    }

    #[cold]
    fn late_blocking(&mut self) -> Result<Id, Error> {
        self.begin_anew()?;
        let namespace = self.namespace.clone();
        namespace.wait_blocking(1, &mut || self.try_next())
    }

    /// In a forked child: what was the parent's is thrown away.
    fn begin_anew(&mut self) -> Result<(), Error> {
        if !self.namespace.is_here() {
            self.namespace = self.namespace.here()?;
            self.chunk = Chunk::default();
        }
        Ok(())
    }
}

/// The next chunk; out of line and without the handle, whose numbers then stay in registers (see the core's chunks).
#[cold]
#[inline(never)]
fn fetch(namespace: &Namespace, size: u64) -> Option<(Range, Mapping)> {
    namespace.range(size)
}
