//! One connection's conversation: who it is, and what each command is answered.
//!
//! Invariants: ids are given to a service that the present roster knows, admits and limits, asked anew for every
//! batch of pipelined commands; answers come in the order of the commands; a run of equal commands is taken from
//! the cursor at once, and each still stands for itself. The token is hashed on arrival and forgotten. Absent on
//! purpose: values that can be read back, transactions, scripts, subscriptions.

mod ids;

use std::sync::{Arc, Weak};

use cadastre_protocol::error::{Code, Problem};
use cadastre_runtime::clock::Stopwatch;
use cadastre_runtime::http::Shutdown;
use cadastre_runtime::token::sha256_hex;

use super::parse::{self, Command, Limits};
use super::reply::{self, Version, Word};
use super::{Door, about};
use crate::auth::Service;
use crate::context::View;
use crate::error::{AgentError, told};
use crate::front::DEFAULT_WAIT;
use crate::metrics as meter;
use ids::{Batch, Place};

/// Answers that are kept before they are written, in bytes.
const MAX_OUTPUT: usize = 64 * 1024;
/// Equal commands that are answered in one go.
const MAX_RUN: usize = 1_024;
/// The longest name of a client.
const MAX_CLIENT_NAME: usize = 64;
/// The user that clients name where they are given a password alone.
const NO_USER: &[u8] = b"default";

/// What became of a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// Read on.
    Read,
    /// Write, and go on with what was read.
    Write,
    /// Write, and close.
    Close,
}

/// See the module's documentation.
pub struct Session {
    /// What it shares with the others.
    pub door: Arc<Door>,
    /// The connection's number.
    pub id: i64,
    /// What it speaks.
    pub version: Version,
    /// What the client calls itself.
    pub client: String,
    /// The SHA-256 of its token.
    token: Option<String>,
    service: Option<Arc<Service>>,
    /// The view that `service` and `places` are of; only its identity is kept.
    seen: Weak<View>,
    places: Vec<Place>,
}

impl Session {
    /// A conversation with a stranger.
    pub fn new(door: Arc<Door>, id: i64) -> Self {
        let (version, client) = (Version::Two, String::new());
        Self { door, id, version, client, token: None, service: None, seen: Weak::new(), places: Vec::new() }
    }

    /// What a command may be.
    pub fn limits(&self) -> Limits {
        if self.is_stranger() { Limits::STRANGER } else { Limits::CALLER }
    }

    /// Whether nobody has authenticated, or the token was revoked since.
    pub fn is_stranger(&self) -> bool {
        self.service.is_none()
    }

    /// The name of who is authenticated.
    pub fn user(&self) -> &str {
        self.service.as_ref().map_or("", |service| service.name.as_str())
    }

    /// Answers what is complete in `input`; how much of it is done, and what comes next.
    pub async fn batch(&mut self, input: &[u8], out: &mut Vec<u8>, shutdown: &Shutdown) -> (usize, Next) {
        let watch = Stopwatch::start();
        let mut batch = Batch {
            view: self.door.front.agent().ctx.view(),
            open: None,
            place: None,
            patience: DEFAULT_WAIT,
            asked: 0,
            stopping: shutdown.is_triggered(),
        };
        self.look(&batch.view);
        let (mut at, mut commands) = (0, 0);
        let next = loop {
            if out.len() >= MAX_OUTPUT {
                break Next::Write;
            }
            let rest = input.get(at..).unwrap_or_default();
            match parse::command(rest, self.limits()) {
                Ok(None) => break Next::Read,
                Ok(Some((command, length))) => {
                    let equal = rest.get(..length).unwrap_or_default();
                    let (done, next) = self.run(&mut batch, &command, equal, rest, out).await;
                    at += done * length;
                    commands += done as u64;
                    if next == Next::Close {
                        break Next::Close;
                    }
                }
                Err(fault) => {
                    reply::error(out, Word::Err, &format!("Protocol error: {fault}"));
                    self.door.meters.faults.increment(1);
                    break Next::Close;
                }
            }
        };
        self.door.meters.commands.increment(commands);
        if batch.asked > 0 {
            self.door.meters.seconds.record(watch.seconds());
        }
        (at, next)
    }

