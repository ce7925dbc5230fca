//! probe
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::time::Duration;
use tests::cluster::{Cluster, fixed};
use tests::mounts::{Mount, say};
use tests::scratch::Scratch;
use tests::http;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe_agent() {
    let ro = std::env::var_os("RO").is_some();
    let keep = Scratch::new("image");
    let image = keep.path().join("disk.img");
    let disk = if ro { Mount::ext4(&image) } else { Mount::tmpfs("4m") };
    let data = disk.path().join("data").display().to_string();
    let cluster = Cluster::builder().region("eu").agent_env("CADASTRE_DATA", &data).namespace_with("orders", fixed(100_000, 500)).start().await;
    cluster.ids("eu", "orders", 100).await.unwrap();
    if ro { disk.turn_read_only(); } else { say(&format!("filled {}", disk.fill())); }
    say(&format!("{}", cluster.status("eu").await));
    for n in 0..120 { match cluster.ids("eu","orders",10).await { Ok(_) => {}, Err(p) => { say(&format!("{n} {p} {:?}", p.retry_after)); break } } }
    let region = cluster.region("eu");
    for _ in 0..4 { tokio::time::sleep(Duration::from_secs(1)).await;
      if !region.agent.is_alive() { say("ended"); break }
      say(&format!("{}", cluster.status("eu").await));
      say(&format!("{:?}", cluster.ids("eu","orders",10).await.map_err(|p| p.to_string())));
      let (s,_,v)=http::get_json(&format!("{}/v1/origins/orders/5", region.url), Some(&cluster.service_token)).await; say(&format!("{s} {v}"));
      let (s,_,v)=http::post_json(&format!("{}/v1/segments", region.url), Some(&cluster.service_token), &json!({"namespace":"orders","allocation_id":"0190a000-0000-7000-8000-000000000001","instance":"x","incarnation":"0190a000-0000-4000-8000-000000000001","want":"10"})).await; say(&format!("{s} {v}"));
    }
    region.agent.kill9();
    region.agent.start_again();
    say(&format!("ended {} {:?}", region.agent.ended_within(Duration::from_secs(8)).await, region.agent.exit_code()));
    say(&region.agent.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe_authority() {
    let ro = std::env::var_os("RO").is_some();
    let keep = Scratch::new("image");
    let image = keep.path().join("disk.img");
    let disk = if ro { Mount::ext4(&image) } else { Mount::tmpfs("4m") };
    let data = disk.path().join("data").display().to_string();
    let cluster = Cluster::builder().region("eu").authority_env("CADASTRE_DATA", &data).namespace_with("orders", fixed(2_000, 500)).start().await;
    cluster.ids("eu", "orders", 100).await.unwrap();
    if ro { disk.turn_read_only(); } else { say(&format!("filled {}", disk.fill())); }
    for n in 0..500 { match cluster.ids("eu","orders",10).await { Ok(_) => {}, Err(p) => { say(&format!("{n} {p} {:?}", p.retry_after)); break } } }
    for _ in 0..3 { tokio::time::sleep(Duration::from_secs(1)).await;
      say(&format!("{}", cluster.status("eu").await));
      say(&format!("{:?}", cluster.ids("eu","orders",10).await.map_err(|p| p.to_string())));
      if !cluster.authority.is_alive() { say("ended"); break }
      say(&format!("{:?}", cluster.operate("POST","/v1/namespaces",Some(&json!({"name":"more"}))).await));
      say(&format!("{:?}", cluster.operate("GET","/v1/headroom",None).await.is_ok()));
      let (s,_,v)=http::get_json(&format!("{}/readyz", cluster.url), None).await; say(&format!("{s} {v}"));
    }
    cluster.authority.kill9();
    cluster.authority.start_again();
    say(&format!("ended {} {:?}", cluster.authority.ended_within(Duration::from_secs(8)).await, cluster.authority.exit_code()));
    say(&cluster.authority.log());
}
