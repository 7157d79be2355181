//! Column types and their constraints (RFC 7047 section 3.2, `<type>` and `<base-type>`).

use crate::atom::{Atom, AtomicType, Real};
use crate::datum::Datum;
use crate::error::{Error, Result};
use crate::parser::{Kind, Parser, is_id};
use serde_json::{Map, Value, json};

/// "unlimited" as a maximum number of elements.
pub const UNLIMITED: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefType {
    Strong,
    Weak,
}

/// What a uuid refers to. The table is named until the whole schema is known, then numbered.
#[derive(Clone, PartialEq, Debug)]
pub struct Reference {
    pub table_name: String,
    /// Index in `Schema::tables`.
    pub table: usize,
    pub kind: RefType,
}

/// A constraint on atoms; at most one family applies to a type.
#[derive(Clone, PartialEq, Debug)]
pub enum Constraint {
    None,
    /// Sorted distinct atoms.
    Enum(Datum),
    Integer {
        min: i64,
        max: i64,
    },
    Real {
        min: f64,
        max: f64,
    },
    /// In characters.
    Length {
        min: u32,
        max: u32,
    },
    Ref(Reference),
}

/// An atomic type with its constraint.
#[derive(Clone, PartialEq, Debug)]
pub struct BaseType {
    pub ty: AtomicType,
    pub constraint: Constraint,
}

impl BaseType {
    pub fn plain(ty: AtomicType) -> BaseType {
        BaseType { ty, constraint: Constraint::None }
    }

    pub fn from_json(json: &Value) -> Result<BaseType> {
        let atomic =
            |s: &str| AtomicType::parse(s).ok_or_else(|| Error::syntax(json, format!("\"{s}\" is not an atomic-type")));
        if let Value::String(s) = json {
            return atomic(s).map(BaseType::plain);
        }
        let mut p = Parser::new(json, "ovsdb type")?;
        let ty = atomic(p.required_str("type")?)?;
        let constraint = match p.optional("enum", Kind::ANY)? {
            Some(e) => Constraint::Enum(enum_from_json(ty, e)?),
            None => Self::constraint_from_json(ty, &mut p)?,
        };
        p.finish()?;
        Ok(BaseType { ty, constraint })
    }

    fn constraint_from_json(ty: AtomicType, p: &mut Parser<'_>) -> Result<Constraint> {
        let bad = |p: &Parser<'_>, what: &str| Err(Error::syntax(p.json(), what));
        match ty {
            AtomicType::Integer => {
                let (min, max) = (p.optional_i64("minInteger")?, p.optional_i64("maxInteger")?);
                if min.is_none() && max.is_none() {
                    return Ok(Constraint::None);
                }
                let (min, max) = (min.unwrap_or(i64::MIN), max.unwrap_or(i64::MAX));
                if min > max {
                    return bad(p, "minInteger exceeds maxInteger");
                }
                Ok(Constraint::Integer { min, max })
            }
            AtomicType::Real => {
                let mut real = |m| Ok(p.optional(m, Kind::NUMBER)?.and_then(Value::as_f64));
                let (min, max): (Option<f64>, Option<f64>) = (real("minReal")?, real("maxReal")?);
                if min.is_none() && max.is_none() {
                    return Ok(Constraint::None);
                }
                let (min, max) = (min.unwrap_or(f64::MIN), max.unwrap_or(f64::MAX));
                if min > max {
                    return bad(p, "minReal exceeds maxReal");
                }
                Ok(Constraint::Real { min, max })
            }
            AtomicType::String => {
                let (min, max) = (p.optional_i64("minLength")?, p.optional_i64("maxLength")?);
                if min.is_none() && max.is_none() {
                    return Ok(Constraint::None);
                }
                let length = |v: Option<i64>, d| v.map_or(Ok(d), u32::try_from);
                match (length(min, 0), length(max, UNLIMITED)) {
                    (Ok(min), Ok(max)) if min <= max => Ok(Constraint::Length { min, max }),
                    (Ok(_), Ok(_)) => bad(p, "minLength exceeds maxLength"),
                    _ => bad(p, "bad minLength or maxLength"),
                }
            }
            AtomicType::Uuid => {
                let Some(t) = p.optional("refTable", Kind::ID)? else { return Ok(Constraint::None) };
                let kind = match p.optional("refType", Kind::STRING)?.and_then(Value::as_str) {
                    None | Some("strong") => RefType::Strong,
                    Some("weak") => RefType::Weak,
                    Some(_) => return bad(p, "refType must be \"strong\" or \"weak\""),
                };
                let table_name = t.as_str().unwrap_or_default().to_owned();
                Ok(Constraint::Ref(Reference { table_name, table: usize::MAX, kind }))
            }
            AtomicType::Boolean => Ok(Constraint::None),
        }
    }

