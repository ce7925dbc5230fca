//! The drill that is repeated: one row, and whoever looks first when it is due begins it.
//!
//! Invariants: the drill is begun in the transaction that moves the schedule to its next time, so that of several
//! authorities one does, and none is begun twice or forgotten; what cannot begin is skipped with its reason, and not made
//! up for. Every rule of a drill that a person orders holds here as well.

use cadastre_core::drill::{self, DrillKind};
use cadastre_core::gameday::{self, Due};
use cadastre_protocol::error::Code;
use cadastre_protocol::operate::{DrillSchedule, NewDrill};
use serde::{Deserialize, Serialize};

use super::error::problem;
use super::operations::{Read, SCHEDULE, Written};
use super::{Authority, ServiceError};
use crate::sql::Operation;

/// The only row of its kind.
const THE_ONE: &str = "drill-schedule";
/// Who orders what is scheduled.
const WHO: &str = "schedule";
/// The furthest that the first one may be planned ahead, in milliseconds.
const MAX_AHEAD_MS: u64 = gameday::MAX_HOURS as u64 * 3_600_000;

/// The schedule as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Planned {
    drill: NewDrill,
    every_hours: u32,
    next_at: u64,
    last_at: Option<u64>,
    last: Option<String>,
}

impl Planned {
    fn view(self) -> DrillSchedule {
        let Self { drill, every_hours, next_at, last_at, last } = self;
        DrillSchedule { drill, every_hours, next_at: Some(next_at), last_at, last }
    }
}

impl Authority {
    /// States what is repeated, in place of what was.
    ///
    /// # Errors
    /// `invalid_request`, `not_allowed` where such a drill could not be ordered now, or those of the store.
    pub async fn set_schedule(&self, who: &str, new: DrillSchedule) -> Result<DrillSchedule, ServiceError> {
        self.reload().await?;
        let (now, invalid) = (self.now_ms(), |text: String| problem(Code::InvalidRequest, text));
        if !(1..=gameday::MAX_HOURS).contains(&new.every_hours) {
            return Err(invalid(format!("every_hours must be 1 to {}", gameday::MAX_HOURS)));
        }
        let first = now.saturating_add(u64::from(new.every_hours) * 3_600_000);
        let next_at = new.next_at.unwrap_or(first);
        if next_at.saturating_add(gameday::LATE_MS) < now || next_at > now.saturating_add(MAX_AHEAD_MS) {
            return Err(invalid("next_at is milliseconds since 1970, from now on, and within a year".to_owned()));
        }
        self.check_new_drill(who, &new.drill).await?;
        let line = format!("{who}: {} of {} every {} h", new.drill.kind.as_str(), new.drill.region, new.every_hours);
        let body = Planned { drill: new.drill, every_hours: new.every_hours, next_at, last_at: None, last: None };
        let row = match self.schedule_row().await? {
            Some(row) => Operation { is_over: false, ..row },
            None => Operation::new(SCHEDULE, THE_ONE, now),
        };
        let mut read = Read { row, body };
        self.save(&mut read, vec![line], None, Some(who)).await?;
        Ok(read.body.view())
    }

    /// Nothing is repeated any more. Twice is once.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn remove_schedule(&self, who: &str) -> Result<(), ServiceError> {
        for mut read in self.live::<Planned>(SCHEDULE).await? {
            read.row.is_over = true;
            self.save(&mut read, vec![format!("{who}: nothing is repeated any more")], None, Some(who)).await?;
        }
        Ok(())
    }

    /// What is repeated.
    pub(super) async fn schedule(&self) -> Result<Option<DrillSchedule>, ServiceError> {
        Ok(self.live::<Planned>(SCHEDULE).await?.pop().map(|read| read.body.view()))
    }

    async fn schedule_row(&self) -> Result<Option<Operation>, ServiceError> {
        match self.find::<Planned>(SCHEDULE, THE_ONE).await {
            Ok(read) => Ok(Some(read.row)),
            Err(ServiceError::Problem(why)) if why.code == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Begins what is due, or says why not.
    pub(super) async fn carry_schedule(&self) -> Result<(), ServiceError> {
        for mut read in self.live::<Planned>(SCHEDULE).await? {
            let now = self.now_ms();
            let (next_at, begun) = match gameday::due(read.body.next_at, read.body.every_hours, now) {
                Due::NotYet => continue,
                Due::Missed(next_at) => (next_at, Err("no authority was there at its time".to_owned())),
                Due::Now(next_at) => (next_at, self.begin_scheduled(&read.body.drill).await?),
            };
            (read.body.next_at, read.body.last_at) = (next_at, Some(now));
            let last = match &begun {
                Ok((_, id)) => format!("begun: drill {id}"),
                Err(why) => format!("skipped: {why}"),
            };
            tracing::info!(schedule = read.body.drill.kind.as_str(), region = %read.body.drill.region, "{last}");
            read.body.last = Some(last.clone());
            let mut rows = vec![Written::of(&read, vec![last], None)?];
            rows.extend(begun.ok().map(|(drill, _)| drill));
            // Whoever was first has done it.
            self.write_operations(rows, Some(WHO)).await?;
        }
        Ok(())
    }

    /// The drill to be written, with its id; or why there is none today.
    async fn begin_scheduled(&self, new: &NewDrill) -> Result<Result<(Written, String), String>, ServiceError> {
        if let Some(why) = self.lacks_room(new).await? {
            return Ok(Err(why));
        }
        match self.plan_drill(WHO, new.clone()).await {
            Ok((turn, read, line)) => {
                let id = read.row.id.clone();
                Ok(Ok((Written::of(&read, vec![line], Some(turn))?, id)))
            }
            Err(ServiceError::Problem(why)) => Ok(Err(why.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Whether a cut could use up more than its share: a person may risk that, a schedule does not.
    async fn lacks_room(&self, new: &NewDrill) -> Result<Option<String>, ServiceError> {
        if new.kind != DrillKind::WanCut {
            return Ok(None);
        }
        let share = new.share_percent.unwrap_or(drill::DEFAULT_SHARE_PERCENT);
        let headroom = self.headroom().await?;
        for namespace in
            headroom.namespaces.iter().filter(|n| !new.until_dry || Some(&n.name) != new.namespace.as_ref())
        {
            let here = namespace.regions.iter().find(|r| r.region == new.region);
            let runway = here.filter(|r| r.window_hours.is_none()).and_then(|r| r.runway_at_peak_seconds);
            if !gameday::has_room(runway, new.for_seconds, share) {
                let lasts = runway.unwrap_or(0);
                return Ok(Some(format!(
                    "the headroom is too small: {} lasts {lasts} s in {} at its peak, and {} s may use {share} % of it",
                    namespace.name, new.region, new.for_seconds
                )));
            }
        }
        Ok(None)
    }
}
