//! The protocol's rules for a segment client, one exchange at a time.

use super::*;
use cadastre_core::ids::{GrantId, SegmentId};
use proptest::prelude::*;
use uuid::{Builder, Uuid};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn id(n: u64) -> AllocationId {
    AllocationId::new(Builder::from_unix_timestamp_millis(n, &[0; 10]).into_uuid()).unwrap()
}

fn talk(agents: usize) -> Conversation {
    Conversation::new(name("till"), Incarnation(Uuid::from_u128(1)), agents)
}

fn ask(talk: &mut Conversation, agent: usize, want: u64, fresh: u64) -> SegmentRequest {
    let orders = name("orders");
    talk.request(agent, &Need { namespace: &orders, want, floor: 0 }, id(fresh))
}

fn answer(lo: u64, len: u64, region: &str, epoch: u64, chain: &str) -> SegmentAnswer {
    SegmentAnswer {
        segment_id: SegmentId(Uuid::from_u128(u128::from(lo))),
        grant_id: GrantId(Uuid::nil()),
        lo,
        hi: lo + len,
        first: lo as i64 + 1,
        last: (lo + len) as i64,
        increment: 1,
        region: name(region),
        epoch: Epoch(epoch),
        retry_until: 0,
        suggested_rate_per_second: 1.0,
        chain: chain.to_owned(),
        replayed: false,
    }
}

fn no(code: Code) -> Result<SegmentAnswer, Failure> {
    Err(Failure::Refused(Problem::new(code, "no")))
}

fn silence() -> Result<SegmentAnswer, Failure> {
    Err(Failure::Unreachable("nobody".to_owned()))
}

#[test]
fn silence_and_503_keep_the_allocation_id_and_its_size() {
    let mut talk = talk(1);
    let first = ask(&mut talk, 0, 100, 1);
    for (n, result) in
        [silence(), no(Code::SegmentDry), no(Code::NotDurable), no(Code::Internal), no(Code::RateLimited)]
            .into_iter()
            .enumerate()
    {
        assert!(matches!(talk.hear(0, &first, result, false, 0), Verdict::Elsewhere(_)));
        let again = ask(&mut talk, 0, 900, 10 + n as u64);
        assert_eq!((again.allocation_id, again.want), (first.allocation_id, 100), "verbatim");
    }
    let given = talk.hear(0, &first, Ok(answer(0, 100, "eu", 1, "c1")), false, 0);
    assert!(matches!(given, Verdict::Adopt(_)));
    let next = ask(&mut talk, 0, 900, 2);
    assert_eq!((next.allocation_id, next.want, next.chain.as_deref()), (id(2), 900, Some("c1")));
}

#[test]
fn a_final_answer_drops_the_id() {
    for code in
        [Code::AllocationConflict, Code::AllocationExpired, Code::Forbidden, Code::Unauthenticated, Code::NotHome]
    {
        let mut talk = talk(1);
        let first = ask(&mut talk, 0, 100, 1);
        talk.hear(0, &first, no(code), false, 0);
        assert_eq!(ask(&mut talk, 0, 50, 2).allocation_id, id(2), "{code:?}");
    }
}

#[test]
fn an_id_belongs_to_the_agent_that_it_was_first_sent_to() {
    let mut talk = talk(2);
    let first = ask(&mut talk, 0, 100, 1);
    talk.hear(0, &first, silence(), false, 0);
    let second = ask(&mut talk, 1, 100, 2);
    assert_eq!(second.allocation_id, id(2));
    assert_eq!(talk.pending_at(&name("orders")), [0, 1]);
    assert!(matches!(talk.hear(1, &second, Ok(answer(500, 9, "us", 1, "u1")), false, 0), Verdict::Adopt(_)));
    assert_eq!(ask(&mut talk, 0, 700, 3), SegmentRequest { ..first.clone() }, "to the letter");
    assert_eq!(talk.pending_at(&name("orders")), [0]);
}

#[test]
fn an_answer_that_is_late_foreign_or_repeated_is_dropped() {
    let mut talk = talk(2);
    let first = ask(&mut talk, 0, 100, 1);
    let late = talk.hear(0, &first, Ok(answer(0, 100, "eu", 1, "c1")), true, 0);
    assert!(matches!(late, Verdict::Elsewhere(Failure::Unreachable(_))));
    assert_eq!(ask(&mut talk, 0, 1, 9).allocation_id, id(1), "and the id is kept");
    let foreign = talk.hear(1, &first, Ok(answer(0, 100, "eu", 1, "c1")), false, 0);
    assert!(!matches!(foreign, Verdict::Adopt(_)), "the other agent was never asked");
    assert!(matches!(talk.hear(0, &first, Ok(answer(0, 100, "eu", 1, "c1")), false, 0), Verdict::Adopt(_)));
    let twice = talk.hear(0, &first, Ok(answer(0, 100, "eu", 1, "c1")), false, 0);
    assert!(!matches!(twice, Verdict::Adopt(_)), "not pending any more");
}