    pub fn to_json(&self) -> Value {
        let mut o = Map::new();
        o.insert("type".into(), self.ty.as_str().into());
        let mut put = |k: &str, v: Value| {
            o.insert(k.into(), v);
        };
        match &self.constraint {
            Constraint::None => return self.ty.as_str().into(),
            Constraint::Enum(d) => put("enum", d.to_json_as_set()),
            Constraint::Integer { min, max } => {
                if *min != i64::MIN {
                    put("minInteger", (*min).into());
                }
                if *max != i64::MAX {
                    put("maxInteger", (*max).into());
                }
            }
            Constraint::Real { min, max } => {
                let real = |v: f64| Real::new(v).map_or(Value::Null, |r| Atom::Real(r).to_json());
                if *min != f64::MIN {
                    put("minReal", real(*min));
                }
                if *max != f64::MAX {
                    put("maxReal", real(*max));
                }
            }
            Constraint::Length { min, max } => {
                if *min != 0 {
                    put("minLength", (*min).into());
                }
                if *max != UNLIMITED {
                    put("maxLength", (*max).into());
                }
            }
            Constraint::Ref(r) => {
                put("refTable", r.table_name.as_str().into());
                if r.kind == RefType::Weak {
                    put("refType", "weak".into());
                }
            }
        }
        o.into()
    }

    pub fn reference(&self) -> Option<&Reference> {
        match &self.constraint {
            Constraint::Ref(r) => Some(r),
            _ => None,
        }
    }

    /// Checks one atom of this type.
    pub fn check(&self, atom: &Atom) -> Result<()> {
        let fault = match (&self.constraint, atom) {
            (Constraint::Enum(allowed), a) if allowed.keys().binary_search(a).is_err() => {
                let list: Vec<String> = allowed.keys().iter().map(|a| a.to_string()).collect();
                Some(format!("{a} is not one of the allowed values ([{}])", list.join(", ")))
            }
            (Constraint::Integer { min, max }, Atom::Integer(v)) => {
                range_fault(v, *min, *max, *min != i64::MIN, *max != i64::MAX)
            }
            (Constraint::Real { min, max }, Atom::Real(v)) => {
                range_fault(&v.value(), *min, *max, *min != f64::MIN, *max != f64::MAX)
            }
            (Constraint::Length { min, max }, Atom::String(s)) => {
                let n = s.chars().count();
                if n < *min as usize {
                    Some(format!("\"{s}\" length {n} is less than minimum allowed length {min}"))
                } else if n > *max as usize {
                    Some(format!("\"{s}\" length {n} is greater than maximum allowed length {max}"))
                } else {
                    None
                }
            }
            _ => None,
        };
        fault.map_or(Ok(()), |f| Err(Error::constraint(f)))
    }
}

fn range_fault<T: PartialOrd + std::fmt::Display>(
    v: &T,
    min: T,
    max: T,
    has_min: bool,
    has_max: bool,
) -> Option<String> {
    if *v >= min && *v <= max {
        return None;
    }
    Some(match (has_min, has_max) {
        (true, true) => format!("{v} is not in the valid range {min} to {max} (inclusive)"),
        (true, false) => format!("{v} is less than minimum allowed value {min}"),
        _ => format!("{v} is greater than maximum allowed value {max}"),
    })
}

fn enum_from_json(ty: AtomicType, json: &Value) -> Result<Datum> {
    let set = ColumnType { key: BaseType::plain(ty), value: None, min: 1, max: UNLIMITED };
    Datum::from_json(&set, json, None)
}

/// The type of a column: so many keys, or key-value pairs.
#[derive(Clone, PartialEq, Debug)]
pub struct ColumnType {
    pub key: BaseType,
    pub value: Option<BaseType>,
    /// 0 or 1.
    pub min: u32,
    /// At least 1; `UNLIMITED` for no limit.
    pub max: u32,
}

impl ColumnType {
    pub fn scalar(ty: AtomicType) -> ColumnType {
        ColumnType { key: BaseType::plain(ty), value: None, min: 1, max: 1 }
    }

