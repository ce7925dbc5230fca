//! The image and the compose file. No image is built here: what the build takes from the repository is looked at instead.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{read, root, yaml};

/// The instructions of the Dockerfile, continuation lines joined.
fn instructions() -> Vec<(String, String)> {
    let text = read("ops/docker/Dockerfile").replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let pair = |line: &str| line.split_once(' ').map(|(word, rest)| (word.to_owned(), rest.trim().to_owned()));
    lines.map(|line| pair(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

fn of<'a>(all: &'a [(String, String)], word: &'a str) -> impl Iterator<Item = &'a str> {
    all.iter().filter(move |(it, _)| it == word).map(|(_, rest)| rest.as_str())
}

#[test]
fn the_image_is_built_from_what_is_there_as_the_readme_says() {
    let all = instructions();
    let mut copied = Vec::new();
    for copy in of(&all, "COPY").filter(|copy| !copy.starts_with("--from")) {
        let words: Vec<&str> = copy.split_whitespace().collect();
        for source in &words[..words.len() - 1] {
            assert!(root().join(source).exists(), "COPY {source}");
            copied.push((*source).to_owned());
        }
    }
    // Every member of the workspace is there, or cargo does not even begin; and nothing of it is kept out.
    let manifest = read("Cargo.toml");
    let members = manifest.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let ignored = read("ops/docker/Dockerfile.dockerignore");
    for member in members.split(',').map(|it| it.trim().trim_matches('"')).filter(|it| !it.is_empty()) {
        let top = member.split('/').next().unwrap();
        assert!(copied.iter().any(|it| it == top), "{member} is not copied");
        assert!(ignored.lines().any(|line| line == format!("!{top}")), "{member} is kept out by .dockerignore");
    }
    for source in &copied {
        assert!(ignored.lines().any(|line| line == format!("!{source}")), "{source} is kept out by .dockerignore");
    }
    let readme = read("README.md");
    let command = readme.lines().find(|line| line.starts_with("cargo build --release")).unwrap();
    assert!(of(&all, "RUN").any(|run| run == format!("{command} --locked")), "{command}");
    // The toolchain is at least the one that the workspace asks for.
    let wanted = manifest.split_once("rust-version = \"").unwrap().1.split_once('"').unwrap().0;
    assert!(of(&all, "FROM").any(|from| from.starts_with(&format!("rust:{wanted}-"))), "{wanted}");
}

#[test]
fn the_image_runs_as_nobody_and_knows_whether_it_is_well() {
    let all = instructions();
    assert_eq!(of(&all, "FROM").count(), 2, "built in one image, run in another");
    assert!(of(&all, "FROM").last().unwrap().contains("distroless"));
    assert_eq!(of(&all, "USER").collect::<Vec<_>>(), ["65532:65532"]);
    assert!(of(&all, "HEALTHCHECK").any(|check| check.contains("probe") && check.contains("/healthz")));
    assert!(
        of(&all, "VOLUME").any(|it| it.contains("/var/lib/cadastre\"") && it.contains("/var/lib/cadastre-witness"))
    );
    // Folders that a volume is laid over have to be the user's in the image already.
    assert!(of(&all, "COPY").any(|it| it.contains("--chown=65532:65532") && it.ends_with("/var/lib/")));
}

/// The compose file as it is after its anchors were laid out.
pub fn compose() -> Value {
    let mut documents = yaml("ops/docker/compose.yml");
    assert_eq!(documents.len(), 1);
    documents.remove(0)
}

/// What a service is given in its environment.
pub fn environment(service: &str) -> BTreeMap<String, String> {
    let all = compose();
    let map = all["services"][service]["environment"].as_object().unwrap_or_else(|| panic!("{service}")).clone();
    map.into_iter().map(|(name, value)| (name, value.as_str().unwrap().to_owned())).collect()
}

#[test]
fn compose_holds_an_authority_two_regions_and_their_volumes() {
    let all = compose();
    let daemons = ["authority", "eu", "us"];
    for name in daemons {
        let service = &all["services"][name];
        assert_eq!(service["user"], "65532:65532", "{name}");
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(service["cap_drop"][0], "ALL", "{name}");
        assert_eq!(service["security_opt"][0], "no-new-privileges:true", "{name}");
        assert_eq!(service["restart"], "unless-stopped", "{name}");
        let check = &service["healthcheck"]["test"];
        assert_eq!((check[0].as_str(), check[2].as_str()), (Some("CMD"), Some("probe")), "{name}");
        // Data and witness lie on two volumes, at the places that the settings name.
        let settings = environment(name);
        let at = |folder: &str| {
            let volumes = service["volumes"].as_array().unwrap();
            let mounted = volumes.iter().find_map(|it| {
                let (volume, place) = it.as_str()?.split_once(':')?;
                (place == folder).then(|| volume.to_owned())
            });
            mounted.unwrap_or_else(|| panic!("{name}: nothing lies at {folder}"))
        };
        let witness = settings["CADASTRE_WITNESS"].strip_prefix("file:").unwrap();
        let (data, witness) = (at(&settings["CADASTRE_DATA"]), at(witness.rsplit_once('/').unwrap().0));
        assert_ne!(data, witness, "{name}");
        assert!(all["volumes"].get(&data).is_some() && all["volumes"].get(&witness).is_some(), "{name}");
        // Published to this host alone: nothing of it is encrypted.
        assert!(service["ports"].as_array().unwrap().iter().all(|it| it.as_str().unwrap().starts_with("127.0.0.1:")));
    }
    assert!(all["services"]["postgres"]["environment"].get("POSTGRES_PASSWORD").is_none(), "it is a file's");
    for region in ["eu", "us"] {
        assert_eq!(environment(region)["CADASTRE_REGION"], region);
        assert!(all["services"][region].get("depends_on").is_none(), "an agent starts without its authority");
    }
}
