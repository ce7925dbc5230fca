//! `/v1/workers`: worker ids with time windows, for processes that stamp by themselves.

use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use cadastre_core::ids::Name;
use cadastre_core::roster::Limits;
use cadastre_protocol::error::Code;
use cadastre_protocol::workers::{WorkerAnswer, WorkerEnd, WorkerRenewal, WorkerRequest};
use cadastre_runtime::http::{HttpProblem, Json, Path, bearer};

use serde::de::DeserializeOwned;

use super::{Answer, App, refuse};
use crate::regional::windows::{Deed, Embedded, Post, Posted};

#[utoipa::path(post, path = "/v1/workers", request_body = WorkerRequest, responses((status = 201, body = WorkerAnswer)))]
/// A worker id and the time that may be stamped with it. A lost answer: send the same request again. Stamp units of
/// `[lo, hi)` only, each place once; after a fork, take another one.
pub async fn take(State(app): State<App>, request: Request) -> Answer<(StatusCode, axum::Json<WorkerAnswer>)> {
    let (caller, asked) = read::<WorkerRequest>(&app, request, |asked| &asked.namespace).await?;
    app.front().reads(&asked.namespace, &caller.service, &asked.instance, asked.program.as_ref()).map_err(refuse)?;
    let deed = Deed::Take { allocation_id: asked.allocation_id, above: asked.above.unwrap_or(0) };
    let post = Post {
        namespace: asked.namespace,
        service: Some(caller.service),
        instance: asked.instance,
        incarnation: asked.incarnation,
        clock_ms: asked.clock,
        thick: Some(embedded(&app, asked.chain, caller.limits)),
    };
    let posted = app.agent().pool.post(&post, deed).await.map_err(refuse)?;
    Ok((StatusCode::CREATED, axum::Json(answer(&app, posted))))
}

#[utoipa::path(post, path = "/v1/workers/{worker}/renew", params(("worker" = u32, Path)), request_body = WorkerRenewal,
    responses((status = 200, body = WorkerAnswer)))]
/// More time for a worker, by the process that holds it. `window_ended` says that it is somebody else's: stop stamping.
pub async fn renew(
    State(app): State<App>,
    Path(worker): Path<u32>,
    request: Request,
) -> Answer<axum::Json<WorkerAnswer>> {
    let (caller, asked) = read::<WorkerRenewal>(&app, request, |asked| &asked.namespace).await?;
    let post = Post {
        namespace: asked.namespace,
        service: Some(caller.service),
        instance: named(asked.instance)?,
        incarnation: asked.incarnation,
        clock_ms: asked.clock,
        thick: Some(embedded(&app, asked.chain, caller.limits)),
    };
    let posted = app.agent().pool.post(&post, Deed::Renew { worker }).await.map_err(refuse)?;
    Ok(axum::Json(answer(&app, posted)))
}

#[utoipa::path(delete, path = "/v1/workers/{worker}", params(("worker" = u32, Path)), request_body = WorkerEnd,
    responses((status = 200, body = WorkerAnswer)))]
/// The process has stopped stamping for good. With `stamped_to` the worker is free from then on, once; without it, when
/// its window ends.
pub async fn end(
    State(app): State<App>,
    Path(worker): Path<u32>,
    request: Request,
) -> Answer<axum::Json<WorkerAnswer>> {
    let (caller, asked) = read::<WorkerEnd>(&app, request, |asked| &asked.namespace).await?;
    let deed = Deed::End { worker, stamped_to: asked.stamped_to };
    let post = Post {
        namespace: asked.namespace,
        service: Some(caller.service),
        instance: named(asked.instance)?,
        incarnation: asked.incarnation,
        clock_ms: None,
        thick: Some(embedded(&app, asked.chain, caller.limits)),
    };
    let posted = app.agent().pool.post(&post, deed).await.map_err(refuse)?;
    Ok(axum::Json(answer(&app, posted)))
}

/// Whose request it is.
struct Caller {
    service: Name,
    limits: Limits,
}

/// The body, once its caller is known to be a service that is admitted to its namespace, within its limits.
async fn read<T: DeserializeOwned>(
    app: &App,
    request: Request,
    namespace: impl Fn(&T) -> &Name,
) -> Answer<(Caller, T)> {
    let ctx = &app.agent().ctx;
    let token = bearer(request.headers()).map(ToOwned::to_owned);
    ctx.view().callers.service(token.as_deref()).map_err(refuse)?;
    let Json(asked) = Json::<T>::from_request(request, &()).await?;
    // A body may take long: what holds is what holds now.
    let view = ctx.view();
    let service = view.callers.service(token.as_deref()).map_err(refuse)?;
    app.front().admitted(&view, service, namespace(&asked)).map_err(refuse)?;
    let _place = service.enter().map_err(refuse)?;
    service.spend(1, None).map_err(refuse)?;
    Ok((Caller { service: service.name.clone(), limits: service.limits() }, asked))
}

fn embedded(app: &App, chain: Option<String>, limits: Limits) -> Embedded {
    Embedded { chain, next_chain: app.agent().pool.fresh_chain(), limits }
}

/// A renewal need not say the name that people know the process by.
fn named(instance: Option<Name>) -> Answer<Name> {
    match instance {
        Some(instance) => Ok(instance),
        None => Name::new("unnamed").map_err(|error| HttpProblem::new(Code::Internal, error.to_string())),
    }
}

fn answer(app: &App, posted: Posted) -> WorkerAnswer {
    let ctx = &app.agent().ctx;
    let Posted { window, slot, layout, length_ms, chain, replayed } = posted;
    WorkerAnswer {
        window_id: window.window_id,
        worker: window.worker,
        slot,
        layout,
        lo: window.range.lo(),
        hi: window.range.hi(),
        from: layout.begins_ms(window.range.lo()),
        until: layout.begins_ms(window.range.hi()),
        renew_after_seconds: (length_ms / 3_000).max(1),
        region: ctx.me.region.clone(),
        epoch: window.epoch,
        clock: ctx.now().wall_ms,
        chain,
        replayed,
    }
}