    /// The roster may have changed: the token is looked up again, and what was remembered is forgotten.
    fn look(&mut self, view: &Arc<View>) {
        if std::ptr::eq(self.seen.as_ptr(), Arc::as_ptr(view)) {
            return;
        }
        self.places.clear();
        self.seen = Arc::downgrade(view);
        let holder = self.token.as_ref().and_then(|token| view.callers.holder(token));
        self.service = holder.and_then(|holder| view.callers.service_of(holder).ok().cloned());
    }

    /// Answers a command, and those behind it that are equal where that is cheaper; how many.
    async fn run(
        &mut self,
        batch: &mut Batch,
        command: &Command<'_>,
        equal: &[u8],
        rest: &[u8],
        out: &mut Vec<u8>,
    ) -> (usize, Next) {
        let verb = command.word(0);
        if self.is_stranger() && !about::for_strangers(verb) && command.len() > 0 {
            self.refuse_stranger(out);
            return (1, Next::Read);
        }
        if verb.eq_ignore_ascii_case(b"INCR") && command.len() == 2 {
            // One length and one text: the same command again.
            let run = rest.chunks_exact(equal.len().max(1)).take(MAX_RUN).take_while(|other| *other == equal).count();
            return (self.incr(batch, command.word(1), run.max(1), out).await, Next::Read);
        }
        (1, self.single(batch, command, out).await)
    }

    fn refuse_stranger(&self, out: &mut Vec<u8>) {
        let text = match self.token {
            None => "Authentication required: AUTH TOKEN, or AUTH SERVICE TOKEN",
            Some(_) => "the token of this connection is not known any more; authenticate again",
        };
        meter::refused(&self.door.front.agent().ctx.me.region, Code::Unauthenticated);
        reply::error(out, Word::NoAuth, text);
    }

    async fn single(&mut self, batch: &mut Batch, command: &Command<'_>, out: &mut Vec<u8>) -> Next {
        let Some(verb) = about::Verb::of(command) else {
            if command.len() > 0 {
                about::unknown(command, out);
            }
            return Next::Read;
        };
        if !verb.takes(command.len()) {
            let text = format!("wrong number of arguments for '{}' command", verb.as_str());
            reply::error(out, Word::Err, &text);
            return Next::Read;
        }
        if matches!(verb, about::Verb::Auth | about::Verb::Hello | about::Verb::Reset) {
            // Whoever speaks from now on has places of its own.
            batch.place = None;
        }
        match verb {
            about::Verb::Incr => {
                self.incr(batch, command.word(1), 1, out).await;
            }
            about::Verb::IncrBy => self.incr_by(batch, command, out).await,
            about::Verb::Auth => self.auth(&batch.view, command.words().get(1..).unwrap_or_default(), out),
            about::Verb::Hello => self.hello(&batch.view, command, out),
            about::Verb::Reset => {
                (self.version, self.client) = (Version::Two, String::new());
                self.forget();
                reply::simple(out, "RESET");
            }
            about::Verb::Quit => {
                reply::simple(out, "OK");
                return Next::Close;
            }
            about::Verb::Get
            | about::Verb::Ping
            | about::Verb::Echo
            | about::Verb::Select
            | about::Verb::Info
            | about::Verb::Client
            | about::Verb::Command => about::answer(self, verb, command, out),
        }
        Next::Read
    }

    /// `AUTH token`, `AUTH service token`.
    fn auth(&mut self, view: &Arc<View>, words: &[&[u8]], out: &mut Vec<u8>) {
        if self.log_in(view, words, out) {
            reply::simple(out, "OK");
        }
    }

