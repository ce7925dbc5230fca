//! What an application says about itself: addresses, a token, a name. Everything else has a default that fits.
//!
//! Invariant: what is built is usable; each refusal names the setting. Absent on purpose: anything that belongs to a
//! namespace: it comes with the segments.

use std::sync::Arc;
use std::time::Duration;

use cadastre_core::ids::Name;

use crate::client::Client;
use crate::error::Error;
use crate::process::{Agents, Process, Settings};
use crate::refill;
use crate::testing::InMemory;
use crate::wire::Token;
use cadastre_tls::{self as tls, ClientConfig, TlsError};

/// Makes a [`Client`]; see [`Client::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    agents: Vec<String>,
    token: Option<Token>,
    memory: Option<InMemory>,
    authorities: Option<Vec<u8>>,
    certificate: Option<(Vec<u8>, Vec<u8>)>,
    name: String,
    namespaces: Vec<String>,
    deadline: Duration,
    request_timeout: Duration,
    sizes: (u64, u64),
    target: Duration,
    buffer: Duration,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("agents", &self.agents)
            .field("token", &self.token)
            .field("name", &self.name)
            .field("namespaces", &self.namespaces)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl Default for Builder {
    fn default() -> Builder {
        Builder {
            agents: vec![],
            token: None,
            memory: None,
            authorities: None,
            certificate: None,
            name: String::new(),
            namespaces: vec![],
            deadline: Duration::from_secs(1),
            request_timeout: Duration::from_secs(2),
            sizes: (50, 100_000),
            target: Duration::from_secs(60),
            buffer: Duration::from_secs(15),
        }
    }
}

impl Builder {
    /// The address of an agent, such as `http://127.0.0.1:7410`. Called again: one to fail over to. The first is
    /// asked as long as it is well; another region's gives ranges of its own region.
    pub fn agent(mut self, url: impl Into<String>) -> Builder {
        self.agents.push(url.into());
        self
    }

    /// Who signs the certificates of agents whose address begins with `https://`, in PEM. Without it: whom the machine
    /// believes.
    pub fn certificate_authorities(mut self, pem: impl Into<Vec<u8>>) -> Builder {
        self.authorities = Some(pem.into());
        self
    }

    /// The certificate chain and its key, in PEM, for agents that ask for one.
    pub fn certificate(mut self, chain_pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Builder {
        self.certificate = Some((chain_pem.into(), key_pem.into()));
        self
    }

    /// The service token (`cad_svc_...`). Never logged, never printed.
    pub fn token(mut self, token: impl Into<String>) -> Builder {
        self.token = Some(Token::new(token));
        self
    }

    /// A name for people, such as the program's: it is shown where an ID came from. Nothing is derived from it, and
    /// two processes may have the same.
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = name.into();
        self
    }

    /// A namespace whose first segment is asked for at once. [`Client::ready`] waits for it.
    pub fn namespace(mut self, name: impl Into<String>) -> Builder {
        self.namespaces.push(name.into());
        self
    }

    /// How long a call waits at most where nothing is in memory (1 s).
    pub fn deadline(mut self, deadline: Duration) -> Builder {
        self.deadline = deadline;
        self
    }

    /// How long an agent may take to answer before the next one is asked (2 s).
    pub fn request_timeout(mut self, timeout: Duration) -> Builder {
        self.request_timeout = timeout;
        self
    }

    /// The least and the most IDs that are asked for at once (50 to 100,000). What is in memory when the process
    /// ends is a gap; what is in memory lasts through an outage of the agents.
    pub fn segment_sizes(mut self, least: u64, most: u64) -> Builder {
        self.sizes = (least, most);
        self
    }

    /// How long a segment should last (60 s), and how long before its end the next one is asked for (15 s).
    pub fn lasting(mut self, target: Duration, buffer: Duration) -> Builder {
        (self.target, self.buffer) = (target, buffer);
        self
    }

    /// Takes IDs from a double instead of agents; see [`testing`](crate::testing).
    pub fn in_memory(mut self, agents: &InMemory) -> Builder {
        self.memory = Some(agents.clone());
        self
    }

    /// Starts the client. It asks nobody before the first ID is needed, or [`Self::namespace`] was called.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) naming the setting; [`ErrorKind::Closed`](crate::ErrorKind::Closed) where the machine gives no thread.
    pub fn build(self) -> Result<Client, Error> {
        let settings = self.settings()?;
        Ok(Client::new(Process::start(settings)?))
    }

