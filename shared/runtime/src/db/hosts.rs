//! Several servers under one URL: `postgres://user@one:5432,two:5432/store`.
//!
//! Purpose: to follow the primary where no load balancer does. Invariant: all new connections of a pool go to one server, the
//! first of the list that is no standby; whether it may be believed is not decided here, but by its identity and by whoever
//! opened the store. Absent on purpose: reading from standbys, spreading load.

use std::sync::Arc;
use std::time::Duration;

use sqlx::any::AnyConnectOptions;
use sqlx::{AnyConnection, AnyPool, ConnectOptions as _, Connection as _, Executor, Row as _};

use super::error::DbError;
use super::sqlx_setup::redact;

/// How long one host is given to say whether it is a primary.
const ASK_WITHIN: Duration = Duration::from_secs(2);

const RECOVERS: &str = "SELECT CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END::bigint";
const ANSWERS: &str = "SELECT 0::bigint";

/// The hosts of one URL, each as a URL of its own.
pub(super) struct Hosts {
    urls: Vec<String>,
    /// What tells a primary.
    question: &'static str,
    /// One look for the primary at a time; whoever waited for one needs none of its own.
    looking: tokio::sync::Mutex<()>,
}

impl Hosts {
    /// Takes a URL apart. Where servers are not watched, any that answers will do.
    pub(super) fn of(url: &str, watched: bool) -> Arc<Self> {
        let question = if watched { RECOVERS } else { ANSWERS };
        Arc::new(Self { urls: apart(url), question, looking: tokio::sync::Mutex::new(()) })
    }

    /// Whether there is more than one.
    pub(super) fn several(&self) -> bool {
        self.urls.len() > 1
    }

    /// The URL to begin with: the primary's, or the only one.
    pub(super) async fn primary(&self) -> Result<&str, DbError> {
        let mut why = String::from("there is no host in it");
        if let [only] = self.urls.as_slice() {
            return Ok(only);
        }
        for url in &self.urls {
            match tokio::time::timeout(ASK_WITHIN, is_primary(url, self.question)).await {
                Ok(Ok(true)) => return Ok(url),
                Ok(Ok(false)) => "the last one is a standby".clone_into(&mut why),
                Ok(Err(error)) => why = redact(url, &error.to_string()),
                Err(_) => "the last one does not answer".clone_into(&mut why),
            }
        }
        Err(DbError::Unavailable(format!("none of the database URL's hosts is a primary: {why}")))
    }

    /// Turns a pool's next connections to the primary, where there is one.
    pub(super) async fn follow(&self, pool: &AnyPool) -> Result<(), DbError> {
        if !self.several() {
            return Ok(());
        }
        let Ok(_turn) = self.looking.try_lock() else {
            drop(self.looking.lock().await);
            return Ok(());
        };
        let url = self.primary().await?;
        let options =
            url.parse::<AnyConnectOptions>().map_err(|error| DbError::Other(redact(url, &error.to_string())))?;
        pool.set_connect_options(options.disable_statement_logging());
        Ok(())
    }
}

async fn is_primary(url: &str, question: &'static str) -> Result<bool, sqlx::Error> {
    let options = url.parse::<AnyConnectOptions>()?.disable_statement_logging();
    let mut conn = AnyConnection::connect_with(&options).await?;
    let recovers: i64 = conn.fetch_one(question).await?.try_get(0)?;
    conn.close().await.ok();
    Ok(recovers == 0)
}

/// One URL per host. Anything else of it is the same for all.
fn apart(url: &str) -> Vec<String> {
    let Some((scheme, rest)) = url.split_once("://") else { return vec![url.to_owned()] };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (login, hosts) = authority.rsplit_once('@').map_or(("", authority), |(login, hosts)| (login, hosts));
    let at = if login.is_empty() { "" } else { "@" };
    hosts.split(',').map(|host| format!("{scheme}://{login}{at}{host}{path}")).collect()
}

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn each_host_gets_the_rest_of_the_url() {
        assert_eq!(
            apart("postgres://u:p,w@a:1,b:2/d?x=1"),
            ["postgres://u:p,w@a:1/d?x=1", "postgres://u:p,w@b:2/d?x=1"]
        );
        assert_eq!(apart("postgres://a/d"), ["postgres://a/d"]);
        assert_eq!(apart("postgres://a,b"), ["postgres://a", "postgres://b"]);
        assert_eq!(apart("sqlite:x"), ["sqlite:x"]);
    }
}
