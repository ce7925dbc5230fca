//! The commands that are served, and the answers of those that give no ids: what clients ask when they connect.
//!
//! Invariants: a command stands here or it is unknown; nothing here tells anything of another connection, service
//! or namespace. Absent on purpose: documentation of commands over the wire (clients take an empty answer).

use std::fmt::Write;

use super::parse::Command;
use super::reply::{self, Version, Word};
use super::session::{Session, client_name};
use crate::context::UplinkState;

/// The release of Redis whose forms of answers are kept; clients look at it.
const COMPATIBLE: &str = "7.0.0";
/// So much of an unknown command is told back.
const SHOWN: usize = 64;

macro_rules! verbs {
    ($($(#[$doc:meta])* $variant:ident $text:literal $words:expr,)*) => {
        /// A command that is served.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Verb { $($(#[$doc])* $variant,)* }

        impl Verb {
            /// Every command.
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Whether it can have so many words, its name included.
            pub fn takes(self, words: usize) -> bool {
                match self { $(Self::$variant => ($words).contains(&words),)* }
            }
        }
    };
}

verbs! {
    /// One id.
    Incr "incr" 2..=2,
    /// Several that follow one another.
    IncrBy "incrby" 3..=3,
    /// Refused with the reason.
    Get "get" 2..=2,
    /// Who is calling.
    Auth "auth" 2..=3,
    /// The same, and the protocol's version.
    Hello "hello" 1..=7,
    /// Is anybody there?
    Ping "ping" 1..=2,
    /// Says it again.
    Echo "echo" 2..=2,
    /// There is one database.
    Select "select" 2..=2,
    /// How this agent is.
    Info "info" 1..=usize::MAX,
    /// This connection.
    Client "client" 2..=usize::MAX,
    /// What is served.
    Command "command" 1..=usize::MAX,
    /// As if just connected.
    Reset "reset" 1..=usize::MAX,
    /// Good-bye.
    Quit "quit" 1..=usize::MAX,
}

impl Verb {
    /// The command that this is.
    pub fn of(command: &Command<'_>) -> Option<Self> {
        let word = command.word(0);
        Self::ALL.iter().copied().find(|verb| word.eq_ignore_ascii_case(verb.as_str().as_bytes()))
    }
}

/// Whether a command is answered before authentication.
pub fn for_strangers(verb: &[u8]) -> bool {
    [Verb::Auth, Verb::Hello, Verb::Reset, Verb::Quit]
        .iter()
        .any(|known| verb.eq_ignore_ascii_case(known.as_str().as_bytes()))
}

/// Everything else.
pub fn unknown(command: &Command<'_>, out: &mut Vec<u8>) {
    let all = Verb::ALL.iter().map(|verb| verb.as_str().to_uppercase()).collect::<Vec<_>>().join(", ");
    let text = format!("unknown command '{}'; there are {all}", shown(command.word(0)));
    reply::error(out, Word::Err, &text);
}

fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(word.get(..SHOWN).unwrap_or(word)).into_owned()
}

/// A name that cannot be.
pub fn bad_client_name(out: &mut Vec<u8>) {
    reply::error(
        out,
        Word::Err,
        "Client names cannot contain spaces, newlines or special characters, nor be longer than 64",
    );
}

/// The answer of HELLO.
pub fn hello(session: &Session, out: &mut Vec<u8>) {
    reply::map(out, 7, session.version);
    for (key, text) in [("server", "cadastre"), ("version", COMPATIBLE)] {
        reply::bulk(out, key.as_bytes());
        reply::bulk(out, text.as_bytes());
    }
    reply::bulk(out, b"proto");
    reply::integer(out, if session.version == Version::Two { 2 } else { 3 });
    reply::bulk(out, b"id");
    reply::integer(out, session.id);
    for (key, text) in [("mode", "standalone"), ("role", "master")] {
        reply::bulk(out, key.as_bytes());
        reply::bulk(out, text.as_bytes());
    }
    reply::bulk(out, b"modules");
    reply::array(out, 0);
}

/// Answers a command that gives no ids.
pub fn answer(session: &mut Session, verb: Verb, command: &Command<'_>, out: &mut Vec<u8>) {
    match verb {
        Verb::Ping if command.len() == 1 => reply::simple(out, "PONG"),
        Verb::Ping | Verb::Echo => reply::bulk(out, command.word(1)),
        Verb::Select if command.word(1) == b"0" => reply::simple(out, "OK"),
        Verb::Select => reply::error(out, Word::Err, "DB index is out of range: there is database 0 alone"),
        Verb::Info => reply::bulk(out, info(session, command).as_bytes()),
        Verb::Client => client(session, command, out),
        Verb::Command => commands(session.version, command, out),
        Verb::Get => {
            let text = "GET is refused: a namespace has no present value. Each agent gives out its own range, so the \
                        last id of one of them says nothing about the others. Take an id with INCR";
            reply::error(out, Word::Err, text);
        }
        // Answered by the session.
        Verb::Incr | Verb::IncrBy | Verb::Auth | Verb::Hello | Verb::Reset | Verb::Quit => {}
    }
}

fn info(session: &Session, command: &Command<'_>) -> String {
    let ctx = &session.door.front.agent().ctx;
    let (view, health) = (ctx.view(), ctx.health());
    let uplink = match health.uplink {
        UplinkState::Never => "never",
        UplinkState::Up => "up",
        UplinkState::Down => "down",
        UplinkState::Refused => "refused",
    };
    let state = view.standing.map_or("unknown", |standing| standing.state.as_str());
    let epoch = view.epoch().unwrap_or_default();
    let sections = [
        (
            "Server",
            format!(
                "redis_version:{COMPATIBLE}\r\nredis_mode:standalone\r\ncadastre_version:{}\r\nprocess_id:{}\r\n",
                ctx.me.version,
                std::process::id()
            ),
        ),
        ("Clients", format!("maxclients:{}\r\n", super::MAX_CONNECTIONS)),
        ("Persistence", "loading:0\r\n".to_owned()),
        ("Replication", "role:master\r\nconnected_slaves:0\r\n".to_owned()),
        (
            "Cadastre",
            format!(
                "region:{}\r\nepoch:{epoch}\r\nregion_state:{state}\r\nuplink:{uplink}\r\nservice:{}\r\n",
                ctx.me.region,
                session.user()
            ),
        ),
    ];
    let asked = command.words().get(1..).unwrap_or_default();
    let wanted = |name: &str| {
        let names = |word: &&[u8]| {
            ["all", "default", "everything", name].iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
        };
        asked.is_empty() || asked.iter().any(names)
    };
    let mut text = String::new();
    for (name, lines) in sections.iter().filter(|(name, _)| wanted(name)) {
        let gap = if text.is_empty() { "" } else { "\r\n" };
        // Writing to a String cannot fail.
        let _ = write!(text, "{gap}# {name}\r\n{lines}");
    }
    text
}

fn client(session: &mut Session, command: &Command<'_>, out: &mut Vec<u8>) {
    let sub = command.word(1).to_ascii_lowercase();
    match (sub.as_slice(), command.len()) {
        (b"id", 2) => reply::integer(out, session.id),
        (b"getname", 2) if session.client.is_empty() => reply::null(out, session.version),
        (b"getname", 2) => reply::bulk(out, session.client.as_bytes()),
        (b"setname", 3) => match client_name(command.word(2)) {
            Some(name) => {
                session.client = name;
                reply::simple(out, "OK");
            }
            None => bad_client_name(out),
        },
        (b"setinfo", 4) | (b"no-evict" | b"no-touch", 3) => reply::simple(out, "OK"),
        (b"list", _) | (b"info", 2) => {
            // Other connections may be other services': only this one is told of.
            let version = if session.version == Version::Two { 2 } else { 3 };
            let line =
                format!("id={} name={} db=0 user={} resp={version}\n", session.id, session.client, session.user());
            reply::bulk(out, line.as_bytes());
        }
        _ => {
            let text = format!(
                "unknown subcommand or wrong number of arguments for 'client {}'; there are ID, GETNAME, SETNAME, \
                 SETINFO, INFO, LIST, NO-EVICT, NO-TOUCH",
                shown(command.word(1))
            );
            reply::error(out, Word::Err, &text);
        }
    }
}

fn commands(version: Version, command: &Command<'_>, out: &mut Vec<u8>) {
    let sub = command.word(1).to_ascii_lowercase();
    match (sub.as_slice(), command.len()) {
        (_, 1) => reply::array(out, 0),
        (b"count", 2) => reply::integer(out, Verb::ALL.len() as i64),
        (b"docs", _) => reply::map(out, 0, version),
        (b"list", 2) => {
            reply::array(out, Verb::ALL.len());
            for verb in Verb::ALL {
                reply::bulk(out, verb.as_str().as_bytes());
            }
        }
        (b"info", words) => {
            reply::array(out, words - 2);
            for _ in 2..words {
                match version {
                    Version::Two => out.extend_from_slice(b"*-1\r\n"),
                    Version::Three => reply::null(out, version),
                }
            }
        }
        _ => {
            let text = format!(
                "unknown subcommand for 'command {}'; there are COUNT, DOCS, INFO, LIST",
                shown(command.word(1))
            );
            reply::error(out, Word::Err, &text);
        }
    }
}
