//! Requests for ids: INCR and INCRBY, in batches of pipelined commands.
//!
//! Invariants: the checks are those of HTTP, in the same order; an id that was taken is answered, or its connection
//! is gone and it is a gap. Absent on purpose: giving back.

use std::sync::Arc;
use std::time::Duration;

use cadastre_core::ids::Name;
use cadastre_core::namespace::NamespaceEntry;
use cadastre_protocol::error::{Code, Problem};
use cadastre_runtime::clock::Stopwatch;
use tokio::sync::OwnedSemaphorePermit;

use super::Session;
use crate::auth::Service;
use crate::context::View;
use crate::error::{AgentError, problem, told};
use crate::front::{DEFAULT_WAIT, Taken};
use crate::issuer::Entry;
use crate::resp::parse::Command;
use crate::resp::reply;

/// Namespaces that a connection remembers.
const MAX_PLACES: usize = 8;

/// A namespace that this connection may take ids of, as of the view that was last seen.
pub(super) struct Place {
    name: Name,
    settings: NamespaceEntry,
    entry: Arc<Entry>,
}

/// What holds for one batch of commands.
pub(super) struct Batch {
    pub(super) view: Arc<View>,
    /// Whether anybody is let in and this process may issue; asked by the first command that needs it.
    pub(super) open: Option<Result<(), Problem>>,
    /// A place among the requests at once.
    pub(super) place: Option<Result<Option<OwnedSemaphorePermit>, Problem>>,
    /// How long one more command may wait: commands behind one that waited in vain do not wait again.
    pub(super) patience: Duration,
    /// Requests for ids.
    pub(super) asked: u64,
    pub(super) stopping: bool,
}

impl Batch {
    /// A command waited in vain since `watch` began.
    fn waited(&mut self, watch: &Stopwatch) {
        let waited = Duration::try_from_secs_f64(watch.seconds()).unwrap_or_default();
        self.patience = self.patience.saturating_sub(waited);
    }
}

impl Session {
    /// What every request for ids goes through before its namespace is looked at.
    fn enter(&self, batch: &mut Batch, service: &Service) -> Result<(), Problem> {
        if batch.stopping {
            return Err(Problem::new(Code::ShuttingDown, "this process is stopping; try another one"));
        }
        let front = &self.door.front;
        let open = || front.tokens_hold().and_then(|()| front.agent().ctx.alive()).map_err(|error| told(&error));
        batch.open.get_or_insert_with(open).clone()?;
        let place = batch.place.get_or_insert_with(|| service.enter().map_err(|error| told(&error)));
        match place {
            Ok(_) => Ok(()),
            Err(problem) => Err(problem.clone()),
        }
    }

    /// Where the ids of a namespace come from; remembered until the roster changes.
    fn place(&mut self, view: &View, service: &Service, name: &[u8]) -> Result<&Place, AgentError> {
        if let Some(known) = self.places.iter().position(|place| place.name.as_str().as_bytes() == name) {
            // Its epoch may be over without a new view.
            return self.places.get(known).ok_or_else(|| problem(Code::Internal, "a place that is not there"));
        }
        let namespace = namespace(name)?;
        let front = &self.door.front;
        let settings = front.admitted(view, service, &namespace)?;
        let entry = front.agent().issuer.entry(view, settings, &namespace, &service.name)?;
        if self.places.len() >= MAX_PLACES {
            self.places.remove(0);
        }
        self.places.push(Place { name: namespace, settings: settings.clone(), entry });
        self.places.last().ok_or_else(|| problem(Code::Internal, "a place that is not there"))
    }

    /// Answers up to `run` equal commands; how many. The first refusal is the last that is answered: those behind
    /// it are looked at again, each for itself.
    pub(super) async fn incr(&mut self, batch: &mut Batch, name: &[u8], run: usize, out: &mut Vec<u8>) -> usize {
        let Some(service) = self.service.clone() else { return 1 };
        batch.asked += 1;
        if let Err(problem) = self.enter(batch, &service) {
            self.refuse_with(&problem, out);
            return 1;
        }
        match self.take(batch, &service, name, run as u64, out).await {
            Ok(answered) => answered as usize,
            Err((answered, error)) => {
                self.refuse(&error, out);
                answered as usize + 1
            }
        }
    }

