//! Everything over TLS, with certificates that a test's own authority signs: shown, asked for, wrong, and replaced.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tests::cluster::random_token;
use tests::process::{Daemon, Spec};
use tests::scratch::Scratch;
use tests::{http, ports};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::help::{cadastre, until};

/// An authority of certificates, and a folder for what it signs.
struct Signer {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: Scratch,
}

impl Signer {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = Scratch::new("certificates");
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    fn path(&self, file: &str) -> String {
        self.folder.path().join(file).display().to_string()
    }

    fn ca_pem(&self) -> Vec<u8> {
        std::fs::read(self.path("ca.pem")).unwrap()
    }

    /// Signs a fresh certificate of this machine and puts it where `who` has its own.
    fn sign(&self, who: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let put = |file: &str, text: String| {
            let whole: PathBuf = self.path(file).into();
            let part = whole.with_extension("part");
            std::fs::write(&part, text).unwrap();
            std::fs::rename(part, whole).unwrap();
        };
        put(&format!("{who}.key"), key.serialize_pem());
        put(&format!("{who}.pem"), certificate.pem());
    }

    /// A daemon's settings: its own certificate, and whom it believes.
    fn settings(&self, spec: Spec, who: &str) -> Spec {
        self.sign(who);
        spec.env("CADASTRE_TLS_CERT", self.path(&format!("{who}.pem")))
            .env("CADASTRE_TLS_KEY", self.path(&format!("{who}.key")))
            .env("CADASTRE_TLS_CA", self.path("ca.pem"))
    }

    /// A client that believes it, and shows a certificate where it has one.
    fn client(&self, shows: Option<&str>) -> reqwest::Client {
        let roots = cadastre_tls::roots(Some(&self.ca_pem())).unwrap();
        let shows = shows.map(|who| {
            let file = |kind| std::fs::read(self.path(&format!("{who}.{kind}"))).unwrap();
            let shows = cadastre_tls::Shows(cadastre_tls::identity(&file("pem"), &file("key")).unwrap());
            std::sync::Arc::new(shows) as std::sync::Arc<_>
        });
        let trust = cadastre_tls::client(roots, shows).unwrap();
        http::builder().tls_backend_preconfigured(trust).tls_info(true).build().unwrap()
    }
}

struct Site {
    signer: Signer,
    authority: Daemon,
    agent: Daemon,
    url: String,
    agent_url: String,
    redis: u16,
    operator: String,
    service: String,
    client: reqwest::Client,
}

async fn ready(client: &reqwest::Client, daemon: &Daemon, url: &str) {
    until(&format!("{url} serves"), async || {
        assert!(daemon.is_alive(), "{}", daemon.log());
        let answer = http::call_with(client, "GET", &format!("{url}/healthz"), None, None).await;
        answer.is_ok_and(|answer| answer.0 == 200)
    })
    .await;
}

