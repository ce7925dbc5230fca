//! `/openapi.json`, made from the handlers and wire types themselves.

use cadastre_protocol::admin;
use cadastre_protocol::ids::{Origin, OriginRange};
use cadastre_protocol::rebuild as wire;
use utoipa::OpenApi;

use super::{admin as handlers, dashboard, observe, rebuild, regions};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Cadastre global authority",
        description = "Ids, ordinals, values and sizes are decimal strings. Errors are application/problem+json with a \
                       stable `code`. Bodies to 64 KiB."
    ),
    paths(
        handlers::new_namespace,
        handlers::namespaces,
        handlers::namespace,
        handlers::patch_namespace,
        handlers::delete_namespace,
        handlers::new_service,
        handlers::services,
        handlers::patch_service,
        handlers::new_service_token,
        handlers::revoke_service_token,
        handlers::new_operator,
        handlers::operators,
        handlers::new_operator_token,
        regions::message,
        regions::new_region,
        regions::new_token,
        regions::regions,
        regions::drain,
        regions::fence,
        regions::recover,
        regions::retire,
        observe::headroom,
        observe::grants,
        observe::origin,
        observe::verify,
        observe::quarantines,
        observe::lift,
        dashboard::whoami,
        dashboard::overview,
        dashboard::namespaces,
        dashboard::history,
        dashboard::line,
        dashboard::agents,
        dashboard::segments,
        dashboard::audit,
        rebuild::record,
        rebuild::grants,
        observe::healthz,
        observe::readyz,
        observe::metrics,
    ),
    components(schemas(
        admin::NewNamespace,
        admin::NamespacePatch,
        admin::PolicyPatch,
        admin::NamespaceView,
        admin::Named,
        admin::NewRegion,
        admin::RegionView,
        admin::AgentView,
        admin::RegionAction,
        admin::NewService,
        admin::ServicePatch,
        admin::ServiceView,
        admin::NewOperator,
        admin::OperatorRole,
        admin::OperatorView,
        admin::TokenView,
        admin::Nothing,
        admin::NewToken,
        admin::GrantsPage,
        admin::GrantView,
        admin::Headroom,
        admin::NamespaceHeadroom,
        admin::RegionHeadroom,
        admin::Verdict,
        admin::Checked,
        admin::Quarantines,
        cadastre_protocol::ids::WitnessStatus,
        admin::QuarantineView,
        admin::Lift,
        admin::WhoAmI,
        admin::Overview,
        admin::Trouble,
        admin::FirstDry,
        admin::Levels,
        admin::RegionOutlook,
        admin::NamespacesPage,
        admin::NamespaceOutlook,
        admin::Cell,
        admin::History,
        admin::NumberLine,
        admin::Stretch,
        admin::AgentsView,
        admin::AgentWord,
        admin::AuditPage,
        admin::AuditEntry,
        wire::RegionRecord,
        wire::AdoptedGrant,
        wire::GrantsBack,
        wire::GrantsTaken,
        Origin,
        OriginRange,
    ))
)]
struct Document;

/// The document.
pub async fn document() -> axum::Json<utoipa::openapi::OpenApi> {
    axum::Json(Document::openapi())
}
