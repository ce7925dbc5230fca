//! The share rules, over simulated seconds.

use proptest::prelude::*;

use super::*;

fn tenant(label: &str) -> Tenant {
    Tenant::new(label).unwrap()
}

/// Asks `times` a second, evenly, for `n` ids each, for as long as the clock runs; what it got.
struct Caller {
    label: Option<Tenant>,
    every_ms: u64,
    n: u32,
    got: u64,
    refused: u64,
}

impl Caller {
    fn new(label: &str, every_ms: u64, n: u32) -> Self {
        Self { label: (!label.is_empty()).then(|| tenant(label)), every_ms, n, got: 0, refused: 0 }
    }
}

fn run(shares: &mut Shares, callers: &mut [Caller], from_ms: u64, to_ms: u64) {
    for now in from_ms..to_ms {
        for caller in callers.iter_mut().filter(|c| now % c.every_ms == 0) {
            match shares.look(caller.label.as_ref(), caller.n, now) {
                Ok(()) => {
                    shares.take(caller.label.as_ref(), caller.n, now);
                    caller.got += u64::from(caller.n);
                }
                Err(_) => caller.refused += 1,
            }
        }
    }
}

#[test]
fn a_noisy_tenant_cannot_make_a_quiet_one_dry() {
    let mut shares = Shares::new(1_000, 0);
    let mut callers = [Caller::new("noisy", 1, 50), Caller::new("quiet", 20, 5), Caller::new("", 50, 5)];
    run(&mut shares, &mut callers, 0, 20_000);
    let [noisy, quiet, unlabelled] = &callers;
    assert_eq!((quiet.refused, unlabelled.refused), (0, 0), "within its share nobody is refused");
    assert!(noisy.got >= 20 * 600, "what the others leave is the noisy one's: {}", noisy.got);
    let all: u64 = callers.iter().map(|c| c.got).sum();
    assert!(all <= 1_000 + 20 * 1_000, "{all}");
}

#[test]
fn tenants_who_all_want_more_get_the_same() {
    let mut shares = Shares::new(900, 0);
    let mut callers = [Caller::new("a", 1, 10), Caller::new("b", 2, 30), Caller::new("c", 5, 90)];
    run(&mut shares, &mut callers, 0, 30_000);
    for caller in &callers {
        assert!((7_000..=12_000).contains(&caller.got), "{:?} got {}", caller.label, caller.got);
    }
}

#[test]
fn alone_a_tenant_has_the_whole_limit_and_gets_it_back_when_others_have_gone() {
    let mut shares = Shares::new(100, 0);
    let mut both = [Caller::new("a", 1, 1), Caller::new("b", 1, 1)];
    run(&mut shares, &mut both, 0, 20_000);
    assert!((950..=1_100).contains(&both[0].got), "{}", both[0].got);
    let mut alone = [Caller::new("a", 1, 1)];
    run(&mut shares, &mut alone, 32_000, 42_000);
    assert!(alone[0].got >= 1_000, "{}", alone[0].got);
}

#[test]
fn more_at_once_than_a_share_is_given_when_it_is_full_and_paid_back() {
    let mut shares = Shares::new(100, 0);
    shares.set_share(10, 0);
    let mut callers = [Caller::new("", 100, 50)];
    run(&mut shares, &mut callers, 0, 60_000);
    assert!((550..=660).contains(&callers[0].got), "50 at once, 10 a second: {}", callers[0].got);
}

#[test]
fn at_most_so_many_tenants_are_remembered_and_the_oldest_goes() {
    let mut shares = Shares::new(1_000_000, 0);
    for n in 0..3_000_u64 {
        shares.look(Some(&tenant(&format!("t{n}"))), 1, n).unwrap();
        assert!(shares.active as usize <= MAX_TENANTS);
    }
    assert_eq!(shares.remembered(), MAX_TENANTS);
    assert!(shares.tenants.contains_key("t2999") && !shares.tenants.contains_key("t0"));
    run(&mut shares, &mut [Caller::new("late", 1, 1)], 60_000, 62_000);
    assert_eq!(shares.active, 1, "those who stopped asking have no share");
}

#[test]
fn an_agents_share_follows_what_was_asked_of_it() {
    assert_eq!(agent_share(1_000, 0, &[]), 1_000);
    assert_eq!(agent_share(1_000, 0, &[0, 0]), 500, "nobody asks: an even part");
    assert_eq!(agent_share(1_000, 700, &[700]), 1_000);
    assert_eq!((agent_share(1_000, 300, &[300, 100]), agent_share(1_000, 100, &[300, 100])), (725, 275));
    assert_eq!(agent_share(1_000, 0, &[0, 1_000]), 50, "a tenth is divided evenly");
    assert_eq!(agent_share(2, 0, &[0, 9, 9, 9]), 1, "never nothing");
    assert_eq!((share_alone(1_000, 0), share_alone(1_000, 4), share_alone(2, 9)), (1_000, 250, 1));
}

#[test]
fn what_was_asked_is_told_once_and_never_above_the_limit() {
    let mut shares = Shares::new(10, 0);
    for _ in 0..5 {
        let _ = shares.look(None, 7, 0);
    }
    assert_eq!((shares.take_asked(0), shares.take_asked(0)), (10, 0));
}

