//! Reads the members of a JSON object and reports what is missing, mistyped or not expected,
//! in the words that clients of the protocol know.

use crate::error::{Error, Result, Tag};
use serde_json::{Map, Value};

/// Kinds of JSON values that a member may have; combined with `|`.
#[derive(Clone, Copy)]
pub struct Kind(u16);

impl Kind {
    pub const BOOLEAN: Kind = Kind(1);
    pub const OBJECT: Kind = Kind(2);
    pub const ARRAY: Kind = Kind(4);
    pub const INTEGER: Kind = Kind(8);
    pub const NUMBER: Kind = Kind(8 | 16);
    pub const STRING: Kind = Kind(32);
    /// A string that is an identifier.
    pub const ID: Kind = Kind(64);
    pub const ANY: Kind = Kind(0xffff);

    pub const fn or(self, o: Kind) -> Kind {
        Kind(self.0 | o.0)
    }

    fn admits(self, v: &Value) -> bool {
        let bits = match v {
            Value::Null => 128,
            Value::Bool(_) => 1,
            Value::Object(_) => 2,
            Value::Array(_) => 4,
            Value::Number(n) if n.is_i64() => 8,
            Value::Number(_) => 16,
            Value::String(s) if is_id(s) => 32 | 64,
            Value::String(_) => 32,
        };
        self.0 & bits != 0
    }
}

/// True for `[A-Za-z_][A-Za-z0-9_]*`: names of databases, tables, columns, locks, uuid-names.
pub fn is_id(s: &str) -> bool {
    s.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// A cursor over one object; `finish` complains about members nobody asked for.
pub struct Parser<'a> {
    json: &'a Value,
    object: &'a Map<String, Value>,
    name: String,
    seen: Vec<&'a str>,
}

impl<'a> Parser<'a> {
    /// `name` is the context that starts each message: "Parsing NAME failed: ...".
    pub fn new(json: &'a Value, name: impl Into<String>) -> Result<Parser<'a>> {
        let name = name.into();
        match json {
            Value::Object(object) => Ok(Parser { json, object, name, seen: Vec::new() }),
            _ => Err(Error::new(Tag::Syntax, format!("Parsing {name} failed: Object expected."))),
        }
    }

    pub fn json(&self) -> &'a Value {
        self.json
    }

    pub fn fail(&self, what: impl std::fmt::Display) -> Error {
        Error::syntax(self.json, format!("Parsing {} failed: {what}", self.name))
    }

    pub fn optional(&mut self, member: &str, kind: Kind) -> Result<Option<&'a Value>> {
        let Some((key, v)) = self.object.get_key_value(member) else { return Ok(None) };
        self.seen.push(key);
        if kind.admits(v) { Ok(Some(v)) } else { Err(self.fail(format!("Type mismatch for member '{member}'."))) }
    }

    pub fn required(&mut self, member: &str, kind: Kind) -> Result<&'a Value> {
        self.optional(member, kind)?.ok_or_else(|| self.fail(format!("Required '{member}' member is missing.")))
    }

    pub fn required_str(&mut self, member: &str) -> Result<&'a str> {
        Ok(self.required(member, Kind::STRING)?.as_str().unwrap_or_default())
    }

    pub fn optional_bool(&mut self, member: &str) -> Result<Option<bool>> {
        Ok(self.optional(member, Kind::BOOLEAN)?.and_then(Value::as_bool))
    }

    pub fn optional_i64(&mut self, member: &str) -> Result<Option<i64>> {
        Ok(self.optional(member, Kind::INTEGER)?.and_then(Value::as_i64))
    }

    pub fn finish(self) -> Result<()> {
        match self.object.keys().find(|k| !self.seen.contains(&k.as_str())) {
            None => Ok(()),
            Some(k) => Err(self.fail(format!("Member '{k}' is present but not allowed here."))),
        }
    }
}
