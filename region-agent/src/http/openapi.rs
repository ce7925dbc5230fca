//! `/openapi.json`, made from the handlers and wire types themselves.

use cadastre_protocol::admin::{Checked, Nothing, Verdict};
use cadastre_protocol::ids as wire;
use cadastre_protocol::rebuild;
use cadastre_protocol::usage;
use cadastre_protocol::workers as time;
use utoipa::OpenApi;

use super::{drills, duplicates, ids, ledger, observe, origins, record, segments, services, workers};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Cadastre region agent",
        description = "Ids, ordinals, values and sizes are decimal strings. Errors are application/problem+json with a \
                       stable `code`; where a retry helps there is a Retry-After. Bodies to 64 KiB. \
                       `Authorization: Bearer TOKEN`."
    ),
    paths(
        ids::ids,
        segments::segment,
        segments::give_back,
        workers::take,
        workers::renew,
        workers::end,
        origins::origin,
        duplicates::report,
        drills::drill,
        drills::abort,
        ledger::segments,
        ledger::verify,
        record::grants,
        record::testimony,
        services::uses,
        observe::status,
        observe::healthz,
        observe::readyz,
        observe::metrics,
    ),
    components(schemas(
        wire::IdsRequest,
        wire::Shape,
        wire::IdsAnswer,
        wire::ValueRange,
        wire::SegmentRequest,
        wire::SegmentAnswer,
        wire::ReturnRequest,
        time::WorkerRequest,
        time::WorkerRenewal,
        time::WorkerEnd,
        time::WorkerAnswer,
        wire::Origin,
        wire::Decoded,
        wire::OriginRange,
        wire::Status,
        wire::UplinkStatus,
        wire::StoreFinding,
        wire::StoreStatus,
        wire::WitnessStatus,
        wire::NamespaceStatus,
        ledger::SegmentsPage,
        ledger::HoldingView,
        ledger::SegmentView,
        rebuild::RegionRecord,
        rebuild::AdoptedGrant,
        rebuild::AdoptedPage,
        usage::ServicesUse,
        usage::ServiceUse,
        Nothing,
        Verdict,
        Checked,
    ))
)]
struct Document;

/// The document.
pub async fn document() -> axum::Json<utoipa::openapi::OpenApi> {
    axum::Json(Document::openapi())
}
