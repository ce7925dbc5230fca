//! Starts: cut off, unproven, gone back, lost.

use cadastre_core::continuity::WitnessMode;
use cadastre_core::ids::Epoch;
use cadastre_ledger::continuity::How;
use cadastre_protocol::error::Code;

use super::fake::name;
use super::rig::{Rig, ask, take, talk};

#[tokio::test]
async fn it_starts_authenticates_and_issues_while_cut_off() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let before = take(&agent, "orders", 5).await.unwrap();
    drop(agent);
    rig.fake.cut();
    let agent = rig.start().await;
    talk(&agent).await;
    let after = take(&agent, "orders", 5).await.unwrap();
    assert!(after[0] > before[4]);
    assert_eq!(agent.ctx.continuity.standing().how, How::Witnessed);
    // To the last one, and then at once a refusal.
    let mut got = 5 + 5;
    while let Ok(ids) = take(&agent, "orders", 10).await {
        got += ids.len();
    }
    assert!(got >= 900, "{got}");
    let ids: Result<_, _> = take(&agent, "orders", 10).await;
    assert_eq!(ids, Err(Code::SegmentDry));
}

#[tokio::test]
async fn a_token_is_good_for_seven_days_without_a_word_and_no_longer() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    take(&agent, "orders", 1).await.unwrap();
    rig.clock.advance(7 * 86_400_000 + 1);
    assert_eq!(ask(&agent, "orders", 1).await, Err(Code::Unauthenticated));
    talk(&agent).await;
    assert!(ask(&agent, "orders", 1).await.is_ok());
}

#[tokio::test]
async fn without_a_witness_a_start_is_dry_until_the_authority_has_confirmed_it() {
    let mut rig = Rig::new();
    rig.mode = WitnessMode::None;
    let agent = rig.joined().await;
    take(&agent, "orders", 5).await.unwrap();
    talk(&agent).await;
    drop(agent);
    rig.fake.cut();
    let agent = rig.start().await;
    talk(&agent).await;
    assert_eq!(take(&agent, "orders", 1).await, Err(Code::StoreUnproven));
    rig.fake.heal();
    talk(&agent).await;
    assert_eq!(agent.ctx.continuity.standing().how, How::Testified);
    assert_eq!(agent.ctx.view().epoch(), Some(Epoch(1)), "confirmed, not burned");
    assert!(take(&agent, "orders", 1).await.is_ok());
}

#[tokio::test]
async fn a_quarantined_authority_confirms_nothing() {
    let mut rig = Rig::new();
    rig.mode = WitnessMode::None;
    drop(rig.joined().await);
    let agent = rig.start().await;
    rig.fake.with(|s| s.quarantined = true);
    talk(&agent).await;
    assert_eq!(take(&agent, "orders", 1).await, Err(Code::StoreUnproven));
    rig.fake.with(|s| s.quarantined = false);
    talk(&agent).await;
    assert!(take(&agent, "orders", 1).await.is_ok());
}

async fn put_back(mode: WitnessMode) {
    let mut rig = Rig::new();
    rig.mode = mode;
    drop(rig.joined().await);
    let copy = rig.copy(&rig.store(), "copy").await;
    let agent = rig.start().await;
    talk(&agent).await;
    let before = take(&agent, "orders", 50).await.unwrap();
    talk(&agent).await;
    drop(agent);
    rig.put_back(&copy, &rig.store()).await;
    rig.fake.cut();
    let agent = rig.start().await;
    talk(&agent).await;
    assert_eq!(take(&agent, "orders", 1).await, Err(Code::StoreUnproven), "{mode:?}: dry while cut off");
    rig.fake.heal();
    talk(&agent).await;
    assert_eq!(agent.ctx.view().epoch(), Some(Epoch(2)), "{mode:?}");
    let after = take(&agent, "orders", 50).await.unwrap();
    assert!(after[0] > *before.last().unwrap(), "{mode:?}: {after:?}");
    drop(agent);
    // And it is whole again: the next start needs nobody where there is a witness.
    let agent = rig.start().await;
    if mode == WitnessMode::Required {
        assert_eq!(agent.ctx.continuity.standing().how, How::Witnessed);
    }
    talk(&agent).await;
    assert!(take(&agent, "orders", 1).await.unwrap()[0] > *after.last().unwrap());
}

#[tokio::test]
async fn a_store_that_was_put_back_burns_and_asks_for_the_next_epoch() {
    for mode in [WitnessMode::Required, WitnessMode::BestEffort, WitnessMode::None] {
        put_back(mode).await;
    }
}

#[tokio::test]
async fn a_required_witness_that_was_lost_is_a_store_that_may_have_gone_back() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let before = take(&agent, "orders", 5).await.unwrap();
    drop(agent);
    std::fs::remove_dir_all(rig.witness().parent().unwrap()).unwrap();
    let agent = rig.start().await;
    assert_eq!(take(&agent, "orders", 1).await, Err(Code::StoreUnproven));
    talk(&agent).await;
    assert_eq!(agent.ctx.view().epoch(), Some(Epoch(2)));
    assert!(take(&agent, "orders", 1).await.unwrap()[0] > before[4]);
    drop(agent);
    let agent = rig.start().await;
    assert_eq!(agent.ctx.continuity.standing().how, How::Witnessed, "the new witness is filled");
}

#[tokio::test]
async fn an_empty_store_beside_a_used_witness_is_not_fresh() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    let (old, before) = (agent.ctx.me.store_id, take(&agent, "orders", 5).await.unwrap());
    drop(agent);
    std::fs::remove_dir_all(rig.store().parent().unwrap()).unwrap();
    let agent = rig.start().await;
    assert_ne!(agent.ctx.me.store_id, old);
    assert_eq!(agent.ctx.continuity.standing().how, How::WentBack);
    talk(&agent).await;
    assert_eq!(agent.ctx.view().epoch(), Some(Epoch(2)));
    assert!(take(&agent, "orders", 1).await.unwrap()[0] > before[4]);
}

#[tokio::test]
async fn every_start_takes_the_next_session_and_a_fresh_incarnation() {
    let rig = Rig::new();
    let first = rig.start().await;
    let (session, incarnation) = (first.ctx.me.session, first.ctx.me.incarnation);
    drop(first);
    let second = rig.start().await;
    assert_eq!(second.ctx.me.session, session.next().unwrap());
    assert_ne!(second.ctx.me.incarnation, incarnation);
    assert_eq!(second.pool.left(&name("orders")), 0);
}

#[tokio::test]
async fn what_a_stopped_process_had_is_counted_as_burned_and_not_as_issued() {
    let rig = Rig::new();
    let agent = rig.joined().await;
    take(&agent, "orders", 4).await.unwrap();
    talk(&agent).await;
    let left = agent.issuer.standings()[&name("orders")].0.left;
    assert!(left > 0);
    let burned = |agent: &region_agent::agent::Agent| agent.pool.all()[&name("orders")].totals.burned;
    drop(agent); // killed: as of its last heartbeat
    let agent = rig.start_again().await;
    assert_eq!(burned(&agent), left);
    take(&agent, "orders", 4).await.unwrap();
    talk(&agent).await;
    take(&agent, "orders", 1).await.unwrap();
    let more = agent.issuer.standings()[&name("orders")].0.left;
    agent.close().await; // in order: exactly
    drop(agent);
    assert_eq!(burned(rig.start_again().await.as_ref()), left + more);
}
