//! The certificates of a daemon: shown to whoever connects, and where it connects itself; read again when they change.
//!
//! Invariant: what was good stays in use until something as good takes its place: a broken file is told, once, and
//! changes nothing. Rules and formats are [`cadastre_tls`]'s. Absent on purpose: a signal to read them again (files are
//! looked at every [`EVERY`]), and the authorities that a connecting side believes: those are read at the start.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use cadastre_tls as tls;
use clap::Args;
pub use rustls::ClientConfig;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SignatureScheme};
use serde::{Deserialize, Serialize};
use tokio_rustls::TlsAcceptor;
pub use tokio_rustls::server::TlsStream;

use crate::config::ConfigError;

/// How often the files are looked at.
pub const EVERY: Duration = Duration::from_secs(5);

/// Which certificates.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
pub struct TlsArgs {
    /// Certificate chain (PEM): then everything is served over TLS only. It is shown where this side connects, too.
    #[arg(long, env = "CADASTRE_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of that certificate (PEM, not encrypted).
    #[arg(long, env = "CADASTRE_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Who signs the certificates of whoever connects (PEM): then nobody connects without one.
    #[arg(long, env = "CADASTRE_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Who signs the certificates of those that this side connects to (PEM; default: whom the machine believes).
    #[arg(long, env = "CADASTRE_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
}

impl TlsArgs {
    /// Refuses one without the other.
    ///
    /// # Errors
    /// [`ConfigError::Impossible`] naming the key.
    pub fn check(&self) -> Result<(), ConfigError> {
        match (&self.tls_cert, &self.tls_key, &self.tls_client_ca) {
            (Some(_), None, _) => Err(ConfigError::impossible("tls_key", "is needed with tls_cert")),
            (None, Some(_), _) => Err(ConfigError::impossible("tls_cert", "is needed with tls_key")),
            (None, None, Some(_)) => Err(ConfigError::impossible(
                "tls_client_ca",
                "needs tls_cert and tls_key: only TLS asks for certificates",
            )),
            _ => Ok(()),
        }
    }

    /// What is shown and served; `None` without a certificate.
    ///
    /// # Errors
    /// [`ConfigError::Impossible`] naming the key of the file that cannot be used.
    pub fn open(&self) -> Result<Option<Arc<Certificates>>, ConfigError> {
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else { return Ok(None) };
        let files = Files { cert: cert.clone(), key: key.clone(), clients: self.tls_client_ca.clone() };
        Certificates::open(files).map(|all| Some(Arc::new(all))).map_err(|e| ConfigError::impossible("tls_cert", e))
    }

    /// How this side connects.
    ///
    /// # Errors
    /// [`ConfigError::Impossible`] naming the key of the file that cannot be used.
    pub fn client(&self, shows: Option<&Arc<Certificates>>) -> Result<ClientConfig, ConfigError> {
        let wrong = |why: String| ConfigError::impossible("tls_ca", why);
        let pem = self.tls_ca.as_deref().map(read).transpose().map_err(wrong)?;
        let roots = tls::roots(pem.as_deref()).map_err(|e| wrong(e.to_string()))?;
        let shows = shows.map(|all| Arc::new(Shown(Arc::clone(all))) as Arc<dyn ResolvesClientCert>);
        tls::client(roots, shows).map_err(|e| wrong(e.to_string()))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

struct Files {
    cert: PathBuf,
    key: PathBuf,
    clients: Option<PathBuf>,
}

impl Files {
    fn bytes(&self) -> Result<Bytes, String> {
        let clients = self.clients.as_deref().map(read).transpose()?;
        Ok(Bytes { cert: read(&self.cert)?, key: read(&self.key)?, clients })
    }
}

#[derive(Eq, PartialEq)]
struct Bytes {
    cert: Vec<u8>,
    key: Vec<u8>,
    clients: Option<Vec<u8>>,
}

#[derive(Clone)]
struct Loaded {
    shows: Arc<CertifiedKey>,
    serves: Arc<ServerConfig>,
}

impl Loaded {
    fn of(bytes: &Bytes) -> Result<Self, String> {
        let shows = tls::identity(&bytes.cert, &bytes.key).map_err(|e| e.to_string())?;
        let serves = tls::server(Arc::clone(&shows), bytes.clients.as_deref()).map_err(|e| e.to_string())?;
        Ok(Self { shows, serves: Arc::new(serves) })
    }
}

/// See the module's documentation.
pub struct Certificates {
    files: Files,
    loaded: RwLock<Loaded>,
    /// What was looked at last, good or not.
    seen: Mutex<Result<Bytes, String>>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("cert", &self.files.cert).finish_non_exhaustive()
    }
}

impl Certificates {
    fn open(files: Files) -> Result<Self, String> {
        let bytes = files.bytes()?;
        let loaded = Loaded::of(&bytes)?;
        Ok(Self { files, loaded: RwLock::new(loaded), seen: Mutex::new(Ok(bytes)) })
    }

    fn loaded(&self) -> Loaded {
        self.loaded.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What takes the next connection.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.loaded().serves)
    }

    /// Looks at the files, and takes them where they changed and are good.
    pub fn look(&self) {
        let bytes = self.files.bytes();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == bytes {
            return;
        }
        let result = bytes.as_ref().map_err(Clone::clone).and_then(Loaded::of);
        *seen = bytes;
        metrics::gauge!("cadastre_tls_reload_failed").set(if result.is_err() { 1.0 } else { 0.0 });
        match result {
            Ok(loaded) => {
                *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
                tracing::info!("certificates were read again");
            }
            Err(why) => tracing::error!(why, "certificates changed and cannot be used; the ones before stay in use"),
        }
    }
}

/// Counts a connection that made no handshake.
pub fn refused(why: &str) {
    metrics::counter!("cadastre_tls_handshakes_failed_total").increment(1);
    tracing::debug!(why, "a connection made no TLS handshake");
}

/// Whatever is loaded when somebody asks for it.
#[derive(Debug)]
struct Shown(Arc<Certificates>);

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.loaded().shows)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Why a connection failed, where that is a certificate's fault, in words that say what to do.
#[must_use]
pub fn blame(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(one) = cause {
        if let Some(error) = one.downcast_ref::<rustls::Error>() {
            return Some(words(error));
        }
        // What it wraps is not among its sources.
        let wrapped = one.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(told) = wrapped.and_then(|wrapped| blame(wrapped)) {
            return Some(told);
        }
        cause = one.source();
    }
    None
}

fn words(error: &rustls::Error) -> String {
    use rustls::{AlertDescription, CertificateError, Error};
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is signed by nobody that is believed here: name its certificate authority with tls_ca \
             (CADASTRE_TLS_CA)"
                .to_owned()
        }
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "its certificate has expired: renew it (and look at this machine's clock)".to_owned()
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate is of another name than this address: put the address's name into it".to_owned(),
        Error::AlertReceived(AlertDescription::CertificateRequired | AlertDescription::BadCertificate) => {
            "it asks for a certificate: give one with tls_cert and tls_key (CADASTRE_TLS_CERT, CADASTRE_TLS_KEY)"
                .to_owned()
        }
        Error::AlertReceived(AlertDescription::UnknownCA) => {
            "it does not believe the certificate that is shown here: have it signed by its tls_client_ca".to_owned()
        }
        Error::InvalidMessage(_) => "it does not speak TLS: use an address that begins with http://".to_owned(),
        other => other.to_string(),
    }
}
