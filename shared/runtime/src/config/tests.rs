//! Precedence, refusals and masking, through a struct as the daemons declare it.

use clap::Parser;

use super::*;

#[derive(Parser, Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Demo {
    #[command(flatten)]
    #[serde(skip)]
    config: ConfigArgs,
    #[command(flatten)]
    #[serde(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    #[serde(flatten)]
    http: HttpArgs,
    #[command(flatten)]
    #[serde(flatten)]
    telemetry: TelemetryArgs,
    #[arg(long)]
    heartbeat_seconds: Option<u32>,
}

fn demo(flags: &[&str], toml: &str) -> Result<Demo, ConfigError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), toml).unwrap();
    let given = Demo::parse_from([&["demo"], flags].concat());
    let mut defaults = Demo { heartbeat_seconds: Some(2), ..Demo::default() };
    defaults.http.listen = Some("127.0.0.1:7400".parse().unwrap());
    load(&given, Some(file.path()), &defaults)
}

#[test]
fn flags_win_over_the_file_which_wins_over_defaults() {
    let toml = "heartbeat_seconds = 5\nrequire_sync = 1\ndatabase_url = 'postgres://u:pw@h/d'";
    let got = demo(&["--heartbeat-seconds", "9"], toml).unwrap();
    assert_eq!(got.heartbeat_seconds, Some(9));
    assert_eq!(got.store.require_sync, Some(1));
    assert_eq!(got.store.database_url.as_ref().unwrap().reveal(), "postgres://u:pw@h/d");
    assert_eq!(got.http.listen, Some("127.0.0.1:7400".parse().unwrap()));
    assert_eq!(demo(&[], "").unwrap().heartbeat_seconds, Some(2));
    got.store.check().unwrap();
}

#[test]
fn an_unknown_or_mistyped_key_is_refused_by_name() {
    let unknown = demo(&[], "hartbeat_seconds = 5").unwrap_err().to_string();
    assert!(unknown.starts_with("hartbeat_seconds: unknown setting"), "{unknown}");
    assert!(unknown.contains("heartbeat_seconds"), "{unknown}");
    let mistyped = demo(&[], "require_sync = 'two'").unwrap_err().to_string();
    assert!(mistyped.starts_with("require_sync:"), "{mistyped}");
}

#[test]
fn what_cannot_be_or_is_not_supported_is_refused_by_name() {
    let said = |result: Result<(), ConfigError>| result.unwrap_err().to_string();
    let got = demo(&["--require-sync", "1", "--tls-cert", "x", "--otlp-endpoint", "y"], "").unwrap();
    assert!(said(got.store.check()).starts_with("require_sync:"));
    assert!(said(got.http.tls.check()).starts_with("tls_key:"));
    let got_ca = demo(&["--tls-client-ca", "x"], "").unwrap();
    assert!(said(got_ca.http.tls.check()).starts_with("tls_client_ca:"));
    assert!(said(got.telemetry.check()).starts_with("otlp_endpoint:"));
    let got = demo(&["--witness", "none", "--witness-mode", "required"], "").unwrap();
    assert!(said(got.store.check()).starts_with("witness_mode:"));
}

#[test]
fn the_printed_settings_are_toml_without_secrets() {
    let got = demo(&["--metrics-token", "hunter2", "--database-url", "postgres://u:hunter2@h/d"], "").unwrap();
    let text = print(&got).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    assert!(text.contains("postgres://u:***@h/d"), "{text}");
    assert!(text.contains("heartbeat_seconds = 2"), "{text}");
    assert!(!format!("{got:?}").contains("hunter2"));
}
