//! Atoms: the scalar values of OVSDB.

use crate::error::{Error, Result};
use crate::symbols::Symbols;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::fmt;
use uuid::Uuid;

/// Types of atoms (RFC 7047 section 3.2, `<atomic-type>`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicType {
    Integer,
    Real,
    Boolean,
    String,
    Uuid,
}

impl AtomicType {
    pub fn as_str(self) -> &'static str {
        match self {
            AtomicType::Integer => "integer",
            AtomicType::Real => "real",
            AtomicType::Boolean => "boolean",
            AtomicType::String => "string",
            AtomicType::Uuid => "uuid",
        }
    }

    pub fn parse(s: &str) -> Option<AtomicType> {
        [AtomicType::Integer, AtomicType::Real, AtomicType::Boolean, AtomicType::String, AtomicType::Uuid]
            .into_iter()
            .find(|t| t.as_str() == s)
    }

    pub fn default_atom(self) -> Atom {
        match self {
            AtomicType::Integer => Atom::Integer(0),
            AtomicType::Real => Atom::Real(Real::default()),
            AtomicType::Boolean => Atom::Boolean(false),
            AtomicType::String => Atom::String(String::new()),
            AtomicType::Uuid => Atom::Uuid(Uuid::nil()),
        }
    }
}

/// A finite double with a total order; never -0.0, so that equality is equality of bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real(f64);

impl Real {
    /// None for NaN and the infinities, which JSON cannot carry.
    pub fn new(v: f64) -> Option<Real> {
        v.is_finite().then_some(Real(if v == 0.0 { 0.0 } else { v }))
    }

    pub fn value(self) -> f64 {
        self.0
    }
}

impl PartialEq for Real {
    fn eq(&self, o: &Real) -> bool {
        self.0 == o.0
    }
}
impl Eq for Real {}
impl PartialOrd for Real {
    fn partial_cmp(&self, o: &Real) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}
impl Ord for Real {
    fn cmp(&self, o: &Real) -> Ordering {
        self.0.total_cmp(&o.0)
    }
}
impl std::hash::Hash for Real {
    fn hash<H: std::hash::Hasher>(&self, h: &mut H) {
        self.0.to_bits().hash(h);
    }
}

/// One scalar. Atoms of one column are all of one variant, so the order within a variant is what
/// keeps sets and maps sorted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Atom {
    Integer(i64),
    Real(Real),
    Boolean(bool),
    String(String),
    Uuid(Uuid),
}

impl Atom {
    pub fn atomic_type(&self) -> AtomicType {
        match self {
            Atom::Integer(_) => AtomicType::Integer,
            Atom::Real(_) => AtomicType::Real,
            Atom::Boolean(_) => AtomicType::Boolean,
            Atom::String(_) => AtomicType::String,
            Atom::Uuid(_) => AtomicType::Uuid,
        }
    }

    pub fn is_default(&self) -> bool {
        *self == self.atomic_type().default_atom()
    }

    /// The wire form. A real with an integral value is written as an integer, as peers do.
    pub fn to_json(&self) -> Value {
        match self {
            Atom::Integer(i) => Value::from(*i),
            Atom::Real(r) => real_to_json(r.0),
            Atom::Boolean(b) => Value::from(*b),
            Atom::String(s) => Value::from(s.as_str()),
            Atom::Uuid(u) => json!(["uuid", u.to_string()]),
        }
    }

    /// Reads an atom of type `ty`. `symbols` resolves `named-uuid`; without it they are an error.
    pub fn from_json(ty: AtomicType, json: &Value, symbols: Option<&mut Symbols>) -> Result<Atom> {
        let atom = match (ty, json) {
            (AtomicType::String, Value::String(s)) => {
                // Clients in C cannot read such a string back.
                if s.contains('\0') {
                    return Err(Error::syntax(json, "null bytes not supported in quoted strings"));
                }
                Some(Atom::String(s.clone()))
            }
            (AtomicType::Boolean, Value::Bool(b)) => Some(Atom::Boolean(*b)),
            (AtomicType::Integer, Value::Number(n)) => {
                n.as_i64().or_else(|| n.as_f64().and_then(integral)).map(Atom::Integer)
            }
            (AtomicType::Real, Value::Number(n)) => n.as_f64().and_then(Real::new).map(Atom::Real),
            (AtomicType::Uuid, _) => return uuid_from_json(json, symbols).map(Atom::Uuid),
            _ => None,
        };
        atom.ok_or_else(|| Error::syntax(json, format!("expected {}", ty.as_str())))
    }
}

/// The value as i64 when it is integral and exactly representable.
pub(crate) fn integral(v: f64) -> Option<i64> {
    // 2^63 is exact in f64; the comparison keeps the cast in range.
    (v.fract() == 0.0 && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&v)).then_some(v as i64)
}

fn real_to_json(v: f64) -> Value {
    match integral(v) {
        Some(i) if i.unsigned_abs() <= 1 << 53 => Value::from(i),
        _ => Value::from(v),
    }
}

/// Strict 8-4-4-4-12 form, the only one that the protocol knows.
pub fn parse_uuid(s: &str) -> Option<Uuid> {
    (s.len() == 36).then(|| Uuid::try_parse(s).ok()).flatten()
}

fn uuid_from_json(json: &Value, symbols: Option<&mut Symbols>) -> Result<Uuid> {
    let pair = match json {
        Value::Array(a) => match a.as_slice() {
            [Value::String(class), Value::String(s)] => Some((class.as_str(), s)),
            _ => None,
        },
        _ => None,
    };
    match (pair, symbols) {
        (Some(("uuid", s)), _) => {
            parse_uuid(s).ok_or_else(|| Error::syntax(json, format!("\"{s}\" is not a valid UUID")))
        }
        (Some(("named-uuid", name)), Some(symbols)) => Ok(symbols.refer(name)),
        _ => Err(Error::syntax(json, "expected [\"uuid\", <string>]")),
    }
}

/// The form used in messages and by the command-line programs: words bare, other strings quoted.
impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Integer(i) => write!(f, "{i}"),
            Atom::Real(r) => write!(f, "{}", r.0),
            Atom::Boolean(b) => write!(f, "{b}"),
            Atom::Uuid(u) => write!(f, "{u}"),
            Atom::String(s) if needs_quotes(s) => write!(f, "{}", Value::from(s.as_str())),
            Atom::String(s) => f.write_str(s),
        }
    }
}

fn needs_quotes(s: &str) -> bool {
    !s.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        || !s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        || s == "true"
        || s == "false"
        || parse_uuid(s).is_some()
}
