//! The conversation: lost, doubled, late and refused; epochs, testimony, strangers.

use cadastre_core::ids::{ClusterId, Epoch};
use cadastre_core::mark::Generation;
use cadastre_core::registry::RegionState;
use cadastre_protocol::error::Code;
use region_agent::context::UplinkState;
use region_agent::sql;
use uuid::Uuid;

use super::fake::{Fault, name};
use super::rig::{Rig, ask, read, take, talk};

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_with_the_same_request_and_adopted_once() {
    for fault in [Fault::LoseAnswer, Fault::LoseRequest] {
        let rig = Rig::new();
        let agent = rig.start().await;
        agent.link.run_once().await; // the roster
        rig.fake.fault(fault);
        agent.link.run_once().await; // the wants
        assert_eq!(agent.pool.left(&name("orders")), 0);
        talk(&agent).await;
        let wants: Vec<_> = rig.fake.wants().into_iter().filter(|w| w.namespace == name("orders")).collect();
        assert!(wants.len() >= 2 && wants[0] == wants[1], "resent verbatim");
        assert_eq!(agent.pool.left(&name("orders")), 1_000);
        let pending = read(agent.ctx.continuity.db(), |tx| Box::pin(sql::pending(tx))).await;
        assert!(pending.is_empty());
    }
}

#[tokio::test]
async fn a_request_survives_a_restart_between_commit_and_answer() {
    let rig = Rig::new();
    let agent = rig.start().await;
    agent.link.run_once().await;
    rig.fake.fault(Fault::LoseAnswer);
    agent.link.run_once().await;
    let first = rig.fake.wants();
    drop(agent);
    let agent = rig.start().await;
    talk(&agent).await;
    let again: Vec<_> = rig.fake.wants().into_iter().skip(first.len()).take(first.len()).collect();
    assert_eq!(again, first);
    assert_eq!(agent.pool.left(&name("orders")), 1_000);
    let watermark = rig.fake.with(|s| s.watermark[&name("orders")]);
    assert_eq!(watermark, 1_000, "one range, ever");
}

#[tokio::test]
async fn an_answer_that_comes_twice_or_to_another_message_changes_nothing() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let left = agent.pool.left(&name("orders"));
    rig.fake.fault(Fault::OldAnswer);
    assert!(!agent.link.run_once().await.may_be_cut);
    assert_eq!(agent.pool.left(&name("orders")), left);
    talk(&agent).await;
    assert_eq!(agent.ctx.health().uplink, UplinkState::Up);
}

#[tokio::test]
async fn an_answer_after_the_deadline_is_not_adopted_and_its_range_is_not_lost() {
    let rig = Rig::new();
    let agent = rig.start().await;
    agent.link.run_once().await;
    rig.fake.fault(Fault::Late(5_001));
    agent.link.run_once().await;
    assert_eq!(agent.pool.left(&name("orders")), 0, "late by the monotonic clock");
    rig.fake.fault(Fault::Late(4_999));
    agent.link.run_once().await;
    assert_eq!(agent.pool.left(&name("orders")), 1_000);
    assert_eq!(rig.fake.with(|s| s.watermark[&name("orders")]), 1_000);
}

#[tokio::test]
async fn a_final_refusal_drops_the_request_and_any_other_keeps_its_id() {
    for (code, dropped) in [
        (Code::AllocationConflict, true),
        (Code::AllocationExpired, true),
        (Code::EpochFenced, true),
        (Code::Exhausted, true),
        (Code::NotDurable, false),
        (Code::Quarantined, false),
    ] {
        let rig = Rig::new();
        let agent = rig.start().await;
        agent.link.run_once().await;
        rig.fake.fault(Fault::RefuseWants(code));
        agent.link.run_once().await;
        let pending = read(agent.ctx.continuity.db(), |tx| Box::pin(sql::pending(tx))).await;
        assert_eq!(pending.is_empty(), dropped, "{code:?}");
        rig.clock.advance(60_000);
        talk(&agent).await;
        let wants: Vec<_> = rig.fake.wants().into_iter().filter(|w| w.namespace == name("orders")).collect();
        assert_eq!(wants[0].allocation_id != wants[1].allocation_id, dropped, "{code:?}");
        assert_eq!(agent.pool.left(&name("orders")), 1_000);
    }
}

#[tokio::test]
async fn exhausted_is_said_when_the_space_is_used_up() {
    let rig = Rig::new();
    let agent = rig.start().await;
    agent.link.run_once().await;
    rig.fake.fault(Fault::RefuseWants(Code::Exhausted));
    agent.link.run_once().await;
    assert_eq!(take(&agent, "orders", 1).await, Err(Code::Exhausted));
}

#[tokio::test]
async fn a_request_that_was_confirmed_before_proves_that_the_store_went_back() {
    let rig = Rig::new();
    let agent = rig.start().await;
    agent.link.run_once().await;
    rig.fake.fault(Fault::RefuseWants(Code::AlreadyConfirmed));
    talk(&agent).await;
    assert!(rig.fake.with(|s| s.seen.iter().any(|m| m.words.store_went_back)));
    assert_eq!(agent.ctx.view().epoch(), Some(Epoch(2)));
    assert!(take(&agent, "orders", 1).await.is_ok(), "it goes on under the next epoch");
}

