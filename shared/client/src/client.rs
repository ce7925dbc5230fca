//! The client of one program: its namespaces, readiness, and the end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cadastre_core::ids::Name;

use crate::builder::Builder;
use crate::duplicates;
use crate::entry::Entry;
use crate::error::Error;
use crate::id::{Id, Ids};
use crate::metrics;
use crate::namespace::Namespace;
use crate::process::{Phase, Process};
use crate::stamps::Stamps;
use crate::system;
use crate::testing::InMemory;

/// Issues IDs in this process. Clones share everything; dropped with its last clone and handle, what is left in
/// memory is a gap.
///
/// The calls here look the namespace up by name; on a hot path keep the handle that [`Client::namespace`] gives.
#[derive(Clone)]
pub struct Client {
    process: Arc<Process>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// What a [`Client::shutdown`] left behind.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Shutdown {
    /// IDs that were in memory and are gaps now.
    pub unissued: u64,
}

impl Client {
    pub(crate) fn new(process: Arc<Process>) -> Client {
        Client { process }
    }

    /// Where a client begins: an address, a token and a name are needed.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), cadastre_client::Error> {
    /// let client = cadastre_client::Client::builder()
    ///     .agent("http://127.0.0.1:7410")
    ///     .agent("http://agent.us.example:7410") // asked only while the first does not answer
    ///     .token("cad_svc_...")
    ///     .name("checkout")
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A client without agents, for your own tests: every namespace is there and issues 1, 2, 3 ... More in
    /// [`testing`](crate::testing).
    ///
    /// ```
    /// # fn main() -> Result<(), cadastre_client::Error> {
    /// let client = cadastre_client::Client::in_memory()?;
    /// assert_eq!(client.next_blocking("orders")?.get(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) where the machine gives no thread.
    pub fn in_memory() -> Result<Client, Error> {
        InMemory::new().client()
    }

    /// A handle to a namespace: the fast path. Nobody is asked before its first ID is needed.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) where it is not a name, [`ErrorKind::Closed`](crate::ErrorKind::Closed) after a shutdown.
    pub fn namespace(&self, name: &str) -> Result<Namespace, Error> {
        let name = Name::new(name).map_err(|error| Error::config("namespace", format!("{name:?}: {error}")))?;
        Namespace::open(self.process.current()?, &name)
    }

    /// A handle to a time-based namespace, of kind `snowflake`. A worker id is asked for with the first ID.
    ///
    /// # Errors
    /// As [`Self::namespace`].
    pub fn stamps(&self, name: &str) -> Result<Stamps, Error> {
        let name = Name::new(name).map_err(|error| Error::config("namespace", format!("{name:?}: {error}")))?;
        Stamps::open(self.process.current()?, &name)
    }

    /// The next ID of a namespace. See [`Namespace::next`].
    ///
    /// # Errors
    /// As [`Namespace::next`] and [`Self::namespace`].
    pub async fn next(&self, namespace: &str) -> Result<Id, Error> {
        self.namespace(namespace)?.next().await
    }

    /// The next `n` IDs of a namespace. See [`Namespace::next_n`].
    ///
    /// # Errors
    /// As [`Namespace::next_n`] and [`Self::namespace`].
    pub async fn next_n(&self, namespace: &str, n: usize) -> Result<Ids, Error> {
        self.namespace(namespace)?.next_n(n).await
    }