#[test]
fn a_chain_goes_with_its_region_whichever_agent_is_asked() {
    let mut talk = talk(3);
    for (agent, lo, region, chain) in [(0, 0, "eu", "e1"), (1, 100, "eu", "e2"), (2, 200, "us", "u1")] {
        let request = ask(&mut talk, agent, 9, 1 + lo);
        assert_eq!(request.chain, None, "nothing is known of agent {agent} yet");
        talk.hear(agent, &request, Ok(answer(lo, 9, region, 1, chain)), false, 0);
    }
    for (agent, chain) in [(0, "e2"), (1, "e2"), (2, "u1")] {
        assert_eq!(ask(&mut talk, agent, 9, 1_000 + agent as u64).chain.as_deref(), Some(chain));
    }
}

#[test]
fn the_first_agent_comes_first_while_it_is_well() {
    let mut talk = talk(3);
    let gone = Failure::Unreachable(String::new());
    assert_eq!(talk.order(true, 0), [0, 1, 2]);
    talk.unwell(0, &gone, u64::MAX, 1_000);
    assert_eq!((talk.order(false, 1_001), talk.order(true, 1_001)), (vec![1, 2], vec![1, 2]));
    // Its time has come: tried again, but not before one that is well by a caller that waits.
    assert_eq!((talk.order(false, 1_500), talk.order(true, 1_500)), (vec![0, 1, 2], vec![1, 2, 0]));
    talk.unwell(0, &gone, u64::MAX, 1_500);
    assert_eq!(talk.order(false, 2_400), [1, 2], "left alone for longer");
    // It answers, though with a refusal: well.
    talk.unwell(0, &Failure::Refused(Problem::new(Code::SegmentDry, "")), 0, 2_600);
    assert_eq!(talk.order(true, 2_600), [0, 1, 2]);
    (0..3).for_each(|agent| talk.unwell(agent, &gone, u64::MAX, 3_000));
    assert_eq!(talk.order(true, 3_001), [0, 1, 2], "none is well: all are tried");
}

#[test]
fn an_epoch_that_is_over_ends_the_incarnation_only_where_it_had_taken_part() {
    let mut talk = talk(2);
    let first = ask(&mut talk, 0, 100, 1);
    assert!(matches!(talk.hear(0, &first, no(Code::EpochFenced), false, 0), Verdict::Elsewhere(_)));
    let second = ask(&mut talk, 0, 100, 2);
    talk.hear(0, &second, Ok(answer(0, 100, "eu", 1, "c1")), false, 0);
    let third = ask(&mut talk, 0, 100, 3);
    assert!(matches!(talk.hear(0, &third, no(Code::EpochFenced), false, 0), Verdict::Ended(_)));
    talk.begin_anew(Incarnation(Uuid::from_u128(2)));
    let fresh = ask(&mut talk, 0, 100, 4);
    assert_eq!(
        (fresh.incarnation, fresh.chain.as_deref(), fresh.allocation_id),
        (Incarnation(Uuid::from_u128(2)), None, id(4))
    );
    // An answer to the old incarnation is nobody's.
    let old = SegmentRequest { incarnation: first.incarnation, ..fresh.clone() };
    assert!(!matches!(talk.hear(0, &old, Ok(answer(100, 9, "eu", 1, "c2")), false, 0), Verdict::Adopt(_)));
    // Refused again with nothing in hand: no new end, so that a fenced region does not burn another one's ids.
    assert!(matches!(talk.hear(0, &fresh, no(Code::EpochFenced), false, 0), Verdict::Elsewhere(_)));
}

#[test]
fn case_01_a_higher_epoch_is_seen_and_a_lower_one_is_not_taken() {
    let mut talk = talk(1);
    for (n, (lo, epoch)) in [(0, 7), (100, 8), (200, 7), (300, 8)].into_iter().enumerate() {
        let request = ask(&mut talk, 0, 9, 1 + n as u64);
        let verdict = talk.hear(0, &request, Ok(answer(lo, 9, "eu", epoch, "c")), false, 0);
        match (lo, verdict) {
            (200, Verdict::Again(_)) => {}
            (_, Verdict::Adopt(segment)) => assert_eq!(segment.epoch_rose, lo == 100, "{lo}"),
            (_, other) => panic!("{lo}: {other:?}"),
        }
    }
}

