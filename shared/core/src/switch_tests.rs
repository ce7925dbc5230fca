//! Tests of the switch's steps.

use super::*;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn fact(before: bool, after: bool, shortfall: Shortfall) -> NamespaceFact {
    NamespaceFact { name: name("orders"), home_is_before: before, home_is_after: after, shortfall, deleted: false }
}

fn facts() -> Facts {
    let region = RegionFact { state: RegionState::Active, live: true };
    Facts {
        quarantined: false,
        from: region,
        to: region,
        from_knows: false,
        rehearsed: false,
        namespaces: vec![fact(true, false, Shortfall::None)],
    }
}

#[test]
fn it_goes_step_by_step_and_ends_when_the_left_region_knows() {
    let mut facts = facts();
    assert_eq!(next(Step::Planned, &facts), Next::Go(Step::Drained));
    assert_eq!(next(Step::Drained, &facts), Next::Go(Step::Ready));
    assert_eq!(next(Step::Ready, &facts), Next::Go(Step::Moved));
    facts.namespaces = vec![fact(false, true, Shortfall::None)];
    assert!(matches!(next(Step::Moved, &facts), Next::Wait(_)));
    facts.from_knows = true;
    assert_eq!(next(Step::Moved, &facts), Next::Go(Step::Done));
    assert_eq!(next(Step::Done, &facts), Next::Over);
    assert_eq!(next(Step::BackedOut, &facts), Next::Over);
}

#[test]
fn a_rehearsal_goes_as_far_as_the_move_and_is_held_there() {
    let mut facts = Facts { rehearsed: true, ..facts() };
    assert_eq!(next(Step::Ready, &facts), Next::Go(Step::Moved));
    facts.namespaces = vec![fact(false, true, Shortfall::None)];
    facts.from_knows = true;
    assert!(matches!(next(Step::Moved, &facts), Next::Wait(why) if why.contains("drill")));
    facts.from.live = false;
    assert!(matches!(next(Step::Moved, &facts), Next::Wait(_)), "out of reach, it is held all the same");
}

#[test]
fn a_region_that_cannot_be_told_holds_nobody_up() {
    let mut facts = facts();
    facts.namespaces = vec![fact(false, true, Shortfall::None)];
    facts.from.live = false;
    assert_eq!(next(Step::Moved, &facts), Next::Go(Step::Done));
    facts.from = RegionFact { state: RegionState::Fenced, live: false };
    assert_eq!(next(Step::Moved, &facts), Next::Go(Step::Done));
    // One that is fenced and speaks is told first.
    facts.from = RegionFact { state: RegionState::Fenced, live: true };
    assert!(matches!(next(Step::Moved, &facts), Next::Wait(_)));
    facts.from_knows = true;
    assert_eq!(next(Step::Moved, &facts), Next::Go(Step::Done));
}

#[test]
fn nothing_changes_before_there_is_enough_for_both() {
    let mut facts = facts();
    facts.namespaces = vec![fact(true, false, Shortfall::Ordinals { held: 1, needed: 2 })];
    for step in [Step::Planned, Step::Drained, Step::Ready] {
        assert!(matches!(next(step, &facts), Next::Wait(_)), "{step:?}");
    }
    facts.namespaces = vec![fact(true, false, Shortfall::Never { possible: 1, needed: 2 })];
    assert!(matches!(next(Step::Planned, &facts), Next::Stop(_)));
    facts.namespaces = vec![fact(true, false, Shortfall::Time)];
    assert!(matches!(next(Step::Planned, &facts), Next::Wait(_)));
}

#[test]
fn it_is_refused_where_the_ground_is_gone() {
    for step in [Step::Planned, Step::Drained, Step::Ready] {
        let mut at = facts();
        at.to.state = RegionState::Fenced;
        assert!(matches!(next(step, &at), Next::Stop(_)));
        let mut at = facts();
        at.to.live = false;
        assert!(matches!(next(step, &at), Next::Stop(_)));
        let mut at = facts();
        at.namespaces = vec![fact(false, false, Shortfall::None)];
        assert!(matches!(next(step, &at), Next::Stop(_)));
        let mut at = facts();
        at.namespaces.iter_mut().for_each(|n| n.deleted = true);
        assert!(matches!(next(step, &at), Next::Stop(_)));
        let mut at = facts();
        at.quarantined = true;
        assert!(matches!(next(step, &at), Next::Wait(_)));
    }
}

/// A store that was put back to before the move has forgotten the step; the regions' rosters have not.
#[test]
fn a_home_that_has_moved_counts_whatever_the_step_says() {
    let mut facts = facts();
    facts.namespaces = vec![fact(false, true, Shortfall::Ordinals { held: 0, needed: 9 })];
    facts.to.live = false;
    for step in [Step::Planned, Step::Drained, Step::Ready] {
        assert_eq!(next(step, &facts), Next::Go(Step::Moved), "{step:?}");
    }
}

#[test]
fn what_is_needed_covers_both_peaks_and_the_surge() {
    let policy = Policy::default();
    assert_eq!(needed(&policy, 0.0), policy.segment_min);
    assert_eq!(needed(&policy, 1_000.0), 1_000 * 2 * (15 + 60));
    assert_eq!(shortfall(10, 10, 0, 0), Shortfall::None);
    assert_eq!(shortfall(9, 10, 20, 1), Shortfall::Ordinals { held: 9, needed: 10 });
    assert_eq!(shortfall(9, 11, 20, 1), Shortfall::Never { possible: 10, needed: 11 });
    assert_eq!(shortfall(9, 30, 20, 100), Shortfall::Never { possible: 20, needed: 30 });
}
