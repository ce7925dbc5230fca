//! `/openapi.json`, made from the handlers and wire types themselves.

use cadastre_protocol::admin;
use cadastre_protocol::ids::{Origin, OriginRange};
use cadastre_protocol::operate as bodies;
use utoipa::OpenApi;

use super::{admin as handlers, observe, operate, regions};

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
        operate::new_switch,
        operate::switches,
        operate::switch,
        operate::resume,
        operate::back_out,
        operate::new_drill,
        operate::drills,
        operate::drill,
        operate::abort,
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
        admin::QuarantineView,
        admin::Lift,
        bodies::NewSwitch,
        bodies::SwitchView,
        bodies::Switches,
        bodies::NewDrill,
        bodies::DrillView,
        bodies::Drills,
        bodies::DrillReport,
        bodies::Line,
        Origin,
        OriginRange,
    ))
)]
struct Document;

/// The document.
pub async fn document() -> axum::Json<utoipa::openapi::OpenApi> {
    axum::Json(Document::openapi())
}
