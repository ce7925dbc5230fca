//! Whether two bounded arithmetic progressions have a value in common.
//!
//! Purpose: the exact test behind "a new version is refused if any granted value could repeat".
//!
//! Invariant: exact for every pair of sequences that can be built; nothing is enumerated or wraps.
//!
//! Who may change it: whoever extends the comparison with the naive loop in the tests below.
//!
//! Absent on purpose: direction. A descending sequence is turned round before it comes here.

/// `first, first + step, ... last`; `first <= last`, both within `i64`, `1 <= step <= 2^63`.
#[derive(Copy, Clone, Debug)]
pub(super) struct Progression {
    pub(super) first: i128,
    pub(super) last: i128,
    pub(super) step: i128,
}

/// The smallest value that lies in both progressions, exactly, without enumerating either.
///
/// By the Chinese remainder theorem the common values, bounds apart, are one residue class modulo the
/// least common multiple of the steps, or none. No intermediate exceeds 2^127: steps are at most 2^63,
/// differences below 2^64, and each product is of two numbers below a step (at most 2^126).
pub(super) fn first_common_value(a: Progression, b: Progression) -> Option<i128> {
    let (lo, hi) = (a.first.max(b.first), a.last.min(b.last));
    if lo > hi {
        return None;
    }
    let (gcd, inverse) = gcd_and_inverse(a.step, b.step);
    let difference = b.first - a.first;
    if difference % gcd != 0 {
        return None;
    }
    let modulus = b.step / gcd;
    let steps = (difference / gcd).rem_euclid(modulus) * inverse % modulus;
    // The smallest common residue at or above a.first, then at or above lo.
    let common = a.first + steps * a.step;
    let period = a.step * modulus;
    let short = (lo - common).max(0);
    let value = common + (short + period - 1) / period * period;
    (value <= hi).then_some(value)
}

/// `(g, x)` with `g = gcd(a, b)` and `a/g * x = 1 (mod b/g)`, `0 <= x < max(b/g, 1)`; `a, b >= 1`.
fn gcd_and_inverse(a: i128, b: i128) -> (i128, i128) {
    // Extended Euclid: old = a * x_old (mod b) throughout; the coefficients stay within b.
    let (mut old, mut new) = (a, b);
    let (mut x_old, mut x_new) = (1, 0);
    while new != 0 {
        let quotient = old / new;
        (old, new) = (new, old - quotient * new);
        (x_old, x_new) = (x_new, x_old - quotient * x_new);
    }
    (old, i128::rem_euclid(x_old, b / old))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn progression(first: i128, step: i128, count: i128) -> Progression {
        Progression { first, last: first + step * (count - 1), step }
    }

    fn enumerate(p: Progression) -> BTreeSet<i128> {
        (0..=(p.last - p.first) / p.step).map(|i| p.first + i * p.step).collect()
    }

    #[test]
    fn the_widest_steps_do_not_overflow() {
        let (min, max) = (i128::from(i64::MIN), i128::from(i64::MAX));
        for step in [1, 2, max - 1, max, max + 1] {
            for other in [1, 2, 3, max - 1, max, max + 1] {
                let a = progression(min, step, (max - min) / step + 1);
                let b = progression(max, other, 1);
                let meets = (max - min) % step == 0;
                assert_eq!(first_common_value(a, b), meets.then_some(max), "{step} {other}");
                assert_eq!(first_common_value(b, a), meets.then_some(max), "{step} {other}");
                let c = progression(min, other, (max - min) / other + 1);
                assert_eq!(first_common_value(a, c), Some(min));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn agrees_with_enumeration(
            base in prop_oneof![Just(0), Just(i128::from(i64::MAX) - 4000), Just(i128::from(i64::MIN))],
            a in (0i128..200, 1i128..40, 1i128..40),
            b in (0i128..200, 1i128..40, 1i128..40),
        ) {
            let a = progression(base + a.0, a.1, a.2);
            let b = progression(base + b.0, b.1, b.2);
            let common = enumerate(a).intersection(&enumerate(b)).next().copied();
            prop_assert_eq!(first_common_value(a, b), common);
            prop_assert_eq!(first_common_value(b, a), common);
        }

        #[test]
        fn a_common_value_far_out_is_found(
            meet in i64::MIN..=i64::MAX,
            steps in (1i64..=i64::MAX, 1i64..=i64::MAX),
            back in (0i128..1000, 0i128..1000),
        ) {
            // Two progressions that are built to meet at `meet`, as far back as the line allows.
            let (meet, min) = (i128::from(meet), i128::from(i64::MIN));
            let build = |step: i64, back: i128| {
                let (step, room) = (i128::from(step), (meet - min) / i128::from(step));
                Progression { first: meet - back.min(room) * step, last: meet, step }
            };
            let (a, b) = (build(steps.0, back.0), build(steps.1, back.1));
            let found = first_common_value(a, b).unwrap();
            prop_assert!(found >= a.first.max(b.first) && found <= meet);
            prop_assert_eq!((found - a.first) % a.step, 0);
            prop_assert_eq!((found - b.first) % b.step, 0);
        }
    }
}