#[test]
fn caps_on_processes() {
    assert!(may_join(None, 1 << 40) && may_join(Some(3), 2) && !may_join(Some(3), 3));
    assert_eq!(room(None, u64::MAX, 500), Some(500));
    assert_eq!(room(Some(1_000), 0, 400), Some(400));
    assert_eq!(room(Some(1_000), 0, 90_000), Some(500), "half of what is free, whatever is wanted");
    assert_eq!(room(Some(1_000), 980, 500), Some(10));
    assert_eq!(room(Some(1_000), 981, 500), Some(10));
    assert_eq!(room(Some(1_000), 983, 500), None, "less than a hundredth");
    assert_eq!(room(Some(1_000), 983, 5), Some(5));
    assert_eq!(room(Some(1_000), 5_000, 1), None);
    assert_eq!(room(Some(1), 0, 1), Some(1));
}

/// However many processes there are, what they hold by this reckoning is never above the cap, and one that uses what it
/// got is never refused for good.
#[test]
fn one_process_under_a_cap_goes_on_for_ever() {
    let (most, mut newest) = (1_000, 0);
    for _ in 0..50 {
        let held = left_when_asked(newest);
        let got = room(Some(most), held, 100_000).unwrap();
        assert!(held + got <= most && got >= 400, "{got}");
        newest = got;
    }
    let (mut held, mut given) = (0, 0);
    while let Some(got) = room(Some(most), held, 300) {
        (held, given) = (held + got, given + 1);
        assert!(held <= most);
    }
    assert!(given > 3 && held > 900, "{given} got {held}");
}

#[test]
fn labels_are_checked() {
    for good in ["a", "acme.eu", &"x".repeat(MAX_TENANT_BYTES)] {
        assert!(Tenant::new(good).is_ok(), "{good}");
    }
    for bad in ["", " ", "a b", "-a", "ä", &"x".repeat(MAX_TENANT_BYTES + 1)] {
        assert!(Tenant::new(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_segment_counts_as_it_is_used() {
    let mut shares = Shares::new(1_000, 0);
    // A minute's worth is there; one process gets half of what is free.
    assert_eq!(shares.reserve(1_000_000, 0), Ok(30_000));
    assert_eq!(shares.reserve(12_000, 0), Ok(12_000));
    // 42,000 within a minute are 700 a second: 300 are left for others.
    assert!(shares.look(None, 300, 0).is_ok());
    shares.take(None, 300, 0);
    assert_eq!(shares.look(None, 151, 500).map_err(|refused| refused.share), Err(300));
    assert!(shares.look(None, 150, 500).is_ok());
    assert_eq!(shares.take_asked(2_000), 1_000, "700 of them are what the segments use");
    assert_eq!(shares.take_asked(2_000), 700);
    // What was not carved after all is there again.
    shares.give_back(12_000);
    assert_eq!(shares.reserve(1_000_000, 2_000), Ok(15_000));
    // A minute later all of it was used.
    assert_eq!(shares.reserve(1_000_000, 62_000), Ok(30_000));
}

#[test]
fn a_minute_that_is_used_up_says_when_to_come_back() {
    let mut shares = Shares::new(10, 0);
    let mut got = 0;
    let refused = loop {
        match shares.reserve(400, 5_000) {
            Ok(n) => got += n,
            Err(refused) => break refused,
        }
    };
    assert!((590..=600).contains(&got), "{got}");
    assert_eq!((refused.whose, refused.wait_ms), (Whose::Service, 60_000));
    assert!(shares.reserve(400, 64_999).is_err());
    assert_eq!(shares.reserve(400, 65_000), Ok(300));
    // A clock that went back gives nothing twice.
    assert_eq!(shares.reserve(400, 0), Ok(150));
}

proptest! {
    #[test]
    fn no_minute_gives_more_ahead_than_the_limit(limit in 1u32..10_000, asks in prop::collection::vec((1u64..500_000, 0u64..20_000), 1..100)) {
        let (mut shares, mut now, mut given) = (Shares::new(limit, 0), 0, Vec::new());
        for (want, wait) in asks {
            now += wait;
            if let Ok(n) = shares.reserve(want, now) {
                given.push((now / 1_000, n));
            }
            let within: u64 = given.iter().filter(|(at, _)| now / 1_000 - at < 60).map(|(_, n)| n).sum();
            prop_assert!(within <= u64::from(limit) * 60, "{within}");
        }
    }

    #[test]
    fn agents_shares_together_are_within_the_limit(limit in 1u32.., demands in prop::collection::vec(0u64..1 << 33, 1..40)) {
        let shares: Vec<u32> = demands.iter().map(|own| agent_share(limit, *own, &demands)).collect();
        let all: u64 = shares.iter().map(|s| u64::from(*s)).sum();
        prop_assert!(all <= u64::from(limit).max(demands.len() as u64), "{shares:?} of {limit}");
        let least = limit / 10 / u32::try_from(demands.len()).unwrap();
        prop_assert!(shares.iter().all(|s| *s >= least.max(1)));
    }

    #[test]
    fn nothing_above_the_share_is_given_whatever_is_asked(
        limit in 1u32..10_000,
        asks in prop::collection::vec((0usize..5, 1u32..2_000, 0u64..300), 1..300),
    ) {
        let (mut shares, mut now, mut got) = (Shares::new(limit, 0), 0, 0_u64);
        for (who, n, wait) in asks {
            now += wait;
            let who = (who > 0).then(|| tenant(&format!("t{who}")));
            let n = n.min(limit);
            if shares.look(who.as_ref(), n, now).is_ok() {
                shares.take(who.as_ref(), n, now);
                got += u64::from(n);
            }
            let most = u64::from(limit) + u64::from(limit) * now / 1_000;
            prop_assert!(got <= most, "{got} of {most}");
        }
    }
}
