//! Extractors whose every rejection is a problem.
//!
//! Purpose: bad JSON, an unknown field, a wrong type or a missing body all become
//! `invalid_request` with a detail that says what to send; a body above the limit becomes
//! `payload_too_large`. Invariant: no plain-text rejection of the framework leaves the server.
//! Absent on purpose: a check of `Content-Type` (the body is JSON or it is refused as such).

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use cadastre_protocol::error::Code;
use http_body_util::{BodyExt, LengthLimitError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{BODY_LIMIT, HttpProblem};

/// A body may take so long to arrive.
pub(super) const BODY_WITHIN: Duration = Duration::from_secs(10);

/// A JSON body, in or out.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = HttpProblem;

    async fn from_request(request: Request, state: &S) -> Result<Self, HttpProblem> {
        let body = timeout(BODY_WITHIN, Bytes::from_request(request, state)).await.map_err(|_| late())?;
        let body = body.map_err(|rejection| {
            let why = || format!("the body did not arrive: {}", rejection.body_text());
            unread(rejection.status() == StatusCode::PAYLOAD_TOO_LARGE, why)
        })?;
        parse(&body).map(Self)
    }
}

/// A JSON body without a router around it: the same limit, the same refusals.
///
/// # Errors
/// A problem that says what to send.
pub async fn json_body<T: DeserializeOwned>(body: Body) -> Result<T, HttpProblem> {
    let body = timeout(BODY_WITHIN, whole(body)).await.map_err(|_| late())?;
    let body = body.map_err(|error| {
        let text = error.to_string();
        unread(error.into_inner().is::<LengthLimitError>(), || format!("the body did not arrive: {text}"))
    })?;
    parse(&body)
}

/// A body's bytes. Almost every body comes in one piece, and is then not copied.
async fn whole(mut body: Body) -> Result<Bytes, axum::Error> {
    let first = loop {
        match body.frame().await.transpose()? {
            Some(frame) => match frame.into_data() {
                Ok(data) => break data,
                // Trailers say nothing here.
                Err(_) => continue,
            },
            None => return Ok(Bytes::new()),
        }
    };
    let room = BODY_LIMIT.checked_sub(first.len());
    match room {
        Some(_) if body.is_end_stream() => Ok(first),
        Some(room) => {
            let rest = to_bytes(body, room).await?;
            Ok([first, rest].concat().into())
        }
        // Nothing more of it is wanted: the refusal of any body that is too large.
        None => to_bytes(Body::from(first), BODY_LIMIT).await,
    }
}

fn unread(too_large: bool, why: impl Fn() -> String) -> HttpProblem {
    if too_large {
        HttpProblem::new(Code::PayloadTooLarge, format!("a body may have at most {BODY_LIMIT} bytes"))
    } else {
        HttpProblem::new(Code::InvalidRequest, why())
    }
}

fn late() -> HttpProblem {
    HttpProblem::new(Code::InvalidRequest, format!("the body did not arrive within {} s", BODY_WITHIN.as_secs()))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, HttpProblem> {
    if body.is_empty() {
        return Err(HttpProblem::new(Code::InvalidRequest, "a JSON body is needed; send at least {}"));
    }
    // A list would be read as the fields in order, without their names.
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(HttpProblem::new(Code::InvalidRequest, "the body must be a JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| HttpProblem::new(Code::InvalidRequest, format!("the body: {error}")))
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// The query string.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpProblem> {
        axum::extract::Query::from_request_parts(parts, state)
            .await
            .map(|query| Self(query.0))
            .map_err(|rejection| HttpProblem::new(Code::InvalidRequest, rejection.body_text()))
    }
}

/// The variable parts of the path.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpProblem> {
        axum::extract::Path::from_request_parts(parts, state)
            .await
            .map(|path| Self(path.0))
            .map_err(|rejection| HttpProblem::new(Code::InvalidRequest, rejection.body_text()))
    }
}
