//! Values that go into a statement, and rows that come out.
//!
//! Purpose: one small vocabulary (64-bit integers and text) that means the same on every engine.
//! Invariant: the type of a bound value depends only on its place in the statement, never on
//! whether it happens to be NULL. PostgreSQL fixes parameter types when a statement is first
//! prepared and the driver caches the prepared form by its text, so a NULL of another type than
//! the value bound there yesterday is read as garbage or refused. SQLite would not notice. Hence
//! NULL is typed: [`Value::NullInt`] and [`Value::NullText`], which `Option<..>` picks by itself.
//! Change it together with both engines and the simulator's. Absent on purpose: floats, blobs,
//! booleans and timestamps as column types; the stores use BIGINT and TEXT only.

use super::error::DbError;

/// One bound parameter or one column of a result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// BIGINT.
    Int(i64),
    /// TEXT.
    Text(String),
    /// NULL where a BIGINT may stand.
    NullInt,
    /// NULL where a TEXT may stand.
    NullText,
}

impl Value {
    /// A count or an ordinal as BIGINT.
    ///
    /// # Errors
    /// [`DbError::Other`] above 2^63-1, which no column can hold.
    pub fn int(value: u64) -> Result<Self, DbError> {
        i64::try_from(value).map(Self::Int).map_err(|_| DbError::Other(format!("{value} does not fit a BIGINT column")))
    }

    /// As [`Self::int`], NULL where there is none.
    ///
    /// # Errors
    /// [`DbError::Other`] above 2^63-1.
    pub fn opt_int(value: Option<u64>) -> Result<Self, DbError> {
        value.map_or(Ok(Self::NullInt), Self::int)
    }

    /// Whether it is NULL of either type.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::NullInt | Self::NullText)
    }
}

/// A count or an ordinal as BIGINT: see [`Value::int`].
///
/// # Errors
/// [`DbError::Other`] above 2^63-1.
pub fn int(value: u64) -> Result<Value, DbError> {
    Value::int(value)
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<u16> for Value {
    fn from(value: u16) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&String> for Value {
    fn from(value: &String) -> Self {
        Self::Text(value.clone())
    }
}

impl From<uuid::Uuid> for Value {
    fn from(value: uuid::Uuid) -> Self {
        Self::Text(value.to_string())
    }
}

/// Says which NULL stands for an absent value of this type.
pub trait Nullable: Into<Value> {
    /// The typed NULL.
    const NULL: Value;
}

impl Nullable for i64 {
    const NULL: Value = Value::NullInt;
}
impl Nullable for i32 {
    const NULL: Value = Value::NullInt;
}
impl Nullable for u32 {
    const NULL: Value = Value::NullInt;
}
impl Nullable for u16 {
    const NULL: Value = Value::NullInt;
}
impl Nullable for bool {
    const NULL: Value = Value::NullInt;
}
impl Nullable for &str {
    const NULL: Value = Value::NullText;
}
impl Nullable for String {
    const NULL: Value = Value::NullText;
}
impl Nullable for &String {
    const NULL: Value = Value::NullText;
}
impl Nullable for uuid::Uuid {
    const NULL: Value = Value::NullText;
}

impl<T: Nullable> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(T::NULL, Into::into)
    }
}

/// One row of a result; columns by position.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    query: &'static str,
    columns: Vec<Value>,
}

impl Row {
    /// A row of `query`; for engines.
    #[must_use]
    pub fn new(query: &'static str, columns: Vec<Value>) -> Self {
        Self { query, columns }
    }

