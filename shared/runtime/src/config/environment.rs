//! Names in the environment: a mistyped one must not mean the default in silence.

use super::ConfigError;

/// Every name that a program of this product reads. One file of settings may serve all of them.
pub const NAMES: &[&str] = &[
    "CADASTRE_ADVERTISE_URL",
    "CADASTRE_AGENT_TOKEN",
    "CADASTRE_AUTHORITY_URL",
    "CADASTRE_BOOTSTRAP_TOKEN",
    "CADASTRE_CONFIG",
    "CADASTRE_DATA",
    "CADASTRE_DATABASE_URL",
    "CADASTRE_HEARTBEAT_SECONDS",
    "CADASTRE_IDENTITY_WATCH",
    "CADASTRE_LISTEN",
    "CADASTRE_LOG",
    "CADASTRE_LOG_FORMAT",
    "CADASTRE_MAX_OFFLINE_AUTH_SECONDS",
    "CADASTRE_METRICS_TOKEN",
    "CADASTRE_OTLP_ENDPOINT",
    "CADASTRE_PG_LISTEN",
    "CADASTRE_QUORUM_AWARE",
    "CADASTRE_QUOTA_REDIS",
    "CADASTRE_REBUILD",
    "CADASTRE_REGION",
    "CADASTRE_REGION_TOKEN",
    "CADASTRE_REPLAY_RETENTION_SECONDS",
    "CADASTRE_REQUIRE_SYNC",
    "CADASTRE_RESP_LISTEN",
    "CADASTRE_TLS_CA",
    "CADASTRE_TLS_CERT",
    "CADASTRE_TLS_CLIENT_CA",
    "CADASTRE_TLS_KEY",
    "CADASTRE_TOKEN",
    "CADASTRE_WITNESS",
    "CADASTRE_WITNESS_MODE",
];

/// Refuses names that begin as ours do and are none of ours.
///
/// # Errors
/// [`ConfigError::UnknownName`] for the first one, with the name that is nearest to it.
pub fn check(names: impl Iterator<Item = String>) -> Result<(), ConfigError> {
    let mut unknown: Vec<String> = names.filter(|name| name.starts_with("CADASTRE_") && !is_known(name)).collect();
    unknown.sort();
    match unknown.into_iter().next() {
        None => Ok(()),
        Some(name) => {
            let nearest = NAMES.iter().min_by_key(|known| distance(known, &name)).copied().unwrap_or_default();
            Err(ConfigError::UnknownName { name, nearest })
        }
    }
}

fn is_known(name: &str) -> bool {
    NAMES.contains(&name) || is_of_a_service(name)
}

/// What Kubernetes sets for every service of a namespace: `CADASTRE_AUTHORITY_SERVICE_HOST`, `..._PORT_7400_TCP_ADDR`.
fn is_of_a_service(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || (name.contains("_PORT_") && (name.contains("_TCP") || name.contains("_UDP")))
}

/// Letters that differ, place by place, and in length: enough to find a slip.
fn distance(one: &str, other: &str) -> usize {
    let common_front = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let (one, other) = (one.get(common_front..).unwrap_or_default(), other.get(common_front..).unwrap_or_default());
    let common_back = one.bytes().rev().zip(other.bytes().rev()).take_while(|(a, b)| a == b).count();
    one.len().max(other.len()) - common_back
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(names: &[&str]) -> Result<(), String> {
        check(names.iter().map(|name| (*name).to_owned())).map_err(|error| error.to_string())
    }

    #[test]
    fn a_slip_is_named_with_what_was_meant() {
        checked(&["CADASTRE_WITNESS", "PATH", "CADASTRE_DATA"]).unwrap();
        let told = checked(&["CADASTRE_WITNES"]).unwrap_err();
        assert!(told.starts_with("CADASTRE_WITNES:") && told.contains("CADASTRE_WITNESS"), "{told}");
        assert!(checked(&["CADASTRE_REQUIRE_SINC"]).unwrap_err().contains("CADASTRE_REQUIRE_SYNC"));
    }

    #[test]
    fn what_kubernetes_sets_is_no_setting() {
        checked(&[
            "CADASTRE_AUTHORITY_SERVICE_HOST",
            "CADASTRE_AUTHORITY_SERVICE_PORT_HTTP",
            "CADASTRE_AUTHORITY_PORT",
            "CADASTRE_AUTHORITY_PORT_7400_TCP_ADDR",
        ])
        .unwrap();
    }
}