    pub fn is_scalar(&self) -> bool {
        self.min == 1 && self.max == 1 && self.value.is_none()
    }

    pub fn is_optional_scalar(&self) -> bool {
        self.min == 0 && self.max == 1 && self.value.is_none()
    }

    pub fn is_map(&self) -> bool {
        self.value.is_some()
    }

    pub fn is_set(&self) -> bool {
        self.value.is_none() && !(self.min == 1 && self.max == 1)
    }

    /// More than one element may be present: changes are sent and logged as differences.
    pub fn is_composite(&self) -> bool {
        self.max > 1
    }

    /// The references of keys and of values.
    pub fn references(&self) -> (Option<&Reference>, Option<&Reference>) {
        (self.key.reference(), self.value.as_ref().and_then(BaseType::reference))
    }

    pub fn from_json(json: &Value) -> Result<ColumnType> {
        if json.is_string() {
            return Ok(ColumnType { key: BaseType::from_json(json)?, value: None, min: 1, max: 1 });
        }
        let mut p = Parser::new(json, "ovsdb type")?;
        let base = Kind::STRING.or(Kind::OBJECT);
        let key = BaseType::from_json(p.required("key", base)?)?;
        let value = p.optional("value", base)?.map(BaseType::from_json).transpose()?;
        let min = p.optional_i64("min")?.unwrap_or(1);
        let max = match p.optional("max", Kind::STRING.or(Kind::INTEGER))? {
            None => Some(1),
            Some(Value::String(s)) if s == "unlimited" => Some(UNLIMITED),
            Some(v) => v.as_u64().and_then(|v| u32::try_from(v).ok()).filter(|v| *v >= 1),
        };
        p.finish()?;
        match (u32::try_from(min), max) {
            (Ok(min), Some(max)) if min <= 1 => Ok(ColumnType { key, value, min, max }),
            _ => Err(Error::syntax(json, "ovsdb type fails constraint checks")),
        }
    }

    pub fn to_json(&self) -> Value {
        if self.is_scalar() && self.key.constraint == Constraint::None {
            return self.key.to_json();
        }
        let mut o = json!({"key": self.key.to_json()});
        if let Some(v) = &self.value {
            o["value"] = v.to_json();
        }
        if self.min != 1 {
            o["min"] = self.min.into();
        }
        if self.max == UNLIMITED {
            o["max"] = "unlimited".into();
        } else if self.max != 1 {
            o["max"] = self.max.into();
        }
        o
    }

    /// What messages call the type.
    pub fn to_english(&self) -> String {
        let key = self.key.ty.as_str();
        if self.is_scalar() {
            return key.to_owned();
        }
        let class = if self.is_map() { "map" } else { "set" };
        let number = match (self.min, self.max) {
            (0, UNLIMITED) => String::new(),
            (n, UNLIMITED) => format!(" {n} or more"),
            (0, m) => format!(" up to {m}"),
            (n, m) => format!(" {n} to {m}"),
        };
        match &self.value {
            Some(v) => format!("{class} of{number} ({key}, {}) pairs", v.ty.as_str()),
            None => format!("{class} of{number} {key}s"),
        }
    }

    pub fn default_datum(&self) -> Datum {
        if self.min == 0 {
            return Datum::empty();
        }
        let key = self.key.ty.default_atom();
        match &self.value {
            None => Datum::scalar(key),
            Some(v) => Datum::from_pairs([(key, v.ty.default_atom())]),
        }
    }

    /// Checks every atom against its constraint. Counts are the caller's.
    pub fn check(&self, datum: &Datum) -> Result<()> {
        datum.keys().iter().try_for_each(|a| self.key.check(a))?;
        match &self.value {
            Some(v) => datum.values().iter().try_for_each(|a| v.check(a)),
            None => Ok(()),
        }
    }

    /// Fills in table numbers; None names the table that does not exist.
    pub(crate) fn resolve(&mut self, find: &dyn Fn(&str) -> Option<usize>) -> std::result::Result<(), String> {
        for base in std::iter::once(&mut self.key).chain(self.value.as_mut()) {
            if let Constraint::Ref(r) = &mut base.constraint {
                if !is_id(&r.table_name) {
                    return Err(r.table_name.clone());
                }
                r.table = find(&r.table_name).ok_or_else(|| r.table_name.clone())?;
            }
        }
        Ok(())
    }
}