#[test]
fn what_would_break_the_order_is_a_gap() {
    let mut talk = talk(1);
    let request = ask(&mut talk, 0, 100, 1);
    let below = talk.hear(0, &request, Ok(answer(499, 100, "eu", 1, "c1")), false, 500);
    assert!(matches!(below, Verdict::Elsewhere(Failure::Refused(_))));
    let next = ask(&mut talk, 0, 100, 2);
    assert_eq!((next.allocation_id, next.chain.as_deref()), (id(2), Some("c1")), "answered all the same");
    let old = SegmentAnswer { replayed: true, ..answer(300, 100, "eu", 1, "c2") };
    assert!(matches!(talk.hear(0, &next, Ok(old), false, 500), Verdict::Again(_)), "carved before: asked for anew");
    let next = ask(&mut talk, 0, 100, 3);
    assert!(matches!(talk.hear(0, &next, Ok(answer(500, 100, "eu", 1, "c3")), false, 500), Verdict::Adopt(_)));
}

#[test]
fn the_request_names_what_was_given_before() {
    let (mut talk, orders) = (talk(1), name("orders"));
    let mut need = Need { namespace: &orders, want: 9, floor: 0 };
    assert_eq!(talk.request(0, &need, id(1)).above, None);
    need.floor = 700;
    let again = talk.request(0, &need, id(2));
    assert_eq!((again.allocation_id, again.above), (id(1), Some(700)), "also a retry, though it was less before");
}

#[test]
fn an_answer_that_contradicts_itself_is_no_segment() {
    let good = answer(10, 10, "eu", 1, "c");
    let bad = [
        SegmentAnswer { hi: 10, ..good.clone() },
        SegmentAnswer { hi: u64::MAX, ..good.clone() },
        SegmentAnswer { last: 21, ..good.clone() },
        SegmentAnswer { increment: 0, ..good.clone() },
        SegmentAnswer { increment: i64::MIN, ..good.clone() },
    ];
    for bad in bad {
        let mut talk = talk(1);
        let request = ask(&mut talk, 0, 10, 1);
        assert!(matches!(talk.hear(0, &request, Ok(bad), false, 0), Verdict::Elsewhere(_)));
        assert!(matches!(talk.hear(0, &request, Ok(good.clone()), false, 0), Verdict::Adopt(_)));
    }
}

/// A region that replays by allocation id, ends an incarnation on a wrong chain, and loses answers.
#[derive(Default)]
struct Region {
    next: u64,
    known: BTreeMap<AllocationId, (Incarnation, u64, u64)>,
    chain: Option<(String, String)>,
    drawn: u64,
}

impl Region {
    fn ask(&mut self, name: &str, request: &SegmentRequest) -> Result<SegmentAnswer, Failure> {
        let right = match (&request.chain, &self.chain) {
            (Some(given), Some((last, before))) => given == last || given == before,
            _ => true,
        };
        assert!(right, "a wrong chain token");
        self.drawn += 1;
        let fresh = format!("{name}{}", self.drawn);
        let presented = request.chain.clone().or(self.chain.take().map(|c| c.0)).unwrap_or_default();
        self.chain = Some((fresh.clone(), presented));
        let (incarnation, lo, len) = *self.known.entry(request.allocation_id).or_insert_with(|| {
            self.next += request.want;
            (request.incarnation, self.next - request.want, request.want)
        });
        assert_eq!((incarnation, len), (request.incarnation, request.want), "verbatim");
        Ok(answer(lo, len, name, 1, &fresh))
    }
}

proptest! {
    /// Whatever is lost between two regions' agents, nothing is adopted twice, chains are right, and ids stay with
    /// their agent.
    #[test]
    fn nothing_is_adopted_twice(steps in prop::collection::vec((0usize..2, 1u64..50, 0u8..5), 1..80)) {
        let mut talk = talk(2);
        let mut regions = [Region { next: 0, ..Region::default() }, Region { next: 1 << 40, ..Region::default() }];
        let mut adopted: Vec<Range> = vec![];
        let mut owner: BTreeMap<AllocationId, usize> = BTreeMap::new();
        for (n, (agent, want, fate)) in steps.into_iter().enumerate() {
            let request = ask(&mut talk, agent, want, n as u64 + 1);
            prop_assert_eq!(*owner.entry(request.allocation_id).or_insert(agent), agent);
            let region = &mut regions[agent];
            let (result, late) = match fate {
                0 => (silence(), false),
                1 => { let _ = region.ask(["eu", "us"][agent], &request); (silence(), false) }
                2 => (region.ask(["eu", "us"][agent], &request), true),
                3 => (no(Code::SegmentDry), false),
                _ => (region.ask(["eu", "us"][agent], &request), false),
            };
            if let Verdict::Adopt(segment) = talk.hear(agent, &request, result, late, 0) {
                prop_assert!(adopted.iter().all(|other| !other.overlaps(&segment.range)));
                adopted.push(segment.range);
            }
        }
    }
}