#[tokio::test]
async fn a_grant_that_overlaps_what_was_ever_held_is_refused() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let before = take(&agent, "orders", 100).await.unwrap();
    let left = agent.pool.left(&name("orders"));
    rig.fake.with(|s| s.forced = Some((500, 1_400)));
    agent.link.run_once().await;
    assert_eq!(agent.pool.left(&name("orders")), left, "not adopted");
    assert!(rig.fake.with(|s| s.forced.is_none()), "it was offered");
    talk(&agent).await;
    let after = take(&agent, "orders", 1).await.unwrap();
    assert!(before.iter().all(|id| *id < after[0]));
}

#[tokio::test]
async fn a_higher_epoch_burns_everything_and_nothing_steps_back() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let before = take(&agent, "orders", 5).await.unwrap();
    rig.fake.with(|s| s.epoch = Epoch(8));
    talk(&agent).await;
    assert_eq!(agent.ctx.view().epoch(), Some(Epoch(8)));
    let after = take(&agent, "orders", 5).await.unwrap();
    assert!(after[0] > 1_000 && after[0] > before[4], "{after:?}");
    let burned = agent.pool.all()[&name("orders")].totals.burned;
    assert_eq!(burned, 1_000 - 5, "carved and uncarved alike");
    // A late word of the epoch before is not believed.
    rig.fake.with(|s| s.epoch = Epoch(7));
    talk(&agent).await;
    assert_eq!(agent.ctx.view().epoch(), Some(Epoch(8)));
    assert!(take(&agent, "orders", 1).await.is_ok());
}

#[tokio::test]
async fn a_fenced_region_stops_until_it_is_recovered() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    take(&agent, "orders", 5).await.unwrap();
    rig.fake.with(|s| (s.epoch, s.region) = (Epoch(2), RegionState::Fenced));
    talk(&agent).await;
    assert_eq!(ask(&agent, "orders", 1).await, Err(Code::EpochFenced));
    rig.fake.with(|s| (s.epoch, s.region) = (Epoch(3), RegionState::Active));
    talk(&agent).await;
    assert!(take(&agent, "orders", 1).await.unwrap()[0] > 1_000);
}

#[tokio::test]
async fn a_region_testifies_everything_and_refuses_lower_generations_afterwards() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    take(&agent, "orders", 5).await.unwrap();
    let asked = Generation { counter: 9, random: 9 };
    rig.fake.with(|s| (s.quarantined, s.generation) = (true, asked));
    talk(&agent).await;
    let said = rig.fake.with(|s| s.testified.last().cloned()).unwrap();
    let testimony = said.testimony.unwrap();
    assert_eq!((testimony.generation, said.words.promised), (asked, asked));
    assert_eq!(testimony.bounds[&name("orders")], rig.fake.with(|s| s.watermark[&name("orders")]));
    assert_eq!(testimony.roster.len(), 3);
    assert!(take(&agent, "orders", 5).await.is_ok(), "the region goes on");
    assert_eq!(rig.fake.with(|s| s.testified.len()), 1, "once per generation");
    // An authority of an older generation is not listened to any more.
    rig.fake.with(|s| {
        (s.quarantined, s.generation, s.epoch) = (false, Generation { counter: 2, random: 0 }, Epoch(5));
    });
    talk(&agent).await;
    assert_eq!(agent.ctx.view().epoch(), Some(Epoch(1)));
}

#[tokio::test]
async fn case_14_a_stranger_is_refused_and_issuing_goes_on() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    rig.fake.with(|s| (s.cluster, s.epoch) = (ClusterId(Uuid::from_u128(2)), Epoch(9)));
    talk(&agent).await;
    let health = agent.ctx.health();
    assert_eq!(health.uplink, UplinkState::Refused);
    assert!(health.uplink_error.unwrap().contains("--new-store"));
    assert_eq!(agent.ctx.view().epoch(), Some(Epoch(1)));
    assert!(take(&agent, "orders", 1).await.is_ok());
}

#[tokio::test]
async fn case_16_when_nobody_is_primary_issuing_goes_on_and_recovers_by_itself() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    for _ in 0..3 {
        rig.fake.fault(Fault::Refuse(Code::UpstreamUnavailable));
        let pause = agent.link.run_once().await;
        assert!(pause.ms > 0 && pause.ms <= 4_000 && !pause.may_be_cut, "{pause:?}");
    }
    assert_eq!(agent.ctx.health().uplink, UplinkState::Down);
    assert!(take(&agent, "orders", 10).await.is_ok());
    talk(&agent).await;
    assert_eq!(agent.ctx.health().uplink, UplinkState::Up);
}

#[tokio::test]
async fn a_second_copy_ends_this_one_for_good() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    take(&agent, "orders", 1).await.unwrap();
    rig.fake.fault(Fault::Refuse(Code::CopyFound));
    agent.link.run_once().await;
    assert!(agent.ctx.ended().await.contains("must not go on"));
    assert_eq!(ask(&agent, "orders", 1).await, Err(Code::CopyFound));
    drop(agent);
    // A restart while cut off carves nothing until the authority has said which copy is the right one.
    rig.fake.cut();
    let agent = rig.start().await;
    talk(&agent).await;
    assert_eq!(take(&agent, "orders", 1).await, Err(Code::StoreUnproven));
    rig.fake.heal();
    talk(&agent).await;
    assert!(take(&agent, "orders", 1).await.is_ok());
}
