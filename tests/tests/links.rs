//! Every link of the documentation leads somewhere: the file is there, and so is the heading. The same for the paths under
//! `docs/` that programs, alert rules and manifests name.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every text file of the repository, not what is built.
fn texts(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let ours = !name.starts_with('.') && name != "target" && name != "node_modules";
        if path.is_dir() && ours {
            texts(&path, found);
        } else if let (true, Ok(text)) = (path.is_file() && ours, std::fs::read_to_string(&path)) {
            found.push((path, text));
        }
    }
}

/// What a heading is called in a link, as GitHub makes it.
fn slug(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The places of a page that a link may name.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut code = false;
    for line in page.lines() {
        code ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if !code && heading.len() < line.len() && heading.starts_with(' ') {
            found.insert(slug(heading));
        }
        found.extend(line.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned));
    }
    found
}

/// What is wrong with `target`, as `page` names it.
fn fault(page: &Path, base: &Path, target: &str) -> Option<String> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { page.to_owned() } else { base.join(file) };
    if !path.exists() {
        return Some(format!("{}: {target}: there is no such file", page.display()));
    }
    let is_page = path.extension().is_some_and(|end| end == "md");
    let known = anchor.is_empty() || !is_page || anchors(&std::fs::read_to_string(&path).unwrap()).contains(anchor);
    (!known).then(|| format!("{}: {target}: there is no such heading", page.display()))
}

/// The targets of `[text](target)` that are of this repository.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '\n']).next());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:") && !target.is_empty())
}

/// The pages that a text names by their path, such as `docs/ids.md#errors`.
fn pages(text: &str) -> impl Iterator<Item = String> {
    text.match_indices("docs/").filter_map(move |(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"/-_.#".contains(c)).unwrap_or(rest.len());
        let named = rest[..end].trim_end_matches(['.', '#']);
        (named.ends_with(".md") || named.contains(".md#")).then(|| named.to_owned())
    })
}

#[test]
fn every_link_of_the_documentation_leads_somewhere() {
    let (mut found, mut faults, mut looked_at) = (Vec::new(), Vec::new(), 0);
    texts(&root(), &mut found);
    for (path, text) in found.iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "md")) {
        for target in links(text) {
            looked_at += 1;
            faults.extend(fault(path, path.parent().unwrap(), target));
        }
    }
    assert!(looked_at > 100, "{looked_at}");
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_page_that_is_named_elsewhere_is_there() {
    let (mut found, mut faults, mut looked_at) = (Vec::new(), Vec::new(), 0);
    texts(&root(), &mut found);
    let this = Path::new(file!()).file_name().unwrap();
    for (path, text) in found.iter().filter(|(path, _)| path.file_name() != Some(this)) {
        for target in pages(text) {
            looked_at += 1;
            faults.extend(fault(path, &root(), &target));
        }
    }
    assert!(looked_at > 30, "{looked_at}");
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn a_wrong_one_is_found() {
    let readme = root().join("README.md");
    assert!(fault(&readme, &root(), "docs/nowhere.md").is_some());
    assert!(fault(&readme, &root(), "docs/README.md#nowhere").is_some());
    assert!(fault(&readme, &root(), "docs/protocol.md#the-promise").is_none());
    assert_eq!(slug("## Regions: add, drain".trim_start_matches('#')), "regions-add-drain");
    assert_eq!(links("a [b](c.md#d) [e](https://f)").collect::<Vec<_>>(), ["c.md#d"]);
    assert_eq!(pages("see docs/ids.md#x, and docs/a/b.md.").collect::<Vec<_>>(), ["docs/ids.md#x", "docs/a/b.md"]);
}
