//! Verdicts that have no other room for their tests; the model and the simulator try the whole of them.

use super::*;
use crate::ids::RowId;

#[test]
fn what_leaves_no_room_above_it_is_of_no_future() {
    let ours = Generation { counter: 3, random: 1 };
    let mark = |generation, seq| Mark { generation, seq, row: RowId(uuid::Uuid::from_u128(1)), bound: 0 };
    let said = |counter, seq| may_be_of_a_lost_future(ours, 40, &mark(Generation { counter, random: 9 }, seq));
    assert!(said(3, 41) && said(4, 1_000_000) && said(3 + MAX_GENERATIONS_AHEAD, 40 + MAX_ROWS_AHEAD));
    assert!(!said(4 + MAX_GENERATIONS_AHEAD, 41) && !said(u32::MAX, 41));
    assert!(!said(3, 41 + MAX_ROWS_AHEAD) && !said(3, u64::MAX));
}

#[test]
fn what_is_kept_of_a_store_is_not_replaced_in_doubt_nor_lowered_by_a_late_colleague() {
    let mark = |seq: u64| {
        let generation = Generation { counter: 1, random: 0 };
        Mark { generation, seq, row: RowId(uuid::Uuid::from_u128(u128::from(seq))), bound: seq }
    };
    assert_eq!(still_kept(None, mark(5), false, false), mark(5));
    assert_eq!(still_kept(Some(mark(9)), mark(5), false, false), mark(9), "in doubt");
    assert_eq!(still_kept(Some(mark(9)), mark(12), false, false), mark(9), "in doubt");
    assert_eq!(still_kept(Some(mark(9)), mark(5), true, false), mark(9), "late");
    assert_eq!(still_kept(Some(mark(9)), mark(12), true, false), mark(12));
    assert_eq!(still_kept(Some(mark(9)), mark(5), false, true), mark(5), "what it held is burned");
}