    async fn take(
        &mut self,
        batch: &mut Batch,
        service: &Service,
        name: &[u8],
        run: u64,
        out: &mut Vec<u8>,
    ) -> Result<u64, (u64, AgentError)> {
        let door = Arc::clone(&self.door);
        let place = self.place(&batch.view, service, name).map_err(|error| (0, error))?;
        // What is counted against a rate is counted one by one: each is spent for an answer of its own.
        let run = if service.has_rate() { 1 } else { run };
        service.spend(run, None).map_err(|error| (0, error))?;
        let (mut got, mut noted) = (0, 0);
        let result = loop {
            while let Some(range) = place.entry.run(run - got) {
                let taken = door.front.taken(&place.name, vec![range]);
                write(&taken, out).map_err(|error| (got, error))?;
                got += range.len();
            }
            if got > noted {
                door.front.agent().issuer.note(&place.entry, &place.settings, got - noted);
                batch.patience = DEFAULT_WAIT;
            }
            if got == run {
                return Ok(got);
            }
            // Dry, or closed: the way of a single id knows which.
            let watch = Stopwatch::start();
            match door.front.one(&batch.view, service, &place.name, batch.patience).await {
                Ok(id) => reply::integer(out, id),
                Err(error) => {
                    batch.waited(&watch);
                    break Err((got, error));
                }
            }
            batch.patience = DEFAULT_WAIT;
            got += 1;
            noted = got;
        };
        self.places.retain(|place| !place.entry.is_closed());
        result
    }

    /// `INCRBY namespace n`: the last of n values that follow one another.
    pub(super) async fn incr_by(&mut self, batch: &mut Batch, command: &Command<'_>, out: &mut Vec<u8>) {
        let Some(service) = self.service.clone() else { return };
        batch.asked += 1;
        let result = match self.enter(batch, &service) {
            Err(problem) => Err(problem.into()),
            Ok(()) => self.consecutive(batch, &service, command).await,
        };
        match result {
            Ok(last) => {
                batch.patience = DEFAULT_WAIT;
                reply::integer(out, last);
            }
            Err(error) => self.refuse(&error, out),
        }
    }

    async fn consecutive(
        &self,
        batch: &mut Batch,
        service: &Service,
        command: &Command<'_>,
    ) -> Result<i64, AgentError> {
        let namespace = namespace(command.word(1))?;
        service.admits(&namespace)?;
        let spelled = std::str::from_utf8(command.word(2)).ok();
        let count = spelled.and_then(|text| cadastre_core::decimal::parse_unsigned(text).ok());
        let Some(count) = count.filter(|count| *count > 0) else {
            let text = "INCRBY: the number of ids must be a whole number from 1 on; ids are never given back";
            return Err(problem(Code::InvalidRequest, text));
        };
        if count > service.batch() {
            let text =
                format!("{count} ids are above the {} that service {} may have at once", service.batch(), service.name);
            return Err(problem(Code::PayloadTooLarge, text));
        }
        service.spend(count, None)?;
        let watch = Stopwatch::start();
        let result = self.door.front.run(&batch.view, service, &namespace, count, batch.patience).await;
        if result.is_err() {
            batch.waited(&watch);
        }
        result
    }
}

/// One answer for each ordinal.
fn write(taken: &Taken<'_>, out: &mut Vec<u8>) -> Result<(), AgentError> {
    taken.each(|stretch| stretch.values().for_each(|value| reply::integer(out, value)))
}

fn namespace(name: &[u8]) -> Result<Name, AgentError> {
    let text = String::from_utf8_lossy(name);
    Name::new(text.as_ref()).map_err(|error| {
        let shown: String = text.chars().take(64).collect();
        problem(Code::InvalidRequest, format!("{shown:?}: {error}"))
    })
}
