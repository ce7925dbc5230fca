//! Numbers as decimal strings on every wire.
//!
//! Purpose: a 63-bit number does not survive JSON readers that hold numbers as doubles, so every
//! ordinal and every value is written as a string, `"42"`, and read back strictly.
//!
//! Invariant: one number has exactly one spelling. No plus sign, no spaces, no leading zeros, no
//! `-0`, no digit separators, no exponent; anything else is refused, never repaired. A JSON number is
//! refused too, even a small one, because the same client will one day send a rounded large one.
//!
//! Who may change it: nobody lightly; stored ledgers and every client depend on the spelling.
//!
//! Absent on purpose: hexadecimal, lenient parsing, floating point.
//!
//! Use with `#[serde(with = "cadastre_core::decimal::unsigned")]` (`u64`), `signed` (`i64`),
//! `optional` (`Option<u64>`) and `optional_signed` (`Option<i64>`). The optional forms write
//! `null` for `None`; to let the field be left out, add `#[serde(default)]`.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer, Visitor};

/// Longest accepted spelling: `-9223372036854775808` and `18446744073709551615` have 20 characters.
const MAX_LEN: usize = 20;

/// What a reader is told to send; also the text of the error for a JSON number.
const EXPECTED: &str =
    "a decimal string such as \"42\" (send a decimal string, not a number, so that no digit is lost)";

/// Why a text is not the one spelling of a number.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum DecimalError {
    /// The text has a sign, space, leading zero or other character that the one spelling lacks.
    #[error("not a plain decimal number: only digits are allowed, without leading zeros, spaces or a plus sign")]
    Spelling,
    /// The spelling is right, but the number lies outside of the type's bounds.
    #[error("the number is outside of {min} to {max}")]
    OutOfBounds {
        /// Smallest number that the field can hold.
        min: i128,
        /// Largest number that the field can hold.
        max: i128,
    },
}

/// Parses the one spelling of a `u64`: `0` to `18446744073709551615`.
///
/// # Errors
/// [`DecimalError`] when the text is any other spelling, or is out of bounds.
pub fn parse_unsigned(text: &str) -> Result<u64, DecimalError> {
    if text.starts_with('-') {
        return Err(DecimalError::Spelling);
    }
    parse_within(text, 0, i128::from(u64::MAX))
}

/// Parses the one spelling of an `i64`: `-9223372036854775808` to `9223372036854775807`.
///
/// # Errors
/// [`DecimalError`] when the text is any other spelling (`-0` included), or is out of bounds.
pub fn parse_signed(text: &str) -> Result<i64, DecimalError> {
    parse_within(text, i128::from(i64::MIN), i128::from(i64::MAX))
}

fn parse_within<T: FromStr>(text: &str, min: i128, max: i128) -> Result<T, DecimalError> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let leading_zero = digits.starts_with('0') && (digits.len() > 1 || text.len() > 1);
    if digits.is_empty() || leading_zero || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(DecimalError::Spelling);
    }
    if text.len() > MAX_LEN {
        return Err(DecimalError::OutOfBounds { min, max });
    }
    text.parse().map_err(|_| DecimalError::OutOfBounds { min, max })
}

/// Accepts a string only, and hands it to the strict parser of the type.
struct Strict<T>(fn(&str) -> Result<T, DecimalError>);

impl<T> Visitor<'_> for Strict<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}

/// As [`Strict`], and `null` (or unit) is `None`.
struct StrictOption<T>(fn(&str) -> Result<T, DecimalError>);

impl<'de, T> Visitor<'de> for StrictOption<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "null, or {EXPECTED}")
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_str(Strict(self.0)).map(Some)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Option<T>, E> {
        (self.0)(text).map(Some).map_err(E::custom)
    }
}

/// `u64` as a decimal string.
pub mod unsigned {
    use super::{Deserializer, Strict, parse_unsigned};
    use serde::Serializer;

    /// Writes the number as a string.
    ///
    /// # Errors
    /// Only what the serializer itself reports.
    pub fn serialize<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    /// Reads the one spelling of a `u64`.
    ///
    /// # Errors
    /// When the input is not a string, or not the one spelling of a number within bounds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_str(Strict(parse_unsigned))
    }
}

