//! The `global-authority` binary: settings in, a running authority, an exit code out.

use cadastre_runtime::config;
use cadastre_runtime::http::Shutdown;
use cadastre_runtime::telemetry;
use clap::Parser;
use global_authority::config::AuthorityConfig;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    match run(AuthorityConfig::parse()).await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("global-authority: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn run(given: AuthorityConfig) -> Result<(), global_authority::StartError> {
    config::environment::check(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))?;
    let config = given.complete()?;
    if config.config.print_config {
        print!("{}", config::print(&config)?);
        return Ok(());
    }
    telemetry::init_log(config.telemetry.log_format.unwrap_or_default(), config.telemetry.log.as_deref())?;
    let running = global_authority::start(config, Shutdown::on_signals()?).await?;
    running.wait().await
}
