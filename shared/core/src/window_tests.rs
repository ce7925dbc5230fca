//! Windows: disjoint whatever the clocks say, never far ahead, and the worker that was free longest comes first.

use super::*;
use proptest::prelude::*;

const DAY: u64 = 86_400_000;
const NOW: u64 = 1_750_000_000_000;

fn layout() -> Layout {
    Layout::new([41, 3, 7, 12], 1, 1_735_689_600_000).unwrap()
}

fn unit(ms: u64) -> u64 {
    layout().unit_of(ms).unwrap()
}

fn ask(watermark: u64, granter_ms: u64, asker_ms: u64, median_ms: Option<u64>) -> RegionAsk {
    let middle_ms = None;
    RegionAsk { watermark, goes_on: false, granter_ms, asker_ms, median_ms, middle_ms, length_ms: DAY, want: u64::MAX }
}

fn region(granter: u64, asker: u64, median: Option<u64>) -> Range {
    region_window(&layout(), &ask(0, granter, asker, median)).unwrap()
}

#[test]
fn a_window_ends_by_the_earlier_clock() {
    assert_eq!(region(NOW, NOW, None).hi(), unit(NOW + DAY));
    // Case 03: a day, or a year, ahead, on either side.
    assert_eq!(region(NOW + 365 * DAY, NOW, None).hi(), unit(NOW + DAY));
    assert_eq!(region(NOW, NOW + 365 * DAY, None).hi(), unit(NOW + DAY));
    // Both are ahead, and most regions are not.
    assert_eq!(region(NOW + 9 * DAY, NOW + 9 * DAY, Some(NOW)).hi(), unit(NOW + DAY + CLOCK_BOUND_MS));
}

/// No new window above the bound; it is the odd clock that is refused, and not whoever it disagrees with.
#[test]
fn a_region_whose_clock_is_off_is_given_no_window() {
    let of =
        |asker, middle| region_window(&layout(), &RegionAsk { middle_ms: Some(middle), ..ask(0, NOW, asker, None) });
    assert!(of(NOW + ASKER_CLOCK_BOUND_MS, NOW).is_ok());
    assert_eq!(of(NOW + DAY, NOW), Err(WindowRefusal::ClockOff { off_ms: 86_400_000 }));
    assert_eq!(of(NOW - DAY / 3, NOW), Err(WindowRefusal::ClockOff { off_ms: -28_800_000 }));
    // The authority's clock is a year ahead: two regions agree.
    assert_eq!(median(vec![NOW, NOW + 20, NOW + 365 * DAY]), Some(NOW + 20));
}

#[test]
fn one_goes_on_from_its_own_end_and_a_stranger_waits_for_it() {
    let watermark = unit(NOW + DAY / 2);
    let own = RegionAsk { goes_on: true, ..ask(watermark, NOW, NOW, Some(NOW)) };
    assert_eq!(region_window(&layout(), &own).unwrap(), Range::new(watermark, unit(NOW + DAY)).unwrap());
    let until_ms = NOW + DAY / 2;
    assert_eq!(
        region_window(&layout(), &ask(watermark, NOW, NOW, Some(NOW))),
        Err(WindowRefusal::GivenUntil { until_ms })
    );
    let early = RegionAsk { watermark: unit(NOW + DAY), ..own };
    assert!(region_window(&layout(), &early).is_err(), "nothing to add yet");
}

/// A window that was given by a clock an hour behind is left where it is: the next one begins now.
#[test]
fn what_a_clock_that_was_behind_gave_is_not_caught_up_with() {
    let watermark = unit(NOW - 3_600_000);
    let own = RegionAsk { goes_on: true, want: 100_000, ..ask(watermark, NOW, NOW, Some(NOW)) };
    assert_eq!(region_window(&layout(), &own).unwrap().lo(), unit(NOW - CLOCK_BOUND_MS));
}

#[test]
fn a_clock_before_the_epoch_and_an_ended_layout_are_errors() {
    let short = Layout::new([30, 3, 7, 12], 1, NOW).unwrap();
    let end = short.ends_ms();
    assert_eq!(region_window(&short, &ask(0, NOW - 1, NOW, None)), Err(WindowRefusal::BeforeEpoch));
    // Case 10: the last hour; the window is cut at the last unit, and then nothing comes.
    let last = region_window(&short, &ask(0, end - 3_600_000, end - 3_600_000, None)).unwrap();
    assert_eq!(last.hi(), short.units());
    assert_eq!(region_window(&short, &ask(last.hi(), end - 1, end - 1, None)), Err(WindowRefusal::LayoutEnded));
    assert_eq!(region_window(&short, &ask(0, end, end, None)), Err(WindowRefusal::LayoutEnded));
}

#[test]
fn the_median_is_the_middle_one() {
    assert_eq!(median(vec![]), None);
    assert_eq!(median(vec![7]), Some(7));
    assert_eq!(median(vec![9, 1]), Some(1));
    assert_eq!(median(vec![9, 1, 5]), Some(5));
}