    /// How many columns it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    fn wrong(&self, index: usize, wanted: &str) -> DbError {
        let found = match self.columns.get(index) {
            None => "no such column",
            Some(Value::Int(_)) => "an integer",
            Some(Value::Text(_)) => "text",
            Some(Value::NullInt | Value::NullText) => "NULL",
        };
        DbError::Corrupt(format!("column {index} should be {wanted}, is {found}: {}", self.query))
    }

    /// A BIGINT.
    ///
    /// # Errors
    /// [`DbError::Corrupt`] naming the query when the column is missing, NULL or not an integer.
    pub fn int(&self, index: usize) -> Result<i64, DbError> {
        self.opt_int(index)?.ok_or_else(|| self.wrong(index, "an integer"))
    }

    /// A BIGINT that is never negative.
    ///
    /// # Errors
    /// [`DbError::Corrupt`] as [`Self::int`], and below zero.
    pub fn uint(&self, index: usize) -> Result<u64, DbError> {
        u64::try_from(self.int(index)?).map_err(|_| self.wrong(index, "zero or above"))
    }

    /// A BIGINT that fits 32 bits and is never negative.
    ///
    /// # Errors
    /// [`DbError::Corrupt`] as [`Self::int`], and outside 32 bits.
    pub fn u32(&self, index: usize) -> Result<u32, DbError> {
        u32::try_from(self.int(index)?).map_err(|_| self.wrong(index, "within 32 bits"))
    }

    /// A 0 or a 1.
    ///
    /// # Errors
    /// [`DbError::Corrupt`] as [`Self::int`], and for any other number.
    pub fn bool(&self, index: usize) -> Result<bool, DbError> {
        match self.int(index)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.wrong(index, "0 or 1")),
        }
    }

    /// A TEXT.
    ///
    /// # Errors
    /// [`DbError::Corrupt`] naming the query when the column is missing, NULL or not text.
    pub fn text(&self, index: usize) -> Result<&str, DbError> {
        self.opt_text(index)?.ok_or_else(|| self.wrong(index, "text"))
    }

    /// A BIGINT or NULL.
    ///
    /// # Errors
    /// [`DbError::Corrupt`] when the column is missing or holds something else.
    pub fn opt_int(&self, index: usize) -> Result<Option<i64>, DbError> {
        match self.columns.get(index) {
            Some(Value::Int(value)) => Ok(Some(*value)),
            Some(Value::NullInt | Value::NullText) => Ok(None),
            Some(Value::Text(_)) | None => Err(self.wrong(index, "an integer or NULL")),
        }
    }

    /// A BIGINT that is never negative, or NULL.
    ///
    /// # Errors
    /// [`DbError::Corrupt`] as [`Self::opt_int`], and below zero.
    pub fn opt_uint(&self, index: usize) -> Result<Option<u64>, DbError> {
        self.opt_int(index)?
            .map(|value| u64::try_from(value).map_err(|_| self.wrong(index, "zero or above")))
            .transpose()
    }

    /// A TEXT or NULL.
    ///
    /// # Errors
    /// [`DbError::Corrupt`] when the column is missing or holds something else.
    pub fn opt_text(&self, index: usize) -> Result<Option<&str>, DbError> {
        match self.columns.get(index) {
            Some(Value::Text(value)) => Ok(Some(value)),
            Some(Value::NullInt | Value::NullText) => Ok(None),
            Some(Value::Int(_)) | None => Err(self.wrong(index, "text or NULL")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_type_names_the_query_and_never_guesses() {
        let row = Row::new("SELECT a, b FROM t", vec![Value::Int(-1), "x".into(), Value::NullInt]);
        assert_eq!(row.int(0), Ok(-1));
        assert!(row.uint(0).is_err());
        assert_eq!(row.text(1), Ok("x"));
        assert_eq!(row.opt_text(2), Ok(None));
        for error in [row.int(1).unwrap_err(), row.int(2).unwrap_err(), row.text(9).unwrap_err()] {
            assert!(matches!(&error, DbError::Corrupt(text) if text.contains("SELECT a, b FROM t")), "{error}");
        }
    }

    #[test]
    fn an_option_picks_the_null_of_its_own_type() {
        assert_eq!(Value::from(None::<i64>), Value::NullInt);
        assert_eq!(Value::from(None::<&str>), Value::NullText);
        assert_eq!(Value::from(Some(7_u32)), Value::Int(7));
        assert_eq!(Value::from(true), Value::Int(1));
        assert!(Value::int(u64::MAX).is_err());
    }
}
