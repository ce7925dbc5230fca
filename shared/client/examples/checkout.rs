//! A checkout that numbers its orders.
//!
//! `cargo run -p cadastre-client --example checkout` runs against the in-memory double; with a token, against an agent:
//! `CADASTRE_TOKEN=cad_svc_... CADASTRE_AGENT=http://127.0.0.1:7410 cargo run -p cadastre-client --example checkout`.

use std::time::Duration;

use cadastre_client::{Client, Error, Id};

/// What the shop stores: its own key makes a retry harmless, not the number.
#[derive(Debug, serde::Serialize)]
struct Order {
    id: Id,
    request_key: String,
}

fn connect() -> Result<Client, Error> {
    let Ok(token) = std::env::var("CADASTRE_TOKEN") else { return Client::in_memory() };
    let agents = std::env::var("CADASTRE_AGENT").unwrap_or_else(|_| "http://127.0.0.1:7410".to_owned());
    // Several, separated by commas: the first, and those to fail over to.
    let builder = agents.split(',').fold(Client::builder(), |builder, agent| builder.agent(agent));
    builder.token(token).name("checkout").deadline(Duration::from_secs(2)).build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = connect()?;
    let orders = client.namespace("orders")?;
    client.ready().await?;

    let mut counters = tokio::task::JoinSet::new();
    for till in 0..4 {
        let orders = orders.clone();
        counters.spawn(async move {
            let mut made = Vec::new();
            for n in 0..3 {
                let id = orders.next().await?;
                made.push(Order { id, request_key: format!("till-{till}-{n}") });
            }
            Ok::<_, Error>(made)
        });
    }
    while let Some(made) = counters.join_next().await {
        for order in made?? {
            println!("{}", serde_json::to_string(&order)?);
        }
    }

    // An import takes many at a time, without a call per number.
    let import: Vec<Id> = orders.next_n(1_000).await?.collect();
    println!("imported {} orders, {:?} to {:?}", import.len(), import.first(), import.last());
    println!("left behind: {}", client.shutdown().await.unissued);
    Ok(())
}