    /// Whether it succeeded; where not, the answer is written. A failed try leaves who was there before.
    fn log_in(&mut self, view: &Arc<View>, words: &[&[u8]], out: &mut Vec<u8>) -> bool {
        let (user, token) = match words {
            [token] => (NO_USER, *token),
            [user, token, ..] => (*user, *token),
            [] => (NO_USER, &[][..]),
        };
        let hash = std::str::from_utf8(token).ok().map(sha256_hex);
        let holder = hash.as_ref().and_then(|hash| view.callers.holder(hash));
        let service = match holder.map(|holder| view.callers.service_of(holder)) {
            Some(Ok(service)) if user == NO_USER || user == service.name.as_str().as_bytes() => Arc::clone(service),
            Some(Err(error)) => {
                self.refuse(&error, out);
                return false;
            }
            Some(Ok(_)) | None => {
                let text = "invalid username-password pair: the password is a service's token, and the username, \
                            where there is one, that service's name";
                meter::refused(&self.door.front.agent().ctx.me.region, Code::Unauthenticated);
                reply::error(out, Word::WrongPass, text);
                return false;
            }
        };
        if let Err(error) = self.door.front.tokens_hold() {
            self.refuse(&error, out);
            return false;
        }
        self.forget();
        (self.token, self.service, self.seen) = (hash, Some(service), Arc::downgrade(view));
        true
    }

    fn forget(&mut self) {
        (self.token, self.service, self.seen) = (None, None, Weak::new());
        self.places.clear();
    }

    /// `HELLO [2|3 [AUTH user token] [SETNAME name]]`: all of it, or nothing.
    fn hello(&mut self, view: &Arc<View>, command: &Command<'_>, out: &mut Vec<u8>) {
        let mut words = command.words().get(1..).unwrap_or_default();
        let (mut version, mut client, mut login) = (self.version, None, None);
        if let [number, rest @ ..] = words {
            version = match *number {
                b"2" => Version::Two,
                b"3" => Version::Three,
                _ => return reply::error(out, Word::NoProto, "unsupported protocol version: 2 or 3"),
            };
            words = rest;
        }
        while let [option, rest @ ..] = words {
            words = match rest {
                [_, _, rest @ ..] if option.eq_ignore_ascii_case(b"AUTH") => {
                    login = words.get(1..3);
                    rest
                }
                [name, rest @ ..] if option.eq_ignore_ascii_case(b"SETNAME") => {
                    let Some(name) = client_name(name) else { return about::bad_client_name(out) };
                    client = Some(name);
                    rest
                }
                _ => {
                    return reply::error(
                        out,
                        Word::Err,
                        "syntax error in HELLO: [2|3 [AUTH user token] [SETNAME name]]",
                    );
                }
            };
        }
        if let Some(login) = login {
            if !self.log_in(view, login, out) {
                return;
            }
        } else if self.is_stranger() {
            let text = "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
                        <user> <pass> option can be used; the user is a service or `default`, the pass its token";
            return reply::error(out, Word::NoAuth, text);
        }
        self.version = version;
        if let Some(client) = client {
            self.client = client;
        }
        about::hello(self, out);
    }

    fn refuse(&self, error: &AgentError, out: &mut Vec<u8>) {
        self.refuse_with(&told(error), out);
    }

    fn refuse_with(&self, problem: &Problem, out: &mut Vec<u8>) {
        meter::refused(&self.door.front.agent().ctx.me.region, problem.code);
        self.door.front.agent().ctx.orders.refused(problem.code);
        reply::problem(out, problem);
    }
}

/// A client's name for itself; none for one that Redis would refuse too.
pub fn client_name(name: &[u8]) -> Option<String> {
    let fits = name.len() <= MAX_CLIENT_NAME && name.iter().all(u8::is_ascii_graphic);
    fits.then(|| String::from_utf8_lossy(name).into_owned())
}
