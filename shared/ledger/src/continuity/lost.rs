//! A store that was lost: an empty one in its place, which is known to have gone back.

use cadastre_core::ids::{ClusterId, StoreId};
use cadastre_core::mark::{Generation, Mark, Scope};
use cadastre_core::roster::Entry;

use super::Continuity;
use crate::error::LedgerError;
use crate::sql::{self, StoreRow};

impl Continuity {
    /// Makes an empty store in the place of one that was lost, to be judged by [`Self::start`]. Its one mark lies below
    /// every generation, so that a witness's is never taken for contained; and it counts as one that had a witness, so
    /// that it is never taken for one whose making was cut short. `roster` is known from the beginning.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn begin_lost(
        &self,
        cluster: Option<ClusterId>,
        first: Scope,
        roster: Vec<Entry>,
        what: &'static str,
    ) -> Result<(), LedgerError> {
        let store = StoreRow {
            cluster_id: cluster,
            store_id: StoreId(self.parts.entropy.uuid_v4()),
            role: self.parts.role.clone(),
            session: 0,
            has_witness: true,
            promised: Generation::default(),
            place: String::new(),
            same_server: true,
        };
        let mark = Mark { generation: Generation::default(), seq: 1, row: self.row_id(), bound: 1 };
        let now = self.now_ms();
        let work = self.parts.db.write("begin_lost", move |tx| {
            let (store, first, roster) = (store.clone(), first.clone(), roster.clone());
            Box::pin(async move {
                sql::insert_store(tx, &store, now).await?;
                sql::insert_scope(tx, &first, &mark, what, now).await?;
                sql::roster_unite(tx, &roster).await
            })
        });
        work.await?;
        Ok(())
    }
}
