//! A store that is somebody else's, damaged or from the future: refused at start, with what to do.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use tests::cluster::{Cluster, fixed};
use tests::ledger_of_ids::Exposed;
use tests::process::{Daemon, Spec};

use crate::help::{assert_sound, extra_agent, quick, refuses_to_start, register, take, token_of};

async fn cluster() -> (Cluster, Exposed) {
    let exposed = Exposed::new();
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    take(&cluster, "eu", "orders", 50, 10, &exposed).await;
    (cluster, exposed)
}

/// An authority on any store.
fn authority(change: impl FnOnce(Spec) -> Spec) -> Daemon {
    let spec = Spec::binary("global-authority").env("CADASTRE_DATA", "{data}");
    Daemon::start(change(spec.env("CADASTRE_LISTEN", format!("127.0.0.1:{}", tests::ports::free()))))
}

fn sqlite(file: &Path) -> String {
    format!("sqlite://{}", file.display())
}

fn execute(file: &Path, sql: &str) {
    let db = rusqlite::Connection::open(file).unwrap();
    db.execute_batch(sql).unwrap();
}

/// The log is brought into the file, so that damage to the file is damage to the store.
fn into_one_file(file: &Path) {
    let db = rusqlite::Connection::open(file).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

fn overwrite(file: &Path, at: u64, bytes: &[u8]) {
    let mut open = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    open.seek(SeekFrom::Start(at)).unwrap();
    open.write_all(bytes).unwrap();
}

#[tokio::test]
async fn a_second_process_on_the_same_folder_is_refused_and_the_first_goes_on() {
    let (cluster, exposed) = cluster().await;
    let folder = cluster.region("eu").agent.data_folder().display().to_string();
    let second = extra_agent(&cluster, "eu", token_of(&cluster, "eu"), |spec| spec.env("CADASTRE_DATA", &folder));
    refuses_to_start(&second.agent, &["is in use by process", "stop it first", &folder]).await;
    let folder = cluster.authority.data_folder().display().to_string();
    let second = authority(|spec| spec.env("CADASTRE_DATA", &folder));
    refuses_to_start(&second, &["is in use by process", "stop it first", &folder]).await;
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn a_damaged_store_is_refused_with_what_to_do() {
    let (cluster, exposed) = cluster().await;
    let agent = &cluster.region("eu").agent;
    for (daemon, file) in [(agent, "region.db"), (&cluster.authority, "authority.db")] {
        daemon.kill9();
        let file = daemon.data_folder().join(file);
        into_one_file(&file);
        let whole = std::fs::read(&file).unwrap();
        overwrite(&file, 0, b"this is no database at all");
        daemon.start_again();
        refuses_to_start(daemon, &["never written there"]).await;
        // The schema's own page, behind a head that looks well.
        std::fs::write(&file, &whole).unwrap();
        overwrite(&file, 100, &[0xa5; 2_000]);
        daemon.start_again();
        refuses_to_start(daemon, &["never written there"]).await;
        std::fs::write(&file, &whole).unwrap();
        daemon.start_again();
    }
    cluster.authority.wait_ready(&format!("{}/readyz", cluster.url)).await;
    agent.wait_ready(&format!("{}/healthz", cluster.region("eu").url)).await;
    // What was put back was as it is: the witnesses agree.
    take(&cluster, "eu", "orders", 50, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn a_store_of_a_newer_program_is_refused() {
    let (cluster, exposed) = cluster().await;
    let agent = &cluster.region("eu").agent;
    for (daemon, file) in [(agent, "region.db"), (&cluster.authority, "authority.db")] {
        daemon.kill9();
        let file = daemon.data_folder().join(file);
        execute(&file, "INSERT INTO schema_version (version, name) VALUES (99, 'later')");
        daemon.start_again();
        refuses_to_start(daemon, &["99", "newer program"]).await;
        execute(&file, "DELETE FROM schema_version WHERE version = 99");
        daemon.start_again();
    }
    cluster.authority.wait_ready(&format!("{}/readyz", cluster.url)).await;
    agent.wait_ready(&format!("{}/healthz", cluster.region("eu").url)).await;
    take(&cluster, "eu", "orders", 50, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn the_witness_or_store_of_another_role_is_refused() {
    let (cluster, exposed) = cluster().await;
    let token = register(&cluster, "us").await;
    let folder = cluster.region("eu").agent.data_folder();
    let witness = folder.with_file_name("data-witness").join("region-eu.db");
    let setting = format!("file:{}", witness.display());
    let us = extra_agent(&cluster, "us", &token, |spec| spec.env("CADASTRE_WITNESS", &setting));
    refuses_to_start(&us.agent, &["belongs to region/eu", "a witness of its own"]).await;
    let second = authority(|spec| spec.env("CADASTRE_WITNESS", &setting));
    refuses_to_start(&second, &["belongs to region/eu", "a witness of its own"]).await;
    // A copy, so that the agent which lives on it is left alone.
    cluster.region("eu").agent.kill9();
    let copy = folder.join("copy.db");
    into_one_file(&folder.join("region.db"));
    std::fs::copy(folder.join("region.db"), &copy).unwrap();
    cluster.restart_agent("eu").await;
    let us = extra_agent(&cluster, "us", &token, |spec| spec.env("CADASTRE_DATABASE_URL", sqlite(&copy)));
    refuses_to_start(&us.agent, &["the store of region/eu, not of region/us"]).await;
    let second = authority(|spec| spec.env("CADASTRE_DATABASE_URL", sqlite(&copy)));
    refuses_to_start(&second, &["the store of region/eu, not of authority"]).await;
    take(&cluster, "eu", "orders", 50, 10, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

#[tokio::test]
async fn an_empty_store_is_made_a_cluster_only_on_purpose() {
    let (cluster, exposed) = cluster().await;
    let second = authority(|spec| spec);
    refuses_to_start(&second, &["the store is empty", "CADASTRE_BOOTSTRAP_TOKEN"]).await;
    let second = authority(|spec| spec.env("CADASTRE_BOOTSTRAP_TOKEN", "cad_op_short"));
    refuses_to_start(&second, &["64 lower-case hex digits"]).await;
    assert!(!second.log().contains("cad_op_short"), "what was given is not repeated:\n{}", second.log());
    // The store was lost and its witness is there: not a new cluster, whatever token is given.
    cluster.authority.kill9();
    let folder = cluster.authority.data_folder();
    let away = folder.with_file_name("away");
    std::fs::rename(&folder, &away).unwrap();
    cluster.authority.start_again();
    refuses_to_start(&cluster.authority, &["the store is empty", "lost or restored store"]).await;
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::rename(&away, &folder).unwrap();
    cluster.restart_authority().await;
    take(&cluster, "eu", "orders", 1_500, 50, &exposed).await;
    assert_sound(&cluster, &exposed).await;
}

/// What cannot be is refused by the setting's name, and no setting that is a secret is shown.
#[tokio::test]
async fn an_impossible_setting_is_refused_by_its_name() {
    let (cluster, _) = cluster().await;
    let token = token_of(&cluster, "eu");
    for (name, value, word) in [
        ("CADASTRE_REGION", "a b", "region"),
        ("CADASTRE_HEARTBEAT_SECONDS", "0", "heartbeat_seconds"),
        ("CADASTRE_WITNESS", "cloud://x", "witness"),
        ("CADASTRE_DATABASE_URL", "mysql://me:hunter2@x/y", "sqlite:// or postgres://"),
        ("CADASTRE_DATABASE_URL", "postgres://me:hunter2@127.0.0.1:9/y", "out of reach"),
        ("CADASTRE_AUTHORITY_URL", "ftp://x", "authority_url"),
        ("CADASTRE_TLS_CERT", "/x.pem", "tls_key"),
        ("CADASTRE_TLS_CA", "/x.pem", "tls_ca"),
        ("CADASTRE_REQUIRE_SYNC", "1", "require_sync"),
    ] {
        let bad = extra_agent(&cluster, "eu", token, |spec| spec.env(name, value));
        assert!(bad.agent.ended_within(std::time::Duration::from_secs(30)).await, "{name}={value} is taken");
        let log = bad.agent.log();
        assert_ne!(bad.agent.exit_code(), Some(0), "{log}");
        assert!(log.contains(word), "{name}={value}: {log}");
        assert!(!log.contains("hunter2") && !log.contains(token) && !log.contains("panicked"), "{log}");
    }
}