#[test]
fn a_slot_is_taken_again_once_its_windows_have_ended() {
    let l = Layout::new([41, 1, 7, 12], 1, 1_735_689_600_000).unwrap();
    let slot = |number, living, ends_ms| SlotStanding { number, living, ends: l.unit_of(ends_ms).unwrap() };
    assert_eq!(choose_slot(&l, &[slot(0, true, NOW)], NOW), Ok(1));
    assert_eq!(choose_slot(&l, &[slot(0, true, NOW), slot(1, true, NOW)], NOW), Err(None));
    let used = [slot(0, true, NOW), slot(1, false, NOW + DAY)];
    assert_eq!(choose_slot(&l, &used, NOW), Err(Some(NOW + DAY)));
    assert_eq!(choose_slot(&l, &used, NOW + DAY), Ok(1));
}

fn worker_ask(now_ms: u64) -> WorkerAsk {
    let held = Range::new(unit(NOW), unit(NOW + DAY)).unwrap();
    WorkerAsk { granter_ms: now_ms, asker_ms: None, length_ms: 60_000, held, above: 0 }
}

#[test]
fn the_worker_that_was_free_longest_comes_first() {
    let now = NOW + 600_000;
    let (worker, window) = choose_worker(&layout(), &[(0, Some(unit(now)))], &worker_ask(now)).unwrap();
    assert_eq!((worker, window.hi()), (1, unit(now + 60_000)));
    // Case 07: all 128 were used; the first that ended comes, and before that nobody.
    let used: Vec<_> = (0..128).map(|n| (n, Some(unit(now + u64::from(n) * 10)))).collect();
    let (worker, window) = choose_worker(&layout(), &used, &worker_ask(now)).unwrap();
    assert_eq!((worker, window.lo()), (0, unit(now)));
    let later: Vec<_> = used.iter().map(|(n, e)| (*n, e.map(|e| e + 5))).collect();
    assert_eq!(
        choose_worker(&layout(), &later, &worker_ask(now)),
        Err(WorkerRefusal::NoneFree { until_ms: Some(now + 5) })
    );
}

#[test]
fn one_damaged_row_does_not_block_the_others() {
    let now = NOW + 600_000;
    let mut used: Vec<_> = (0..128).map(|n| (n, Some(unit(now)))).collect();
    used[0].1 = None;
    assert_eq!(choose_worker(&layout(), &used, &worker_ask(now)).unwrap().0, 1);
}

#[test]
fn a_worker_never_leaves_the_regions_window() {
    let end = NOW + DAY;
    let (_, window) = choose_worker(&layout(), &[], &worker_ask(end - 10)).unwrap();
    assert_eq!(window.hi(), unit(end));
    assert!(choose_worker(&layout(), &[], &worker_ask(end + 2_000)).is_err());
    assert!(choose_worker(&layout(), &[], &worker_ask(NOW - 5_000)).is_err(), "the clock is before the window");
    assert_eq!(renewed(&layout(), unit(end), &worker_ask(end)), Err(WindowRefusal::GivenUntil { until_ms: end }));
    assert_eq!(renewed(&layout(), unit(NOW + 70_000), &worker_ask(NOW + 30_000)), Ok(unit(NOW + 90_000)));
}

#[test]
fn a_true_end_stays_in_the_window() {
    let window = Range::new(100, 200).unwrap();
    assert_eq!([50, 150, 250].map(|said| true_end(window, said)), [101, 150, 200]);
}

proptest! {
    /// Whatever clocks say, in whatever order: windows of a slot are disjoint and rise, and none reaches beyond the
    /// earliest clock that had a say plus the length.
    #[test]
    fn windows_of_a_slot_are_disjoint(clocks in prop::collection::vec((0u64..4 * DAY, 0u64..4 * DAY, any::<bool>()), 1..60)) {
        let l = layout();
        let mut watermark = 0;
        for (granter, asker, goes_on) in clocks {
            let (granter, asker) = (NOW + granter, NOW + asker);
            let ask = RegionAsk { goes_on: goes_on && watermark > 0, ..ask(watermark, granter, asker, None) };
            if let Ok(window) = region_window(&l, &ask) {
                prop_assert!(window.lo() >= watermark);
                prop_assert!(window.hi() <= unit(granter.min(asker) + DAY));
                watermark = window.hi();
            }
        }
    }

    /// Two workers of one id, one after the other, never share a unit, also where the clock went back between them.
    #[test]
    fn windows_of_a_worker_are_disjoint(clocks in prop::collection::vec(0u64..DAY, 1..60)) {
        let l = Layout::new([41, 3, 1, 12], 10, 1_735_689_600_000).unwrap();
        let held = Range::new(l.unit_of(NOW).unwrap(), l.unit_of(NOW + DAY).unwrap()).unwrap();
        let mut ends: [Option<u64>; 2] = [None, None];
        for clock in clocks {
            let ask = WorkerAsk { granter_ms: NOW + clock, asker_ms: None, length_ms: 60_000, held, above: 0 };
            let used: Vec<_> = (0..2u32).filter_map(|n| ends[n as usize].map(|e| (n, Some(e)))).collect();
            if let Ok((worker, window)) = choose_worker(&l, &used, &ask) {
                let end = &mut ends[worker as usize];
                prop_assert!(end.is_none_or(|end| window.lo() >= end));
                prop_assert!(held.covers(&window));
                *end = Some(window.hi());
            }
        }
    }
}
