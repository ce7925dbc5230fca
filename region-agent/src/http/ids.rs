//! `POST /v1/ids`.
//!
//! Every shape of answer is written straight into its one buffer, so that a list costs its digits and ranges cost
//! nothing that grows with the count. Absent on purpose: a serialiser on this way; the contract's type for the answer
//! (`IdsAnswer`) is what the tests here read it with.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use cadastre_core::namespace::NamespaceKind;
use cadastre_core::roster::{MAX_LIST, MAX_RANGES};
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::{IdsAnswer, IdsRequest, Shape};
use cadastre_runtime::clock::Stopwatch;
use cadastre_runtime::http::{HttpProblem, Short, bearer, json_body};
use cadastre_runtime::token::sha256_hex;

use super::{Answer, App, refuse, wait};
use crate::auth::Service;
use crate::error::{AgentError, problem};
use crate::front::Taken;
use crate::metrics as meter;

/// The longest text of one id in a list, with quotes and comma.
const ID_TEXT: usize = 23;
/// The text of one UUID in a list, with quotes and comma.
const UUID_TEXT: usize = 39;
/// The longest text of one range, likewise: three numbers, and what is around them.
const RANGE_TEXT: usize = 110;

#[utoipa::path(post, path = "/v1/ids", request_body = IdsRequest, responses((status = 200, body = IdsAnswer)),
    params(("Cadastre-Timeout-Ms" = Option<u64>, Header, description = "How long to wait for a refill: 250, at most 5000")))]
/// Ids, from memory. There is no idempotency key here, on purpose: keeping every answer would put a write on
/// the path of every id. A lost answer is a gap, and a retry gets other ids. What must happen once is your own
/// row: insert it under your own key, and take ids for it as often as you need (see docs/examples).
pub async fn ids(State(app): State<App>, request: Request) -> Response {
    app.answer(request).await
}

impl Short for App {
    const PATH: &'static str = "/v1/ids";

    async fn answer(&self, request: Request) -> Response {
        let watch = Stopwatch::start();
        let result = answer(self, request).await;
        let code = result.as_ref().err().map(|p| p.0.code);
        self.asked().note(watch.seconds(), code);
        if let Some(code) = code {
            self.agent().ctx.orders.refused(code);
        }
        result.unwrap_or_else(IntoResponse::into_response)
    }
}

async fn answer(app: &App, request: Request) -> Answer<Response> {
    let (head, body) = request.into_parts();
    let token = bearer(&head.headers).map(sha256_hex);
    app.agent().ctx.view().callers.service_by(token.as_deref()).map_err(refuse)?;
    let asked: IdsRequest = json_body(body).await.map_err(with_bounds)?;
    // A body may take long: what holds is what holds now.
    let view = app.agent().ctx.view();
    let service = view.callers.service_by(token.as_deref()).map_err(refuse)?;
    service.admits(&asked.namespace).map_err(refuse)?;
    let wait = wait(&head.headers).map_err(refuse)?;
    let count = count(&asked, service).map_err(refuse)?;
    let _place = service.enter().map_err(refuse)?;
    service.spend(count, asked.tenant.as_ref()).map_err(refuse)?;
    let front = app.front();
    if view.roster.namespace(&asked.namespace).is_some_and(|n| n.kind == NamespaceKind::UuidV7) {
        front.admitted(&view, service, &asked.namespace).map_err(refuse)?;
        return uuids(app, &asked, count).map_err(refuse);
    }
    if asked.count.is_none() && asked.shape.is_none() {
        let id = front.one(&view, service, &asked.namespace, wait).await.map_err(refuse)?;
        return Ok(json(single(id)));
    }
    let taken = front.many(&view, service, &asked.namespace, count, wait).await.map_err(refuse)?;
    let body = if asked.shape == Some(Shape::Ranges) { ranges(&taken) } else { list(&taken, count) };
    Ok(json(body.map_err(refuse)?))
}

