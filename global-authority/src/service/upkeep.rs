//! What an authority does by itself, about once a second.

use super::Authority;

impl Authority {
    /// Looks at the store's server, at a quarantine, at switches and drills, and at the witness. What goes wrong with one of
    /// them is told, and stops none of the others: the next turn looks again.
    pub async fn tick(&self) {
        if let Err(error) = self.watch().await {
            tracing::warn!(%error, "the store's server cannot be looked at");
        }
        if let Err(error) = self.settle().await {
            tracing::warn!(%error, "the quarantine cannot be looked at");
        }
        if let Err(error) = self.operate().await {
            tracing::warn!(%error, "switches and drills wait");
        }
        if let Err(error) = self.look_at_witness().await {
            tracing::warn!(%error, "the store cannot be judged by its witness");
        }
    }
}
