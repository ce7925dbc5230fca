//! The `region-agent` binary: settings in, a running agent, an exit code out.

use cadastre_runtime::config;
use cadastre_runtime::http::Shutdown;
use cadastre_runtime::telemetry;
use clap::Parser;
use region_agent::config::AgentConfig;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    match run(AgentConfig::parse()).await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("region-agent: {error}");
            match error.downcast_ref::<region_agent::CopyFound>() {
                Some(_) => region_agent::CopyFound::EXIT_CODE.into(),
                None => std::process::ExitCode::FAILURE,
            }
        }
    }
}

async fn run(given: AgentConfig) -> Result<(), region_agent::StartError> {
    config::environment::check(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))?;
    let config = given.complete()?;
    if config.config.print_config {
        print!("{}", config::print(&config)?);
        return Ok(());
    }
    telemetry::init_log(config.telemetry.log_format.unwrap_or_default(), config.telemetry.log.as_deref())?;
    let running = region_agent::start(config, Shutdown::on_signals()?).await?;
    running.wait().await
}
