//! Certificates, from the files that people have: whom a connecting side believes, and what either side shows.
//!
//! Purpose: the daemons, the command line and the clients in users' programs believe the same and say the same when
//! something is wrong. Invariants: TLS 1.2 and 1.3 only; a server's name is always checked; a key is never shown,
//! neither in an error. Absent on purpose: reading files again when they change (the daemons do), accepting connections,
//! and switching any check off.

use std::sync::Arc;

pub use rustls::ClientConfig;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, SignatureScheme};

/// What is wrong with a certificate, a key or a list of authorities, and what to do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

impl TlsError {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// The same as what the connecting side is asked to believe: the one provider of algorithms.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A certificate chain and its key, both PEM.
///
/// # Errors
/// [`TlsError`] where one of them cannot be read, or they do not belong together.
pub fn identity(chain_pem: &[u8], key_pem: &[u8]) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates(chain_pem, "the certificate file")?;
    let key = PrivateKeyDer::from_pem_slice(key_pem)
        .map_err(|_| TlsError::new("the key file has no private key in PEM (PKCS#8, SEC1 or PKCS#1, not encrypted)"))?;
    let certified = CertifiedKey::from_der(chain, key, &provider()).map_err(|e| {
        TlsError::new(format!("certificate and key do not belong together, or are of no known kind: {e}"))
    })?;
    Ok(Arc::new(certified))
}

/// Those who sign what is believed: the ones of `pem`, or of the machine where there is none.
///
/// # Errors
/// [`TlsError`] where `pem` has no certificate.
pub fn roots(pem: Option<&[u8]>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match pem {
        Some(pem) => {
            for certificate in certificates(pem, "the file of certificate authorities")? {
                roots.add(certificate).map_err(|e| TlsError::new(format!("not a certificate authority: {e}")))?;
            }
        }
        // A machine without any believes nobody: the connection says so, not the start.
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|_| TlsError::new(format!("{what} is not PEM")))?;
    if all.is_empty() {
        return Err(TlsError::new(format!("{what} has no certificate in PEM")));
    }
    Ok(all)
}

/// How a connecting side believes and what it shows where it is asked.
///
/// # Errors
/// [`TlsError`] where the algorithms cannot be used on this machine.
pub fn client(roots: RootCertStore, shows: Option<Arc<dyn ResolvesClientCert>>) -> Result<ClientConfig, TlsError> {
    let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let config = config.map_err(|e| TlsError::new(e.to_string()))?.with_root_certificates(roots);
    Ok(match shows {
        Some(shows) => config.with_client_cert_resolver(shows),
        None => config.with_no_client_auth(),
    })
}

/// For addresses without TLS: whoever is asked over TLS all the same is not believed.
///
/// # Errors
/// As [`client`].
pub fn nobody() -> Result<ClientConfig, TlsError> {
    client(RootCertStore::empty(), None)
}

/// Shows one certificate for good.
#[derive(Debug)]
pub struct Shows(pub Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Serves(Arc<CertifiedKey>);

impl rustls::server::ResolvesServerCert for Serves {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// How an accepting side shows itself, and whose certificates it asks of whoever connects; nobody's where there are none.
///
/// # Errors
/// [`TlsError`] where `clients_pem` has no certificate.
pub fn server(shows: Arc<CertifiedKey>, clients_pem: Option<&[u8]>) -> Result<ServerConfig, TlsError> {
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let config = config.map_err(|e| TlsError::new(e.to_string()))?;
    let config = match clients_pem {
        None => config.with_no_client_auth(),
        Some(pem) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(Some(pem))?), provider()).build();
            config.with_client_cert_verifier(verifier.map_err(|e| TlsError::new(e.to_string()))?)
        }
    };
    let mut config = config.with_cert_resolver(Arc::new(Serves(shows)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
