//! systemd: the units are understood, give nothing away that they need not, and start again what may be started again.

use std::process::Command;

use tests::scratch::Scratch;

use crate::{read, root};

const UNITS: [&str; 2] = ["global-authority.service", "region-agent@.service"];

fn settings(unit: &str, key: &str) -> Vec<String> {
    let text = read(&format!("ops/systemd/{unit}"));
    let lines = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    lines.map(str::to_owned).collect()
}

#[test]
fn they_are_hardened_and_say_what_is_started_again() {
    for unit in UNITS {
        for (key, value) in [
            ("User", "cadastre"),
            ("ProtectSystem", "strict"),
            ("ProtectHome", "yes"),
            ("PrivateTmp", "yes"),
            ("PrivateDevices", "yes"),
            ("NoNewPrivileges", "yes"),
            ("CapabilityBoundingSet", ""),
            ("MemoryDenyWriteExecute", "yes"),
            ("SystemCallArchitectures", "native"),
            ("Restart", "always"),
            ("RestartSec", "5"),
            ("StartLimitIntervalSec", "0"),
            ("StateDirectoryMode", "0700"),
            ("UMask", "0077"),
        ] {
            assert_eq!(settings(unit, key), [value], "{unit}: {key}");
        }
        assert_eq!(settings(unit, "EnvironmentFile").len(), 1, "{unit}");
        // The id of the boot is a part of the place that an embedded store knows itself by.
        assert!(settings(unit, "ProcSubset").is_empty(), "{unit}: the boot's id would be hidden");
        for secret in ["TOKEN", "DATABASE_URL", "WITNESS"] {
            assert!(settings(unit, "Environment").iter().all(|it| !it.contains(secret)), "{unit}: {secret}");
        }
    }
    let never = settings("region-agent@.service", "RestartPreventExitStatus").concat();
    let code = region_agent::CopyFound::EXIT_CODE.to_string();
    assert!(never.split(' ').any(|word| word == code) && never.contains("SIGABRT"), "{never}");
}

/// The data folder and its witness are the unit's own folders, and the only ones it may write to.
#[test]
fn the_data_folder_is_a_state_directory() {
    for unit in UNITS {
        let environment = settings(unit, "Environment");
        let data = environment.iter().find_map(|it| it.strip_prefix("CADASTRE_DATA=/var/lib/")).unwrap();
        let folders = settings(unit, "StateDirectory").concat();
        let folders: Vec<&str> = folders.split(' ').collect();
        assert_eq!(folders, [data.to_owned(), format!("{data}-witness")], "{unit}");
    }
}

#[test]
fn systemd_understands_them() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: there is no systemd-analyze here");
        return;
    }
    let folder = Scratch::new("units");
    let bin = tests::process::built("cadastre");
    let bin = bin.parent().unwrap().display().to_string();
    for unit in UNITS {
        let text = read(&format!("ops/systemd/{unit}")).replace("/usr/local/bin", &bin);
        std::fs::write(folder.path().join(unit), text).unwrap();
    }
    let paths = ["global-authority.service", "region-agent@eu.service"].map(|unit| folder.path().join(unit));
    std::fs::copy(folder.path().join(UNITS[1]), &paths[1]).unwrap();
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&paths).output().unwrap();
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("authority") || line.contains("agent")).collect();
    assert!(verified.status.success() && ours.is_empty(), "{said}");
    // Of 10; what is unset counts as exposed.
    let rated = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold=20", "--no-pager"])
        .args(&paths)
        .output()
        .unwrap();
    assert!(rated.status.success(), "{}", String::from_utf8_lossy(&rated.stdout));
}

#[test]
fn the_user_is_made_by_the_file_beside_them() {
    assert!(read("ops/systemd/cadastre.conf").lines().any(|line| line.starts_with("u cadastre ")));
    assert!(root().join("ops/systemd/authority.env.example").exists());
}
