//! Numbers and times as people read them.
//!
//! Invariant: pure; "now" is an argument. A rounded time is never longer than the real one, so that no
//! one waits on a runway that is not there. Absent on purpose: time zones (times are relative, dates are UTC).

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const YEAR: u64 = 365 * DAY;

/// `1234567` as `1,234,567`.
pub fn digits(number: u64) -> String {
    group(&number.to_string())
}

/// The same for a number that is a text already, with or without a sign.
pub fn group(number: &str) -> String {
    let (sign, plain) = match number.strip_prefix('-') {
        Some(plain) => ("-", plain),
        None => ("", number),
    };
    let mut grouped = String::from(sign);
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (plain.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A duration in its two largest units: `3 h 12 min`.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => two(seconds, MINUTE, "min", 1, "s"),
        HOUR..DAY => two(seconds, HOUR, "h", MINUTE, "min"),
        DAY..YEAR => two(seconds, DAY, "d", HOUR, "h"),
        _ => match seconds / YEAR {
            1 => "1 year".to_owned(),
            years @ 2..=1_000 => format!("{} years", digits(years)),
            _ => "over 1,000 years".to_owned(),
        },
    }
}

fn two(seconds: u64, large: u64, large_word: &str, small: u64, small_word: &str) -> String {
    let (whole, rest) = (seconds / large, seconds % large / small);
    if rest == 0 { format!("{whole} {large_word}") } else { format!("{whole} {large_word} {rest} {small_word}") }
}

/// A runway; `None` is a rate of 0.
pub fn runway(seconds: Option<u64>) -> String {
    seconds.map_or_else(|| "- (rate 0)".to_owned(), duration)
}

/// How long ago, in one unit: `12 s ago`.
pub fn ago(seconds: u64) -> String {
    match seconds {
        0 => "now".to_owned(),
        1..MINUTE => format!("{seconds} s ago"),
        MINUTE..HOUR => format!("{} min ago", seconds / MINUTE),
        HOUR..DAY => format!("{} h ago", seconds / HOUR),
        _ => format!("{} d ago", digits(seconds / DAY)),
    }
}

/// A moment in milliseconds since the Unix epoch, seen from `now_ms`.
pub fn moment(at_ms: u64, now_ms: u64) -> String {
    if at_ms > now_ms.saturating_add(1_000) {
        format!("in {}", duration((at_ms - now_ms) / 1_000))
    } else {
        ago(now_ms.saturating_sub(at_ms) / 1_000)
    }
}

/// The day of a moment in milliseconds since the Unix epoch, in UTC: `2094-09-07`.
pub fn date(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "after the year 9999".to_owned(), |at| at.strftime("%Y-%m-%d").to_string())
}

/// IDs a second.
pub fn rate(per_second: f64) -> String {
    if !per_second.is_finite() || per_second <= 0.0 {
        "0".to_owned()
    } else if per_second < 0.1 {
        "< 0.1".to_owned()
    } else if per_second < 100.0 {
        format!("{per_second:.1}")
    } else {
        // A float-to-integer cast saturates.
        digits(per_second.round() as u64)
    }
}

/// How far a clock is ahead of another.
pub fn offset(ms: i64) -> String {
    match ms {
        0 => "0 ms".to_owned(),
        _ if ms.unsigned_abs() < 10_000 => format!("{ms:+} ms"),
        _ if ms > 0 => format!("{} ahead", duration(ms.unsigned_abs() / 1_000)),
        _ => format!("{} behind", duration(ms.unsigned_abs() / 1_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_from_the_right() {
        let cases = [(0, "0"), (999, "999"), (1_000, "1,000"), (123_456, "123,456"), (1_234_567, "1,234,567")];
        for (number, text) in cases {
            assert_eq!(digits(number), text);
        }
        assert_eq!(group("-9223372036854775808"), "-9,223,372,036,854,775,808");
        assert_eq!(digits(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn durations_have_two_units_and_are_never_rounded_up() {
        let cases = [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (725, "12 min 5 s"),
            (3 * 3_600 + 12 * 60 + 59, "3 h 12 min"),
            (7_200, "2 h"),
            (86_399, "23 h 59 min"),
            (3 * 86_400 + 4 * 3_600, "3 d 4 h"),
            (400 * 86_400, "1 year"),
            (50 * 365 * 86_400, "50 years"),
            (u64::MAX, "over 1,000 years"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(runway(None), "- (rate 0)");
    }

    #[test]
    fn moments_are_told_from_now() {
        assert_eq!(moment(1_000_000, 1_000_400), "now");
        assert_eq!(moment(1_000_000, 1_012_000), "12 s ago");
        assert_eq!(moment(1_000_000, 1_000_000 + 3 * 3_600_000), "3 h ago");
        assert_eq!(moment(1_090_000, 1_000_000), "in 1 min 30 s");
        assert_eq!(ago(86_400 * 2_000), "2,000 d ago");
        assert_eq!(moment(0, 0), "now");
    }

    #[test]
    fn dates_are_days_of_utc() {
        assert_eq!(date(1_735_689_600_000), "2025-01-01");
        assert_eq!(date(u64::MAX), "after the year 9999");
    }

    #[test]
    fn rates_and_clock_offsets() {
        let rates = [0.0, f64::NAN, 0.04, 12.34, 1_234.5].map(rate);
        assert_eq!(rates, ["0", "0", "< 0.1", "12.3", "1,235"]);
        let offsets = [0, -3, 42, 3_600_000, -90_000].map(offset);
        assert_eq!(offsets, ["0 ms", "-3 ms", "+42 ms", "1 h ahead", "1 min 30 s behind"]);
    }
}
