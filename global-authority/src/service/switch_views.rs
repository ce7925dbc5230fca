//! Switches as they are shown.

use cadastre_protocol::operate::{SwitchView, Switches};

use super::operations::{MAX_LISTED, Read, SWITCH};
use super::switches::Switch;
use super::{Authority, ServiceError};

impl Authority {
    /// One switch.
    ///
    /// # Errors
    /// `not_found`, or those of the store.
    pub async fn switch(&self, id: &str) -> Result<SwitchView, ServiceError> {
        let read = self.find::<Switch>(SWITCH, id).await?;
        self.switch_view(read).await
    }

    /// The newest switches.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn switches(&self) -> Result<Switches, ServiceError> {
        let mut switches = Vec::new();
        for read in self.newest::<Switch>(SWITCH, MAX_LISTED).await? {
            switches.push(self.switch_view(read).await?);
        }
        Ok(Switches { switches })
    }

    async fn switch_view(&self, read: Read<Switch>) -> Result<SwitchView, ServiceError> {
        let lines = self.lines(&read.row.id).await?;
        let body = read.body;
        Ok(SwitchView {
            switch_id: body.id,
            from: body.from,
            to: body.to,
            namespaces: body.moves.into_iter().map(|m| m.name).collect(),
            fence: body.fence,
            step: body.step,
            waiting_for: body.waiting_for,
            stopped: body.stopped,
            from_knows: body.from_knows,
            windows_end_at: body.windows_end_at,
            who: body.who,
            made_at: read.row.made_at_ms,
            changed_at: body.changed_at,
            lines,
        })
    }
}