/// `i64` as a decimal string.
pub mod signed {
    use super::{Deserializer, Strict, parse_signed};
    use serde::Serializer;

    /// Writes the number as a string.
    ///
    /// # Errors
    /// Only what the serializer itself reports.
    pub fn serialize<S: Serializer>(value: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    /// Reads the one spelling of an `i64`.
    ///
    /// # Errors
    /// When the input is not a string, or not the one spelling of a number within bounds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        deserializer.deserialize_str(Strict(parse_signed))
    }
}

/// `Option<u64>` as a decimal string or `null`.
pub mod optional {
    use super::{Deserializer, StrictOption, parse_unsigned};
    use serde::Serializer;

    /// Writes the number as a string, `None` as `null`.
    ///
    /// # Errors
    /// Only what the serializer itself reports.
    pub fn serialize<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(number) => serializer.serialize_some(&number.to_string()),
            None => serializer.serialize_none(),
        }
    }

    /// Reads `null`, or the one spelling of a `u64`.
    ///
    /// # Errors
    /// When the input is neither.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        deserializer.deserialize_option(StrictOption(parse_unsigned))
    }
}

/// `Option<i64>` as a decimal string or `null`.
pub mod optional_signed {
    use super::{Deserializer, StrictOption, parse_signed};
    use serde::Serializer;

    /// Writes the number as a string, `None` as `null`.
    ///
    /// # Errors
    /// Only what the serializer itself reports.
    pub fn serialize<S: Serializer>(value: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(number) => serializer.serialize_some(&number.to_string()),
            None => serializer.serialize_none(),
        }
    }

    /// Reads `null`, or the one spelling of an `i64`.
    ///
    /// # Errors
    /// When the input is neither.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
        deserializer.deserialize_option(StrictOption(parse_signed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Wire {
        #[serde(with = "unsigned")]
        u: u64,
        #[serde(with = "signed")]
        i: i64,
        #[serde(with = "optional", default)]
        o: Option<u64>,
        #[serde(with = "optional_signed", default)]
        s: Option<i64>,
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in ["", "-", "+1", " 1", "1 ", "01", "00", "-0", "-01", "1_000", "1e3", "1.0", "0x1", "١"] {
            assert_eq!(parse_signed(text), Err(DecimalError::Spelling), "{text:?}");
            assert_eq!(parse_unsigned(text), Err(DecimalError::Spelling), "{text:?}");
        }
        assert_eq!(parse_unsigned("-1"), Err(DecimalError::Spelling));
    }

    #[test]
    fn both_ends_are_exact() {
        assert_eq!(parse_unsigned("0"), Ok(0));
        assert_eq!(parse_unsigned("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_signed("-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(parse_signed("9223372036854775807"), Ok(i64::MAX));
        for text in ["18446744073709551616", &"9".repeat(400)] {
            assert!(matches!(parse_unsigned(text), Err(DecimalError::OutOfBounds { .. })));
        }
        for text in ["9223372036854775808", "-9223372036854775809"] {
            assert!(matches!(parse_signed(text), Err(DecimalError::OutOfBounds { .. })));
        }
    }

    #[test]
    fn json_numbers_are_refused_with_advice() {
        for json in [
            r#"{"u":1,"i":"1"}"#,
            r#"{"u":"1","i":-1}"#,
            r#"{"u":"1","i":"1","o":9007199254740993}"#,
            r#"{"u":"1","i":"1","s":1.5}"#,
        ] {
            let error = serde_json::from_str::<Wire>(json).unwrap_err().to_string();
            assert!(error.contains("send a decimal string"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(u: u64, i: i64, o: Option<u64>, s: Option<i64>) {
            let wire = Wire { u, i, o, s };
            let json = serde_json::to_string(&wire).unwrap();
            prop_assert_eq!(serde_json::from_str::<Wire>(&json).unwrap(), wire);
        }

        #[test]
        fn accepted_text_is_the_one_spelling(text in "[-+ 0-9]{0,21}") {
            if let Ok(n) = parse_signed(&text) {
                prop_assert_eq!(n.to_string(), text.clone());
            }
            if let Ok(n) = parse_unsigned(&text) {
                prop_assert_eq!(n.to_string(), text);
            }
        }
    }
}
