//! What an agent knows, and reading it from the store: as a whole, or what one answer may have changed.
//!
//! Invariant: what is shown was committed before; an older look never replaces a newer one. A heartbeat costs nothing
//! for namespaces that it does not speak of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use cadastre_core::ids::{Epoch, Name};
use cadastre_core::mark::{Generation, Scope};
use cadastre_core::namespace::NamespaceEntry;
use cadastre_core::roster::{Entry, Kind, Roster};
use cadastre_protocol::error::Code;
use cadastre_runtime::db::DbError;

use super::Context;
use crate::auth::Callers;
use crate::error::{AgentError, problem};
use crate::sql::{self, StandingRow};

/// What the agent knows, as of its last look at the store.
#[derive(Clone, Default)]
pub struct View {
    /// Who exists.
    pub roster: Arc<Roster>,
    /// The newest entry of it.
    pub roster_version: (Generation, u64),
    /// Who calls.
    pub callers: Arc<Callers>,
    /// Where the region stands; none before the authority's first answer.
    pub standing: Option<StandingRow>,
    /// The authority's watermark of each namespace, as far as it was seen.
    pub watermarks: Arc<BTreeMap<Name, u64>>,
    /// Until which unit the region was given time, by slot's number line, of its present epoch's slots.
    pub windows: Arc<BTreeMap<Name, u64>>,
}

impl View {
    /// The epoch, where there is one.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        self.standing.map(|s| s.epoch)
    }

    /// Whether callers of `region` are served in a namespace, as far as its home goes.
    #[must_use]
    pub fn is_home(&self, region: &Name, namespace: &Name) -> bool {
        self.roster.namespace(namespace).is_none_or(|entry| entry.is_home(region))
    }

    /// The namespace, if this region may issue in it.
    ///
    /// # Errors
    /// `unknown_namespace`, `frozen`, `not_home`, `epoch_fenced`, or `upstream_unavailable` before the first answer.
    pub fn issuable(&self, region: &Name, namespace: &Name) -> Result<&NamespaceEntry, AgentError> {
        let Some(standing) = self.standing else {
            return Err(problem(Code::UpstreamUnavailable, "this region has not heard from its authority yet"));
        };
        if !standing.state.may_issue() {
            let text = format!(
                "region {region} is {} at epoch {}: it gives nothing out",
                standing.state.as_str(),
                standing.epoch
            );
            return Err(problem(Code::EpochFenced, text));
        }
        let known = self.roster.namespace(namespace).filter(|n| !n.deleted);
        let entry =
            known.ok_or_else(|| problem(Code::UnknownNamespace, format!("there is no namespace {namespace}")))?;
        if entry.frozen {
            let text = format!("namespace {namespace} is frozen: nothing is given out until it is thawed");
            return Err(problem(Code::Frozen, text));
        }
        if !entry.is_home(region) {
            let text = format!("the home of namespace {namespace} does not include region {region}");
            return Err(problem(Code::NotHome, text));
        }
        Ok(entry)
    }

    /// Ordinals of a namespace that nobody was granted, as far as this region knows.
    #[must_use]
    pub fn space_left(&self, namespace: &Name, entry: &NamespaceEntry) -> u64 {
        let watermark = self.watermarks.get(namespace).copied().unwrap_or(0);
        entry.definition.capacity().saturating_sub(watermark)
    }
}

/// What is read again after an answer.
#[derive(Default)]
struct News {
    standing: Option<StandingRow>,
    entries: Vec<Entry>,
    watermarks: Vec<(Name, u64)>,
    windows: Vec<(Name, u64)>,
}

impl View {
    /// Takes what is new, newest entry each; whether it tells of callers.
    fn take(&mut self, news: News, region: &Name) -> bool {
        let News { standing, entries, watermarks, windows } = news;
        self.standing = standing.or(self.standing);
        let callers = entries.iter().any(|entry| entry.body.kind() != Kind::Namespace);
        if !entries.is_empty() {
            let newest = entries.iter().map(Entry::version).max().unwrap_or_default();
            self.roster_version = self.roster_version.max(newest);
            Arc::make_mut(&mut self.roster).unite_all(entries);
        }
        if !watermarks.is_empty() {
            let known = Arc::make_mut(&mut self.watermarks);
            for (name, bound) in watermarks {
                let held = known.entry(name).or_default();
                *held = bound.max(*held);
            }
        }
        for (line, ends) in windows {
            let slot = self.roster.namespace(&line).and_then(|entry| entry.slot.as_ref());
            let is_ours = slot.is_some_and(|slot| slot.region == *region && Some(slot.epoch) == self.epoch());
            let known = Arc::make_mut(&mut self.windows);
            if is_ours {
                known.insert(line, ends);
            } else {
                known.remove(&line);
            }
        }
        callers
    }
}