    /// As [`Self::next`], for code without a runtime.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn next_blocking(&self, namespace: &str) -> Result<Id, Error> {
        self.namespace(namespace)?.next_blocking()
    }

    /// As [`Self::next_n`], for code without a runtime.
    ///
    /// # Errors
    /// As [`Self::next_n`].
    pub fn next_n_blocking(&self, namespace: &str, n: usize) -> Result<Ids, Error> {
        self.namespace(namespace)?.next_n_blocking(n)
    }

    /// Waits until every namespace that was named so far (to the builder, or by a handle) has IDs in memory.
    ///
    /// # Errors
    /// The first namespace's that will not have any, or [`ErrorKind::Deadline`](crate::ErrorKind::Deadline).
    pub async fn ready(&self) -> Result<(), Error> {
        let process = self.process.current()?;
        for entry in process.shared.entries() {
            Namespace::of(&process, &entry).until_held().await?;
        }
        Ok(())
    }

    /// As [`Self::ready`], for code without a runtime.
    ///
    /// # Errors
    /// As [`Self::ready`].
    pub fn ready_blocking(&self) -> Result<(), Error> {
        let process = self.process.current()?;
        for entry in process.shared.entries() {
            Namespace::of(&process, &entry).until_held_blocking()?;
        }
        Ok(())
    }

    /// Tells an agent that an ID came twice: it must never happen, and whoever operates Cadastre is woken up. `detail`
    /// says how it was noticed (at most 500 characters). Rule out first that it was your own retry or a restored row.
    ///
    /// # Errors
    /// As [`Self::namespace`], or where no agent took it.
    pub async fn report_duplicate(&self, namespace: &str, id: i64, detail: &str) -> Result<(), Error> {
        let gone = |_| Error::closed("the report was given up");
        self.tell(namespace, id, detail)?.await.map_err(gone)?
    }

    /// As [`Self::report_duplicate`], for code without a runtime.
    ///
    /// # Errors
    /// As [`Self::report_duplicate`].
    pub fn report_duplicate_blocking(&self, namespace: &str, id: i64, detail: &str) -> Result<(), Error> {
        let gone = |_| Error::closed("the report was given up");
        self.tell(namespace, id, detail)?.blocking_recv().map_err(gone)?
    }

    fn tell(
        &self,
        namespace: &str,
        id: i64,
        detail: &str,
    ) -> Result<tokio::sync::oneshot::Receiver<Result<(), Error>>, Error> {
        let name = Name::new(namespace).map_err(|e| Error::config("namespace", format!("{namespace:?}: {e}")))?;
        metrics::duplicate(&name);
        duplicates::tell(&self.process.current()?.shared.settings, name, id, detail)
    }

    /// Stops for good, all clones and handles: nothing is issued any more. A request under way is abandoned; what it
    /// was given is a gap, like all that is left.
    pub async fn shutdown(&self) -> Shutdown {
        let (process, summary) = match self.close() {
            Ok(closed) => closed,
            Err(summary) => return summary,
        };
        let ended = process.shared.ended.task();
        tokio::pin!(ended);
        ended.as_mut().enable();
        if process.shared.phase() != Phase::Ended {
            let _ = tokio::time::timeout(LONGEST_END, ended).await;
        }
        summary
    }

    /// As [`Self::shutdown`], for code without a runtime.
    pub fn shutdown_blocking(&self) -> Shutdown {
        match self.close() {
            Ok((process, summary)) => {
                let seen = process.shared.ended.count();
                if process.shared.phase() != Phase::Ended {
                    process.shared.ended.wait(seen, LONGEST_END);
                }
                summary
            }
            Err(summary) => summary,
        }
    }

    /// Closes every cursor. `Err` where a forked child cannot have a client of its own: it holds nothing.
    fn close(&self) -> Result<(Arc<Process>, Shutdown), Shutdown> {
        let process = self.process.current().map_err(|_| Shutdown::default())?;
        let mut unissued = 0_u64;
        for entry in process.shared.entries() {
            unissued = unissued.saturating_add(lost(&entry));
        }
        // Afterwards: the worker closes at its end what was opened meanwhile.
        process.shared.stop();
        Ok((process, Shutdown { unissued }))
    }
}

/// The worker ends at once; its thread may only be late to run.
const LONGEST_END: Duration = Duration::from_secs(5);

fn lost(entry: &Entry) -> u64 {
    entry.report(system::mono_ms());
    let lost = entry.close();
    metrics::burned(&entry.name, lost);
    lost
}