impl Site {
    /// An authority and an agent, over TLS only; `mutual`: they ask for certificates, too.
    async fn start(mutual: bool) -> Self {
        let signer = Signer::new("the test's own");
        signer.sign("operator");
        let client = signer.client(mutual.then_some("operator"));
        let ask = |spec: Spec| if mutual { spec.env("CADASTRE_TLS_CLIENT_CA", signer.path("ca.pem")) } else { spec };
        let operator = random_token("cad_op_");
        let (port, agent_port, redis) = (ports::free(), ports::free(), ports::free());
        let (url, agent_url) = (format!("https://127.0.0.1:{port}"), format!("https://127.0.0.1:{agent_port}"));
        let spec = Spec::binary("global-authority")
            .env("CADASTRE_LISTEN", format!("127.0.0.1:{port}"))
            .env("CADASTRE_DATA", "{data}")
            .env("CADASTRE_BOOTSTRAP_TOKEN", operator.as_str());
        let authority = Daemon::start(ask(signer.settings(spec, "authority")));
        ready(&client, &authority, &url).await;
        let operate = async |path: &str, body: Value| -> Value {
            let answer = http::call_with(&client, "POST", &format!("{url}{path}"), Some(&operator), Some(&body)).await;
            let (status, _, answer) = answer.unwrap();
            assert_eq!(status, 201, "{path}: {answer}");
            answer
        };
        operate("/v1/namespaces", json!({"name": "orders"})).await;
        let limits = json!({"ids_per_second": 1_000_000});
        operate("/v1/services", json!({"name": "shop", "namespaces": ["orders"], "limits": limits})).await;
        let service = operate("/v1/services/shop/tokens", json!({})).await["token"].as_str().unwrap().to_owned();
        let region = operate("/v1/regions", json!({"name": "eu"})).await["token"].as_str().unwrap().to_owned();
        let spec = Spec::binary("region-agent")
            .env("CADASTRE_LISTEN", format!("127.0.0.1:{agent_port}"))
            .env("CADASTRE_DATA", "{data}")
            .env("CADASTRE_AUTHORITY_URL", url.as_str())
            .env("CADASTRE_REGION", "eu")
            .env("CADASTRE_REGION_TOKEN", region)
            .env("CADASTRE_RESP_LISTEN", format!("127.0.0.1:{redis}"))
            .env("CADASTRE_HEARTBEAT_SECONDS", "1");
        let agent = Daemon::start(ask(signer.settings(spec, "agent")));
        ready(&client, &agent, &agent_url).await;
        let site = Self { signer, authority, agent, url, agent_url, redis, operator, service, client };
        until("ids are issued", async || site.ids().await.is_some()).await;
        site
    }

    async fn ids(&self) -> Option<usize> {
        let (url, body) = (format!("{}/v1/ids", self.agent_url), json!({"namespace": "orders", "count": 10}));
        let answer = http::call_with(&self.client, "POST", &url, Some(&self.service), Some(&body)).await.ok()?;
        answer.2["ids"].as_array().map(Vec::len)
    }

    /// What the authority hears of its agents, which it asks over TLS.
    async fn uses(&self) -> Value {
        let url = format!("{}/v1/services/use", self.url);
        http::call_with(&self.client, "GET", &url, Some(&self.operator), None).await.unwrap().2
    }

    fn cadastre(&self, words: &[&str]) -> (i32, String) {
        cadastre(&self.url, &self.operator, words)
    }