impl Context {
    /// Reads roster, standing and watermarks from the store, and shows them to everybody.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn reload(&self) -> Result<Arc<View>, AgentError> {
        let region = self.me.region.clone();
        let read = self.continuity.db().read("agent_reload", move |tx| {
            let region = region.clone();
            Box::pin(async move {
                let roster = cadastre_ledger::sql::roster(tx).await?;
                let version = sql::roster_version(tx).await?;
                let standing = sql::standing(tx).await?;
                let marks = cadastre_ledger::sql::seen_marks(tx).await?;
                let mut windows = BTreeMap::new();
                for line in lines(&roster, &region, standing) {
                    let held = sql::time_held(tx, &line, standing.map(|s| s.epoch).unwrap_or_default()).await?;
                    windows.insert(line, held.map_or(0, |held| held.hi()));
                }
                Ok::<_, DbError>((roster, version, standing, marks, windows))
            })
        });
        let (roster, roster_version, standing, marks, windows) =
            self.note_read(read.await.map_err(AgentError::from))?;
        let watermarks = marks
            .into_iter()
            .filter_map(|(scope, mark)| match scope {
                Scope::Namespace(name) => Some((name, mark.bound)),
                Scope::Roster | Scope::Region => None,
            })
            .collect();
        let callers = Callers::of(&roster, &self.meters, &self.clock, &self.errands);
        let view = Arc::new(View {
            roster: Arc::new(roster),
            roster_version,
            callers: Arc::new(callers),
            standing,
            watermarks: Arc::new(watermarks),
            windows: Arc::new(windows),
        });
        if let Some(standing) = standing {
            let mut health = self.health_mut();
            health.answered_at_ms = health.answered_at_ms.max(Some(standing.answered_at_ms));
        }
        let mut shown = self.view.write().unwrap_or_else(PoisonError::into_inner);
        // Looks overtake one another: what was seen once stays seen.
        if view.roster_version >= shown.roster_version {
            *shown = view;
        }
        Ok(Arc::clone(&shown))
    }

    /// Reads some entries of the roster and some scopes' marks again, and shows what became of them; all there is where
    /// the region stands otherwise than before. What one heartbeat brings costs nothing for namespaces that it does not
    /// speak of.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn reload_some(&self, entries: Vec<(Kind, Name)>, scopes: Vec<Scope>) -> Result<Arc<View>, AgentError> {
        let before = self.view().standing;
        let epoch = before.map(|s| s.epoch).unwrap_or_default();
        let read = self.continuity.db().read("agent_reload_some", move |tx| {
            let (entries, scopes) = (entries.clone(), scopes.clone());
            Box::pin(async move {
                let mut news = News { standing: sql::standing(tx).await?, ..News::default() };
                for (kind, name) in &entries {
                    news.entries.extend(cadastre_ledger::sql::roster_get(tx, *kind, name).await?);
                }
                let slot_lines = entries.into_iter().filter(|(kind, _)| *kind == Kind::Namespace).map(|(_, name)| name);
                let mut lines: BTreeSet<Name> = slot_lines.filter(Name::is_of_slot).collect();
                for scope in scopes {
                    let Scope::Namespace(name) = &scope else { continue };
                    if let Some(mark) = cadastre_ledger::sql::seen_mark(tx, &scope).await? {
                        news.watermarks.push((name.clone(), mark.bound));
                    }
                    lines.extend(name.is_of_slot().then(|| name.clone()));
                }
                for line in lines {
                    let held = sql::time_held(tx, &line, epoch).await?;
                    news.windows.push((line, held.map_or(0, |held| held.hi())));
                }
                Ok::<_, DbError>(news)
            })
        });
        let news = self.note_read(read.await.map_err(AgentError::from))?;
        let stands = |s: StandingRow| StandingRow { answered_at_ms: 0, ..s };
        if before.is_none() || news.standing.map(stands) != before.map(stands) {
            return self.reload().await;
        }
        let mut shown = self.view.write().unwrap_or_else(PoisonError::into_inner);
        if shown.standing.map(stands) == before.map(stands) {
            // In place where nobody looks at it just now.
            let view = Arc::make_mut(&mut shown);
            if view.take(news, &self.me.region) {
                view.callers = Arc::new(Callers::of(&view.roster, &self.meters, &self.clock, &self.errands));
            }
        }
        Ok(Arc::clone(&shown))
    }
}

/// The number lines that a region stamps in under its present epoch.
fn lines(roster: &Roster, region: &Name, standing: Option<StandingRow>) -> Vec<Name> {
    let Some(standing) = standing else { return Vec::new() };
    let mine = roster.namespaces().filter(|(_, entry)| {
        entry.slot.as_ref().is_some_and(|slot| slot.region == *region && slot.epoch == standing.epoch)
    });
    mine.map(|(name, _)| name.clone()).collect()
}
