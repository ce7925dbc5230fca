//! How the agent is.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use cadastre_core::plan::runway_seconds;
use cadastre_core::principal::Principal;
use cadastre_ledger::continuity::How;
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::{NamespaceStatus, Status, StoreStatus, UplinkStatus};
use cadastre_runtime::http::{HttpProblem, bearer};
use serde_json::{Value, json};

use super::{Answer, App, refuse};
use crate::context::UplinkState;

#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = Status)))]
/// What is left, how long it lasts, and how the tiers above are. A service sees the namespaces that it is
/// admitted to.
pub async fn status(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<Status>> {
    let agent = app.agent();
    let view = agent.ctx.view();
    let principal = view.callers.principal(bearer(&headers)).map_err(refuse)?;
    let service = match principal {
        Principal::Service(_) => Some(view.callers.service(bearer(&headers)).map_err(refuse)?),
        Principal::Operator(_) | Principal::Viewer(_) | Principal::Region(_) => None,
    };
    let health = agent.ctx.health();
    let now = agent.ctx.now().mono_ms;
    let standings = agent.issuer.standings();
    let mut pools = agent.pool.all();
    for name in standings.keys() {
        pools.entry(name.clone()).or_default();
    }
    let namespaces = pools
        .into_iter()
        .filter(|(name, _)| service.is_none_or(|s| s.admits(name).is_ok()))
        .map(|(namespace, pool)| {
            let (own, refill) = standings.get(&namespace).copied().unwrap_or((Default::default(), "idle"));
            let rate = own.rate;
            // Where nobody is served nothing runs dry.
            let lasts = |left| runway_seconds(left, rate).filter(|_| view.is_home(&agent.ctx.me.region, &namespace));
            NamespaceStatus {
                rate_per_second: rate,
                left_in_instance: own.left,
                left_in_region: pool.totals.left,
                runway_instance_seconds: lasts(own.left),
                runway_region_seconds: lasts(own.left.saturating_add(pool.totals.left)),
                refill: refill.to_owned(),
                namespace,
            }
        })
        .collect();
    Ok(axum::Json(Status {
        region: agent.ctx.me.region.clone(),
        epoch: view.epoch(),
        state: view.standing.map(|s| s.state),
        incarnation: agent.ctx.me.incarnation,
        uplink: UplinkStatus {
            state: uplink_word(&app, health.uplink).to_owned(),
            last_answer_seconds: health.answered_mono_ms.map(|at| now.saturating_sub(at) / 1_000),
            last_error: health.uplink_error,
        },
        store: StoreStatus {
            state: if health.store_error.is_none() { "ok" } else { "down" }.to_owned(),
            server: agent.ctx.continuity.server(),
            last_error: health.store_error,
            findings: agent.ctx.continuity.db().findings().into_iter().map(Into::into).collect(),
        },
        continuity: continuity_word(agent.ctx.continuity.standing().how).to_owned(),
        witness: agent.ctx.continuity.witness_status(),
        quarantined: health.quarantined,
        clock_offset_ms: health.clock_offset_ms,
        namespaces,
    }))
}

/// An answer that is older than the last heartbeats counts as none: the message after it may still be waiting.
fn uplink_word(app: &App, state: UplinkState) -> &'static str {
    match state {
        UplinkState::Never => "never",
        UplinkState::Refused => "refused",
        UplinkState::Down => "down",
        UplinkState::Up if app.agent().ctx.uplink_alive() => "up",
        UplinkState::Up => "down",
    }
}

fn continuity_word(how: How) -> &'static str {
    match how {
        How::Initialised | How::Witnessed => "witnessed",
        How::Testified | How::Stated => "confirmed",
        How::Suspect => "unproven",
        How::WentBack => "went_back",
    }
}

#[utoipa::path(get, path = "/healthz", responses((status = 200)))]
/// 200 while the process serves, cut off or not.
pub async fn healthz() -> axum::Json<Value> {
    axum::Json(json!({ "status": "ok" }))
}

#[utoipa::path(get, path = "/readyz", responses((status = 200), (status = 503)))]
/// 200 when it can give ids out: it has a roster, and its store is proven or segments are left.
pub async fn readyz(State(app): State<App>) -> Answer<axum::Json<Value>> {
    let agent = app.agent();
    agent.ctx.alive().map_err(refuse)?;
    let view = agent.ctx.view();
    let Some(standing) = view.standing else {
        return Err(HttpProblem::new(Code::UpstreamUnavailable, "this region has not heard from its authority yet"));
    };
    if !standing.state.may_issue() {
        let text = format!("the region is {}", standing.state.as_str());
        return Err(HttpProblem::new(Code::RegionNotReady, text));
    }
    let left = agent.issuer.standings().values().any(|(s, _)| s.left > 0);
    if !left {
        agent.ctx.may_carve().map_err(refuse)?;
    }
    let behind: Vec<String> = agent.stamps.behind_now().iter().map(ToString::to_string).collect();
    if !behind.is_empty() {
        let text = format!("the clock is behind the last id of {}; other namespaces go on", behind.join(", "));
        return Err(HttpProblem::new(Code::ClockRollback, text));
    }
    Ok(axum::Json(json!({ "status": "ready", "epoch": standing.epoch })))
}

#[utoipa::path(get, path = "/metrics", responses((status = 200)))]
/// Prometheus text.
pub async fn metrics(State(app): State<App>, headers: HeaderMap) -> Answer<Response> {
    app.may_scrape(&headers)?;
    app.agent().issuer.report();
    app.agent().stamps.report();
    let text = app.0.metrics.render();
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}