    fn settings(self) -> Result<Settings, Error> {
        let agents = match self.memory {
            Some(memory) => Agents::Memory(memory),
            None => {
                let token = self.token.filter(|token| !token.is_empty());
                let token = token.ok_or_else(|| Error::config("token", "give a service token (cad_svc_...)"))?;
                let agents = addresses(self.agents)?;
                let trust = trust(&agents, self.authorities.as_deref(), self.certificate.as_ref())?;
                Agents::Http(agents, token, Box::new(trust))
            }
        };
        let name =
            |field, text: &str| Name::new(text).map_err(|error| Error::config(field, format!("{text:?}: {error}")));
        let namespaces = self.namespaces.iter().map(|text| name("namespace", text)).collect::<Result<_, _>>()?;
        let some = |field, time: Duration| {
            let usable = !time.is_zero() && time <= Duration::from_secs(3_600);
            usable.then_some(time).ok_or_else(|| Error::config(field, "must be above zero, and at most an hour"))
        };
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let policy = refill::policy(self.sizes, millis(self.target), millis(self.buffer));
        Ok(Settings {
            agents,
            instance: name("name", &self.name)?,
            deadline: some("deadline", self.deadline)?,
            request_timeout: some("request_timeout", self.request_timeout)?,
            policy: policy.map_err(|error| Error::config(error.field, error.problem))?,
            namespaces,
        })
    }
}

fn trust(
    agents: &[String],
    authorities: Option<&[u8]>,
    certificate: Option<&(Vec<u8>, Vec<u8>)>,
) -> Result<ClientConfig, Error> {
    let wrong = |field: &'static str| move |error: TlsError| Error::config(field, error.to_string());
    if !agents.iter().any(|url| url.starts_with("https://")) {
        return tls::nobody().map_err(wrong("agent"));
    }
    let shows = certificate.map(|(chain, key)| tls::identity(chain, key)).transpose().map_err(wrong("certificate"))?;
    let roots = tls::roots(authorities).map_err(wrong("certificate_authorities"))?;
    let shows = shows.map(|shows| Arc::new(tls::Shows(shows)) as Arc<_>);
    tls::client(roots, shows).map_err(wrong("certificate"))
}

fn addresses(agents: Vec<String>) -> Result<Vec<String>, Error> {
    if agents.is_empty() {
        return Err(Error::config("agent", "give the address of an agent, such as http://127.0.0.1:7410"));
    }
    for url in &agents {
        match url.parse::<reqwest::Url>() {
            Ok(parsed)
                if ["http", "https"].contains(&parsed.scheme())
                    && parsed.has_host()
                    && parsed.username().is_empty() => {}
            Ok(_) => return Err(Error::config("agent", format!("{url:?}: use http://HOST:PORT or https://HOST:PORT"))),
            Err(error) => return Err(Error::config("agent", format!("{url:?}: {error}"))),
        }
    }
    Ok(agents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn field(builder: Builder) -> &'static str {
        match builder.settings().err().unwrap().kind() {
            ErrorKind::Config { field, .. } => field,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn each_refusal_names_the_setting() {
        let good = || Builder::default().agent("http://127.0.0.1:7410").token("cad_svc_x").name("checkout");
        assert!(good().settings().is_ok());
        assert_eq!(field(Builder::default().token("t").name("n")), "agent");
        assert_eq!(field(Builder::default().agent("http://a").name("n")), "token");
        assert_eq!(field(good().agent("ftp://a")), "agent");
        assert_eq!(field(good().agent("nonsense")), "agent");
        assert_eq!(field(good().name("two words")), "name");
        assert_eq!(field(good().namespace("")), "namespace");
        assert_eq!(field(good().deadline(Duration::ZERO)), "deadline");
        assert_eq!(field(good().request_timeout(Duration::from_secs(7_200))), "request_timeout");
        assert_eq!(field(good().segment_sizes(0, 5)), "min_size");
        assert_eq!(field(good().lasting(Duration::from_secs(5), Duration::from_secs(5))), "target_ms");
    }

    #[test]
    fn the_token_is_not_printed() {
        let text = format!("{:?}", Builder::default().token("cad_svc_secret"));
        assert!(!text.contains("secret"), "{text}");
    }
}
