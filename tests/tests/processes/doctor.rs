//! `cadastre doctor` about stores: what a real server was set to under running processes is named, with the cure, and is
//! gone from the list when it was mended.

use tests::cluster::{Backend, Cluster, fixed};
use tests::postgres::Postgres;
use tests::process::{Daemon, Spec};

use crate::help::{cadastre, quick, refuses_to_start, until};

fn doctor(cluster: &Cluster) -> (i32, String) {
    cadastre(&cluster.url, &cluster.operator_token, &["doctor"])
}

fn set(server: &Postgres, setting: &str, value: &str) {
    server.psql(&format!("ALTER SYSTEM SET {setting} = {value}"));
    server.psql("SELECT pg_reload_conf()");
}

/// fsync is switched off by a reload, which no connection notices: both tiers tell, and doctor says what to do. A start is
/// refused by the same name.
#[tokio::test]
async fn fsync_that_was_switched_off_under_running_processes_is_named_with_the_cure() {
    let server = Postgres::start();
    let (authority, region) = (server.create_database("authority"), server.create_database("eu"));
    let builder = quick().authority(Backend::Url(authority)).region_on("eu", Backend::Url(region));
    let cluster = builder.namespace_with("orders", fixed(1_000, 100)).start().await;
    until("doctor has nothing bad to say", async || doctor(&cluster).0 == 0).await;
    assert!(!doctor(&cluster).1.contains("fsync"));

    set(&server, "fsync", "off");
    until("both tiers tell of fsync", async || {
        let (code, said) = doctor(&cluster);
        code == 1 && said.matches("BAD ").count() >= 2 && said.matches("fsync is off").count() == 2
    })
    .await;
    let (_, said) = doctor(&cluster);
    assert!(said.contains("ALTER SYSTEM SET fsync = on; SELECT pg_reload_conf()"), "{said}");
    for daemon in [&cluster.authority, &cluster.region("eu").agent] {
        until("it stands in its log", async || daemon.log().contains("fsync is off")).await;
    }
    let url = server.create_database("fresh");
    let refused = Daemon::start(
        Spec::binary("global-authority").env("CADASTRE_DATA", "{data}").env("CADASTRE_DATABASE_URL", url.as_str()),
    );
    refuses_to_start(&refused, &["fsync = off", "Set fsync = on on the server"]).await;

    // The other settings, one after the other; a warning is no failure.
    set(&server, "fsync", "on");
    until("doctor has nothing bad to say again", async || doctor(&cluster).0 == 0).await;
    set(&server, "full_page_writes", "off");
    until("it is named", async || doctor(&cluster).1.contains("ALTER SYSTEM SET full_page_writes = on")).await;
    set(&server, "full_page_writes", "on");
    set(&server, "synchronous_commit", "'local'");
    until("the default is named", async || {
        let (code, said) = doctor(&cluster);
        code == 0 && said.contains("synchronous_commit is local by default")
    })
    .await;
    set(&server, "synchronous_commit", "'on'");
    until("all is well", async || {
        let (code, said) = doctor(&cluster);
        code == 0 && !said.contains("synchronous_commit is")
    })
    .await;
}

/// A file on what lives in memory, and a weakened one: told by the agent about its own store.
#[tokio::test]
async fn a_weakened_file_is_named() {
    let cluster = quick().region("eu").namespace_with("orders", fixed(1_000, 100)).start().await;
    let agent = &cluster.region("eu").agent;
    assert_eq!(agent.terminate().await, 0);
    agent.change(|spec| spec.arg("--unsafe-sqlite-synchronous").arg("normal"));
    cluster.restart_agent("eu").await;
    until("it is named", async || {
        let (code, said) = doctor(&cluster);
        code == 1 && said.contains("synchronous is weaker than FULL") && said.contains("--unsafe-sqlite-synchronous")
    })
    .await;
}
