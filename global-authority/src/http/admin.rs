//! Namespaces, services, operators.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use cadastre_core::roster::Kind;
use cadastre_protocol::admin::{
    NamespacePatch, NamespaceView, NewNamespace, NewOperator, NewService, NewToken, Nothing, OperatorView,
    ServicePatch, ServiceView,
};
use cadastre_runtime::http::{Json, Path};
use serde_json::{Value, json};

use super::{Answer, App, name, refuse};

type Created<T> = (StatusCode, axum::Json<T>);

fn created<T>(body: T) -> Created<T> {
    (StatusCode::CREATED, axum::Json(body))
}

#[utoipa::path(post, path = "/v1/namespaces", request_body = NewNamespace, responses((status = 201, body = NamespaceView)))]
/// Define a namespace, or bring a deleted one back at its watermark.
pub async fn new_namespace(
    State(app): State<App>,
    headers: HeaderMap,
    Json(new): Json<NewNamespace>,
) -> Answer<Created<NamespaceView>> {
    let who = app.operator(&headers).await?;
    Ok(created(app.authority().new_namespace(&who, new).await.map_err(refuse)?))
}

#[utoipa::path(get, path = "/v1/namespaces", responses((status = 200, description = "`namespaces`: a list of namespaces")))]
/// All namespaces.
pub async fn namespaces(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<Value>> {
    app.viewer(&headers).await?;
    Ok(axum::Json(json!({ "namespaces": app.authority().namespaces().await.map_err(refuse)? })))
}

#[utoipa::path(get, path = "/v1/namespaces/{name}", params(("name" = String, Path)), responses((status = 200, body = NamespaceView)))]
/// One namespace.
pub async fn namespace(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
) -> Answer<axum::Json<NamespaceView>> {
    app.viewer(&headers).await?;
    Ok(axum::Json(app.authority().namespace(&name(&which)?).await.map_err(refuse)?))
}

#[utoipa::path(patch, path = "/v1/namespaces/{name}", params(("name" = String, Path)), request_body = NamespacePatch, responses((status = 200, body = NamespaceView)))]
/// Freeze, change the policy, or give a new definition version from the next unreserved ordinal on.
pub async fn patch_namespace(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
    Json(patch): Json<NamespacePatch>,
) -> Answer<axum::Json<NamespaceView>> {
    let who = app.operator(&headers).await?;
    Ok(axum::Json(app.authority().patch_namespace(&who, &name(&which)?, patch).await.map_err(refuse)?))
}

#[utoipa::path(delete, path = "/v1/namespaces/{name}", params(("name" = String, Path)), responses((status = 200)))]
/// Hide and freeze a namespace; creating it again goes on at its watermark.
pub async fn delete_namespace(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
) -> Answer<axum::Json<Value>> {
    let who = app.operator(&headers).await?;
    app.authority().delete_namespace(&who, &name(&which)?).await.map_err(refuse)?;
    Ok(axum::Json(json!({ "name": which, "deleted": true })))
}

#[utoipa::path(post, path = "/v1/services", request_body = NewService, responses((status = 201, body = ServiceView)))]
/// Define a service.
pub async fn new_service(
    State(app): State<App>,
    headers: HeaderMap,
    Json(new): Json<NewService>,
) -> Answer<Created<ServiceView>> {
    let who = app.operator(&headers).await?;
    Ok(created(app.authority().new_service(&who, new).await.map_err(refuse)?))
}

#[utoipa::path(get, path = "/v1/services", responses((status = 200, description = "`services`: a list of services")))]
/// All services.
pub async fn services(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<Value>> {
    app.viewer(&headers).await?;
    Ok(axum::Json(json!({ "services": app.authority().services().await.map_err(refuse)? })))
}

#[utoipa::path(patch, path = "/v1/services/{name}", params(("name" = String, Path)), request_body = ServicePatch, responses((status = 200, body = ServiceView)))]
/// Change whom a service is admitted to, and its limits.
pub async fn patch_service(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
    Json(patch): Json<ServicePatch>,
) -> Answer<axum::Json<ServiceView>> {
    let who = app.operator(&headers).await?;
    Ok(axum::Json(app.authority().patch_service(&who, &name(&which)?, patch).await.map_err(refuse)?))
}

#[utoipa::path(post, path = "/v1/services/{name}/tokens", params(("name" = String, Path)), request_body = Nothing, responses((status = 201, body = NewToken)))]
/// A fresh token of a service. Shown once.
pub async fn new_service_token(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
    Json(Nothing {}): Json<Nothing>,
) -> Answer<Created<NewToken>> {
    let who = app.operator(&headers).await?;
    Ok(created(app.authority().new_service_token(&who, &name(&which)?).await.map_err(refuse)?))
}

#[utoipa::path(delete, path = "/v1/services/{name}/tokens/{id}", params(("name" = String, Path), ("id" = String, Path)), responses((status = 200)))]
/// Revoke a token. Agents that are cut off learn of it when they are back.
pub async fn revoke_service_token(
    State(app): State<App>,
    headers: HeaderMap,
    Path((which, id)): Path<(String, String)>,
) -> Answer<axum::Json<Value>> {
    revoke(&app, &headers, Kind::Service, &which, &id).await
}

#[utoipa::path(delete, path = "/v1/operators/{name}/tokens/{id}", params(("name" = String, Path), ("id" = String, Path)), responses((status = 200)))]
/// Revoke a token of an operator or viewer; the last one that operates stays.
pub async fn revoke_operator_token(
    State(app): State<App>,
    headers: HeaderMap,
    Path((which, id)): Path<(String, String)>,
) -> Answer<axum::Json<Value>> {
    revoke(&app, &headers, Kind::Operator, &which, &id).await
}

#[utoipa::path(delete, path = "/v1/regions/{name}/tokens/{id}", params(("name" = String, Path), ("id" = String, Path)), responses((status = 200)))]
/// Revoke a token of a region. Its agents go on from what they hold; with no other token they are answered nothing more.
pub async fn revoke_region_token(
    State(app): State<App>,
    headers: HeaderMap,
    Path((which, id)): Path<(String, String)>,
) -> Answer<axum::Json<Value>> {
    revoke(&app, &headers, Kind::Region, &which, &id).await
}

async fn revoke(app: &App, headers: &HeaderMap, kind: Kind, which: &str, id: &str) -> Answer<axum::Json<Value>> {
    let who = app.operator(headers).await?;
    app.authority().revoke_token(&who, kind, &name(which)?, id).await.map_err(refuse)?;
    Ok(axum::Json(json!({ "token_id": id, "revoked": true })))
}

#[utoipa::path(post, path = "/v1/operators", request_body = NewOperator, responses((status = 201, body = OperatorView)))]
/// Define an operator or a viewer.
pub async fn new_operator(
    State(app): State<App>,
    headers: HeaderMap,
    Json(new): Json<NewOperator>,
) -> Answer<Created<OperatorView>> {
    let who = app.operator(&headers).await?;
    Ok(created(app.authority().new_operator(&who, new).await.map_err(refuse)?))
}

#[utoipa::path(get, path = "/v1/operators", responses((status = 200, description = "`operators`: a list of operators")))]
/// All operators and viewers.
pub async fn operators(State(app): State<App>, headers: HeaderMap) -> Answer<axum::Json<Value>> {
    app.operator(&headers).await?;
    Ok(axum::Json(json!({ "operators": app.authority().operators().await.map_err(refuse)? })))
}

#[utoipa::path(post, path = "/v1/operators/{name}/tokens", params(("name" = String, Path)), request_body = Nothing, responses((status = 201, body = NewToken)))]
/// A fresh token of an operator or viewer. Shown once.
pub async fn new_operator_token(
    State(app): State<App>,
    headers: HeaderMap,
    Path(which): Path<String>,
    Json(Nothing {}): Json<Nothing>,
) -> Answer<Created<NewToken>> {
    let who = app.operator(&headers).await?;
    Ok(created(app.authority().new_operator_token(&who, &name(&which)?).await.map_err(refuse)?))
}