    /// An INCR of the Redis protocol, over TLS.
    async fn incr(&self) -> String {
        let trust = cadastre_tls::client(cadastre_tls::roots(Some(&self.signer.ca_pem())).unwrap(), None).unwrap();
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(trust));
        let stream = tokio::net::TcpStream::connect(("127.0.0.1", self.redis)).await.unwrap();
        let name = tokio_rustls::rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let mut stream = connector.connect(name, stream).await.unwrap();
        stream.write_all(format!("AUTH {}\r\nINCR orders\r\nQUIT\r\n", self.service).as_bytes()).await.unwrap();
        let mut answer = String::new();
        // How the server takes leave does not matter.
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    /// The certificate that a daemon shows now.
    async fn shown(&self, url: &str) -> Vec<u8> {
        let fresh = self.signer.client(Some("operator"));
        let answer = fresh.get(format!("{url}/healthz")).send().await.unwrap();
        let info = answer.extensions().get::<reqwest::tls::TlsInfo>().unwrap();
        info.peer_certificate().unwrap().to_vec()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_are_issued_over_tls_and_who_believes_nobody_is_told() {
    let site = Site::start(false).await;
    let ca = site.signer.path("ca.pem");
    let uses = site.uses().await;
    assert_eq!(
        (uses["unheard"].as_array().map(Vec::len), uses["uses"][0]["region"].as_str()),
        (Some(0), Some("eu")),
        "{uses}"
    );
    let (code, said) = site.cadastre(&["--ca", &ca, "region", "list"]);
    assert!(code == 0 && said.contains("eu"), "{said}");
    let (code, said) = site.cadastre(&["region", "list"]);
    assert!(code == 1 && said.contains("signed by nobody that is believed here"), "{code}: {said}");
    let (code, said) = site.cadastre(&["--ca", "/nowhere.pem", "region", "list"]);
    assert!(code == 2 && said.contains("tls_ca"), "{code}: {said}");
    let plain = site.url.replace("https", "http");
    let (code, said) = cadastre(&plain, &site.operator, &["region", "list"]);
    assert!(code == 1 && said.contains(&plain), "{code}: {said}");
    assert!(
        http::call("GET", &format!("{plain}/healthz"), None, None).await.is_err(),
        "nothing is answered in the clear"
    );
    // A process that issues by itself.
    let builder = cadastre_client::Client::builder().agent(&site.agent_url).token(&site.service).name("till");
    let believes = builder.clone().certificate_authorities(site.signer.ca_pem()).build().unwrap();
    believes.namespace("orders").unwrap().next().await.unwrap();
    let doubts = builder.certificate_authorities(Signer::new("somebody else").ca_pem()).build().unwrap();
    let why = doubts.namespace("orders").unwrap().next().await.unwrap_err().to_string();
    assert!(why.contains("certificate"), "{why}");
    let answer = site.incr().await;
    assert!(answer.starts_with("+OK\r\n:") && answer.ends_with("+OK\r\n"), "{answer:?}");
    let clear = http::raw(&format!("127.0.0.1:{}", site.redis), b"PING\r\n").await.unwrap_or_default();
    assert!(!clear.starts_with(b"+") && !clear.starts_with(b"-"), "nothing in the clear: {clear:?}");
    // Half a handshake, and a half head: neither keeps a place that others need.
    let idle: Vec<_> =
        (0..300).map(|_| std::net::TcpStream::connect(site.agent_url.trim_start_matches("https://"))).collect();
    until("others are served meanwhile", async || site.ids().await.is_some()).await;
    drop(idle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_certificate_is_shown_without_a_restart_and_a_broken_one_changes_nothing() {
    let site = Site::start(false).await;
    for (daemon, url, who) in [(&site.authority, &site.url, "authority"), (&site.agent, &site.agent_url, "agent")] {
        let first = site.shown(url).await;
        std::fs::write(site.signer.path(&format!("{who}.pem")), "nothing of the kind").unwrap();
        until("it is told", async || daemon.log().contains("the ones before stay in use")).await;
        assert_eq!(site.shown(url).await, first);
        site.signer.sign(who);
        until("the new one is shown", async || site.shown(url).await != first).await;
        assert!(daemon.is_alive() && !daemon.log().contains("PRIVATE"), "{}", daemon.log());
    }
    assert!(site.ids().await.is_some() && site.uses().await["unheard"] == json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_certificate_is_not_heard_where_one_is_asked_for() {
    let site = Site::start(true).await;
    assert_eq!(site.uses().await["unheard"], json!([]), "the authority shows its own to the agent");
    let bare = site.signer.client(None);
    for url in [&site.url, &site.agent_url] {
        let answer = http::call_with(&bare, "GET", &format!("{url}/healthz"), None, None).await;
        assert!(answer.is_err(), "{answer:?}");
    }
    let ca = site.signer.path("ca.pem");
    let (code, said) = site.cadastre(&["--ca", &ca, "region", "list"]);
    assert!(code == 1 && said.contains("asks for a certificate"), "{code}: {said}");
    let (cert, key) = (site.signer.path("operator.pem"), site.signer.path("operator.key"));
    let (code, said) = site.cadastre(&["--ca", &ca, "--cert", &cert, "--key", &key, "region", "list"]);
    assert!(code == 0 && said.contains("eu"), "{said}");
    // One that somebody else signed is as good as none.
    let other = Signer::new("somebody else");
    other.sign("operator");
    let (cert, key) = (other.path("operator.pem"), other.path("operator.key"));
    let (code, said) = site.cadastre(&["--ca", &ca, "--cert", &cert, "--key", &key, "region", "list"]);
    assert!(code == 1 && said.contains("certificate"), "{code}: {said}");
}
