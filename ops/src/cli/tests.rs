//! What command lines mean, and which are refused as wrong usage.

use super::*;
use cadastre_core::roster::Limits;
use clap::CommandFactory;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("cadastre").chain(line.split_whitespace()))
}

fn verb(line: &str) -> Verb {
    parse(line).unwrap_or_else(|error| panic!("{line}: {error}")).verb.unwrap()
}

#[test]
fn the_definition_is_sound_and_no_verb_is_dev() {
    Cli::command().debug_assert();
    assert!(parse("").unwrap().verb.is_none());
}

#[test]
fn only_built_verbs_are_listed() {
    let built = [
        "dev",
        "namespace",
        "region",
        "drain",
        "fence",
        "recover",
        "retire",
        "service",
        "operator",
        "apply",
        "ids",
        "headroom",
        "grants",
        "origin",
        "status",
        "verify",
        "rebuild",
        "quarantine",
        "switch",
        "drill",
        "doctor",
        "probe",
        "layout",
        "bench",
    ];
    let command = Cli::command();
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let listed: Vec<&str> = shown.map(clap::Command::get_name).collect();
    assert_eq!(listed, built);
}

#[test]
fn common_flags_may_stand_before_and_after_the_verb() {
    for line in ["--json --data x headroom", "headroom --json --data x"] {
        let cli = parse(line).unwrap();
        assert!(cli.common.json);
        assert_eq!(cli.common.data, Some(PathBuf::from("x")));
    }
}

#[test]
fn numbers_may_be_grouped_and_negative() {
    let Verb::Namespace(NamespaceVerb::Create { name, sequence, policy, .. }) =
        verb("namespace create orders --increment -1 --max 1_000_000 --grant-size 10,000")
    else {
        panic!("another verb");
    };
    assert_eq!(name.as_str(), "orders");
    let sequence = sequence.sequence().unwrap().unwrap();
    assert_eq!((sequence.start(), sequence.increment()), (1_000_000, -1));
    assert_eq!(policy.patch().unwrap().grant_size, Some(10_000));
    let Verb::Origin(origin) = verb("origin orders -5") else { panic!("another verb") };
    assert_eq!(origin.id, -5);
}

#[test]
fn flags_that_were_not_given_change_nothing() {
    let Verb::Namespace(NamespaceVerb::Set { sequence, policy, .. }) = verb("namespace set orders") else {
        panic!("another verb");
    };
    assert!(sequence.sequence().unwrap().is_none());
    assert!(policy.patch().is_none());
    let limits = Limits { ids_per_second: Some(9), in_flight: Some(3), batch: 5, holders: Some(2), held_ids: Some(7) };
    assert!(!LimitFlags::default().any());
    assert_eq!(LimitFlags::default().over(limits), limits);
    let none = LimitFlags { ids_per_second: Some(0), ..LimitFlags::default() };
    assert_eq!(none.over(limits), Limits { ids_per_second: None, ..limits });
    let none = LimitFlags { holders: Some(0), held_ids: Some(0), ..LimitFlags::default() };
    assert!(none.any());
    assert_eq!(none.over(limits), Limits { holders: None, held_ids: None, ..limits });
    let impossible = SequenceFlags { increment: Some(0), ..SequenceFlags::default() };
    assert_eq!(impossible.sequence().unwrap_err().code(), 2);
}

#[test]
fn services_bounds_and_shapes() {
    let Verb::Service(ServiceVerb::Create { namespaces, limits, .. }) =
        verb("service create shop --namespace orders,global --namespace x --batch 5")
    else {
        panic!("another verb");
    };
    assert_eq!(namespaces.iter().map(Name::as_str).collect::<Vec<_>>(), ["orders", "global", "x"]);
    assert_eq!(limits.over(Limits::default()).batch, 5);
    let Verb::Quarantine(QuarantineVerb::Lift(lift)) =
        verb("quarantine lift orders --bound eu=1_000 --bound us=2000 --old-store-stopped --reason gone")
    else {
        panic!("another verb");
    };
    let bounds: Vec<(&str, u64)> = lift.bounds.iter().map(|(region, bound)| (region.as_str(), *bound)).collect();
    assert_eq!(bounds, [("eu", 1_000), ("us", 2_000)]);
    let Verb::Ids(ids) = verb("ids orders -n 5 --as ranges --region eu") else { panic!("another verb") };
    assert_eq!((ids.count, ids.shape), (Some(5), Some(IdShape::Ranges)));
}

#[test]
fn wrong_usage_is_refused_with_exit_code_2() {
    let wrong = [
        "nonsense",
        "switch orders",
        "bench --rounds 0",
        "ids",
        "ids bad/name",
        "ids orders --count many",
        "ids orders --as ranges",
        "service create shop",
        "fence",
        "quarantine lift orders --bound eu --reason x",
        "quarantine lift orders --bound eu=1",
        "dev --seconds 10",
        "dev --demo --seconds 0",
        "origin orders 99999999999999999999",
    ];
    for line in wrong {
        let error = parse(line).err().unwrap_or_else(|| panic!("{line} was taken"));
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}
