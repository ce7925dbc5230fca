//! What a newcomer reads when the dev cluster runs: in under a screen, and every line can be used.

use std::path::Path;

use super::file::DevFile;
use super::{DEFAULT_DATA, NAMESPACES, REGIONS, SERVICE};

/// How to run this command again, as it was run this time.
pub fn command() -> String {
    let by_cargo = std::env::var_os("CARGO_MANIFEST_DIR").is_some();
    match (by_cargo, cfg!(debug_assertions)) {
        (true, true) => "cargo run --".to_owned(),
        (true, false) => "cargo run --release --".to_owned(),
        // Found on the PATH, or typed with its folder.
        (false, _) => {
            std::env::args().next().filter(|typed| typed.contains('/')).unwrap_or_else(|| "cadastre".to_owned())
        }
    }
}

/// The banner.
pub fn text(file: &DevFile, data: &Path, took_seconds: f64, fresh: bool) -> String {
    let command = command();
    let folder = shown(data);
    let flag = if data == Path::new(DEFAULT_DATA) { String::new() } else { format!(" --data {folder}") };
    let what = if fresh { "a new dev cluster" } else { "the dev cluster" };
    let mut lines = vec![
        format!("Cadastre: {what} is up after {took_seconds:.1} s, in this one process.\n"),
        format!("  authority  {:<24} grants ranges to regions; dashboard at /", file.authority.url),
    ];
    for (index, region) in file.regions.iter().enumerate() {
        let role = if index == 0 { "issues IDs, also while the authority is away" } else { "the same" };
        lines.push(format!("  {:<9}  {:<24} {role}", region.name.as_str(), region.url));
    }
    lines.push(format!("  namespaces {}; service {SERVICE} may ask for both", NAMESPACES.join(", ")));
    lines.push(format!("  data       {folder} (tokens in dev.json, log in dev.log)\n"));
    lines.push("An ID:".to_owned());
    if let Some(region) = file.regions.first() {
        lines.push(format!(
            "  curl -s {}/v1/ids -d '{{\"namespace\":\"orders\"}}' \\\n    -H 'Authorization: Bearer {}'",
            region.url, file.service_token
        ));
        if let Some((host, port)) = region.resp.as_ref().and_then(|address| address.rsplit_once(':')) {
            lines.push(format!("  redis-cli -h {host} -p {port} -a {} INCR orders", file.service_token));
        }
    }
    lines.push(
        "\nA thousand, what is left, and the page (it asks for a token once; this is the operator's):".to_owned(),
    );
    lines.push(format!("  {command} ids orders --count 1000 --as ranges{flag}"));
    lines.push(format!("  {command} headroom{flag}"));
    lines.push(format!("  {}/   {}\n", file.authority.url, file.authority.operator_token));
    let [.., last] = REGIONS;
    lines.push(format!(
        "Type `cut {last}` and Enter here to cut {last} off from the authority, `heal {last}` to end that."
    ));
    lines.push(format!("A demonstration of 20 s, in another terminal: {command} dev --demo"));
    lines.push("Stop: Ctrl-C. Everything goes on from here at the next start; `dev --reset` begins anew.".to_owned());
    lines.join("\n")
}

/// A path as a person typed it, where that is short.
fn shown(data: &Path) -> String {
    data.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::file::{DevAuthority, DevRegion};
    use cadastre_core::ids::Name;

    #[test]
    fn it_fits_a_screen_and_its_lines_can_be_used() {
        let region = |name: &str, port: u16| DevRegion {
            name: Name::new(name).unwrap(),
            url: format!("http://127.0.0.1:{port}"),
            resp: Some(format!("127.0.0.1:{}", port + 1)),
            pg: None,
            region_token: "cad_reg_r".into(),
        };
        let file = DevFile {
            authority: DevAuthority { url: "http://127.0.0.1:7400".into(), operator_token: "cad_op_o".into() },
            service_token: "cad_svc_s".into(),
            regions: vec![region("eu", 7410), region("us", 7420)],
        };
        let text = text(&file, Path::new("other"), 0.8, true);
        assert!(text.lines().count() < 24, "{text}");
        assert!(text.contains("  redis-cli -h 127.0.0.1 -p 7411 -a cad_svc_s INCR orders\n"), "{text}");
        for part in ["Bearer cad_svc_s", "7410/v1/ids", "http://127.0.0.1:7400/ ", "headroom --data other", "cut us"] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
        assert!(!text.contains("cad_reg_r"));
    }
}
