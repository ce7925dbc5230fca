//! `POST /v1/ids`.

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use cadastre_core::range::Range;
use cadastre_core::roster::{MAX_LIST, MAX_RANGES};
use cadastre_protocol::error::Code;
use cadastre_protocol::ids::{IdsAnswer, IdsRequest, Shape};
use cadastre_runtime::clock::Stopwatch;
use cadastre_runtime::http::{HttpProblem, Json, Short, bearer, json_body};

use super::{Answer, App, refuse, wait};
use crate::auth::Service;
use crate::error::{AgentError, problem};
use crate::front::value_ranges;

/// The longest text of one id in a list, with quotes and comma.
const ID_TEXT: usize = 23;

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
        self.asked().note(watch.seconds(), result.as_ref().err().map(|p| p.0.code));
        result.unwrap_or_else(IntoResponse::into_response)
    }
}

async fn answer(app: &App, request: Request) -> Answer<Response> {
    let view = app.agent().ctx.view();
    let (head, body) = request.into_parts();
    view.callers.service(bearer(&head.headers)).map_err(refuse)?;
    let asked: IdsRequest = json_body(body).await.map_err(with_bounds)?;
    // A body may take long: what holds is what holds now.
    let view = app.agent().ctx.view();
    let service = view.callers.service(bearer(&head.headers)).map_err(refuse)?;
    service.admits(&asked.namespace).map_err(refuse)?;
    let wait = wait(&head.headers).map_err(refuse)?;
    let count = count(&asked, service).map_err(refuse)?;
    let _place = service.enter().map_err(refuse)?;
    service.spend(count, asked.tenant.as_ref()).map_err(refuse)?;
    let front = app.front();
    if asked.count.is_none() && asked.shape.is_none() {
        let id = front.one(&view, service, &asked.namespace, wait).await.map_err(refuse)?;
        return Ok(json(format!("{{\"id\":\"{id}\"}}")));
    }
    let taken = front.many(&view, service, &asked.namespace, count, wait).await.map_err(refuse)?;
    if asked.shape == Some(Shape::Ranges) {
        let ranges = value_ranges(&taken).map_err(refuse)?;
        return Ok(Json(IdsAnswer { ranges: Some(ranges), ..IdsAnswer::default() }).into_response());
    }
    Ok(json(list(&taken.ranges, count, |ordinal| taken.value(ordinal)).map_err(refuse)?))
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

fn list(ranges: &[Range], count: u64, value: impl Fn(u64) -> Result<i64, AgentError>) -> Result<String, AgentError> {
    use std::fmt::Write;
    let mut body = String::with_capacity(usize::try_from(count).unwrap_or(0).saturating_mul(ID_TEXT) + 16);
    body.push_str("{\"ids\":[");
    for ordinal in ranges.iter().flat_map(|r| r.lo()..r.hi()) {
        let comma = if body.ends_with('[') { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = write!(body, "{comma}\"{}\"", value(ordinal)?);
    }
    body.push_str("]}");
    Ok(body)
}

fn json(body: String) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}