/// UUIDs, made here and now: nothing is granted, and nothing runs dry.
fn uuids(app: &App, asked: &IdsRequest, count: u64) -> Result<Response, AgentError> {
    if asked.shape == Some(Shape::Ranges) {
        return Err(problem(Code::InvalidRequest, "as: UUIDs do not come in ranges; leave it out for a list"));
    }
    let ctx = &app.agent().ctx;
    ctx.alive()?;
    let mut body = Vec::with_capacity(usize::try_from(count).unwrap_or(0).saturating_mul(UUID_TEXT) + 16);
    body.extend_from_slice(if asked.count.is_none() { b"{\"id\":" } else { b"{\"ids\":[" });
    let mut text = [0_u8; uuid::fmt::Hyphenated::LENGTH];
    app.0.uuids.take(ctx.now().wall_ms, count, |uuid| {
        if body.ends_with(b"\"") {
            body.push(b',');
        }
        body.push(b'"');
        body.extend_from_slice(uuid.hyphenated().encode_lower(&mut text).as_bytes());
        body.push(b'"');
    });
    body.extend_from_slice(if asked.count.is_none() { b"}" } else { b"]}" });
    meter::issued(&ctx.me.region, &asked.namespace, count);
    Ok(json(body))
}

/// How many ids are asked for, if so many may be.
fn count(asked: &IdsRequest, service: &Service) -> Result<u64, AgentError> {
    let ranges = asked.shape == Some(Shape::Ranges);
    let most = if ranges { MAX_RANGES } else { MAX_LIST };
    match asked.count {
        None => Ok(1),
        Some(n) if n == 0 || n > most => Err(problem(Code::InvalidRequest, bounds(n))),
        Some(n) if !ranges && n > service.batch() => {
            let text =
                format!("{n} ids are above the {} that service {} may have in one list", service.batch(), service.name);
            Err(problem(Code::PayloadTooLarge, text))
        }
        Some(n) => Ok(n),
    }
}

fn bounds(n: impl std::fmt::Display) -> String {
    format!("count {n}: send a whole number from 1 to {MAX_LIST}, or to {MAX_RANGES} with \"as\":\"ranges\"")
}

/// A body that could not be read may have a count that is no count: say what one is.
fn with_bounds(HttpProblem(mut problem): HttpProblem) -> HttpProblem {
    if problem.code == Code::InvalidRequest {
        problem.detail = format!(
            "{}; `count`, where there is one, is a whole number from 1 to {MAX_LIST} (to {MAX_RANGES} with \"as\":\"ranges\")",
            problem.detail
        );
    }
    HttpProblem(problem)
}

fn single(id: i64) -> Vec<u8> {
    let mut body = Vec::with_capacity(ID_TEXT + 8);
    body.extend_from_slice(b"{\"id\":\"");
    push(&mut body, id);
    body.extend_from_slice(b"\"}");
    body
}

fn list(taken: &Taken<'_>, count: u64) -> Result<Vec<u8>, AgentError> {
    let mut body = Vec::with_capacity(usize::try_from(count).unwrap_or(0).saturating_mul(ID_TEXT) + 16);
    body.extend_from_slice(b"{\"ids\":");
    let mut before: &[u8] = b"[\"";
    taken.each(|stretch| {
        for value in stretch.values() {
            body.extend_from_slice(before);
            push(&mut body, value);
            before = b"\",\"";
        }
    })?;
    body.extend_from_slice(b"\"]}");
    Ok(body)
}

fn ranges(taken: &Taken<'_>) -> Result<Vec<u8>, AgentError> {
    let mut body = Vec::with_capacity(taken.ranges.len() * RANGE_TEXT + 16);
    body.extend_from_slice(b"{\"ranges\":");
    let mut before: &[u8] = b"[";
    taken.each(|stretch| {
        let parts: [(&[u8], i64); 3] = [
            (b"{\"first\":\"", stretch.first),
            (b"\",\"last\":\"", stretch.last),
            (b"\",\"increment\":\"", stretch.increment),
        ];
        body.extend_from_slice(before);
        for (name, value) in parts {
            body.extend_from_slice(name);
            push(&mut body, value);
        }
        body.extend_from_slice(b"\"}");
        before = b",";
    })?;
    body.extend_from_slice(b"]}");
    Ok(body)
}

fn push(body: &mut Vec<u8>, number: i64) {
    body.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn json(body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
