//! Conditions: the `where` of operations (all clauses hold) and of monitors (any clause holds).

use crate::atom::AtomicType;
use crate::datum::Datum;
use crate::error::{Error, Result, Tag};
use crate::schema::{COL_UUID, Row, TableSchema};
use crate::symbols::Symbols;
use crate::types::UNLIMITED;
use serde_json::{Value, json};
use std::cmp::Ordering;
use uuid::Uuid;

/// RFC 7047 section 5.1, `<function>`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Function {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Includes,
    Excludes,
}

impl Function {
    const ALL: [Function; 8] = [
        Function::Eq,
        Function::Ne,
        Function::Lt,
        Function::Le,
        Function::Gt,
        Function::Ge,
        Function::Includes,
        Function::Excludes,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Function::Eq => "==",
            Function::Ne => "!=",
            Function::Lt => "<",
            Function::Le => "<=",
            Function::Gt => ">",
            Function::Ge => ">=",
            Function::Includes => "includes",
            Function::Excludes => "excludes",
        }
    }

    pub fn parse(s: &str) -> Result<Function> {
        Self::ALL
            .into_iter()
            .find(|f| f.as_str() == s)
            .ok_or_else(|| Error::new(Tag::UnknownFunction, format!("No function named {s}.")))
    }
}

#[derive(Clone, PartialEq, Debug)]
pub enum Clause {
    /// A bare `true` or `false`.
    Always(bool),
    Test {
        column: usize,
        function: Function,
        arg: Datum,
    },
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Condition {
    pub clauses: Vec<Clause>,
}

impl Condition {
    pub fn from_json(table: &TableSchema, json: &Value, mut symbols: Option<&mut Symbols>) -> Result<Condition> {
        let clauses = json.as_array().ok_or_else(|| Error::syntax(json, "array expected"))?;
        let clauses =
            clauses.iter().map(|c| Clause::from_json(table, c, symbols.as_deref_mut())).collect::<Result<Vec<_>>>()?;
        Ok(Condition { clauses })
    }

    pub fn to_json(&self, table: &TableSchema) -> Value {
        let clause = |c: &Clause| match c {
            Clause::Always(b) => Value::from(*b),
            Clause::Test { column, function, arg } => {
                let c = &table.columns[*column];
                json!([c.name, function.as_str(), arg.to_json(&c.ty)])
            }
        };
        self.clauses.iter().map(clause).collect()
    }

    pub fn all(&self, row: &Row) -> bool {
        self.clauses.iter().all(|c| c.holds(row))
    }

    /// A monitor's reading: no clause at all means every row.
    pub fn any(&self, row: &Row) -> bool {
        self.clauses.is_empty() || self.clauses.iter().any(|c| c.holds(row))
    }

    /// The one row that can match, if a clause pins `_uuid`: saves the walk over the table.
    pub fn pinned_uuid(&self) -> Option<Uuid> {
        self.clauses.iter().find_map(|c| match c {
            Clause::Test { column: COL_UUID, function: Function::Eq | Function::Includes, arg } => arg.as_uuid(),
            _ => None,
        })
    }
}

impl Clause {
    fn from_json(table: &TableSchema, json: &Value, symbols: Option<&mut Symbols>) -> Result<Clause> {
        if let Value::Bool(b) = json {
            return Ok(Clause::Always(*b));
        }
        let Some([Value::String(column), Value::String(function), arg]) = json.as_array().map(Vec::as_slice) else {
            return Err(Error::syntax(json, "Parse error in condition."));
        };
        let column = table.column_for(column, json)?;
        let function = Function::parse(function)?;
        let c = &table.columns[column];
        let mut ty = c.ty.clone();
        match function {
            Function::Eq | Function::Ne => {}
            Function::Lt | Function::Le | Function::Gt | Function::Ge => {
                let ordered = matches!(ty.key.ty, AtomicType::Integer | AtomicType::Real);
                if !ordered || !(ty.is_scalar() || ty.is_optional_scalar()) {
                    let f = function.as_str();
                    let what = format!(
                        "Type mismatch: \"{f}\" operator may not be applied to column {} of type {}.",
                        c.name,
                        c.ty.to_english()
                    );
                    return Err(Error::syntax(json, what));
                }
            }
            Function::Includes => {
                if !ty.is_scalar() {
                    ty.min = 0;
                }
            }
            Function::Excludes => {
                if !ty.is_scalar() {
                    ty.min = 0;
                    ty.max = UNLIMITED;
                }
            }
        }
        let arg = Datum::from_json(&ty, arg, symbols)?;
        Ok(Clause::Test { column, function, arg })
    }

    pub fn holds(&self, row: &Row) -> bool {
        let (column, function, arg) = match self {
            Clause::Always(b) => return *b,
            Clause::Test { column, function, arg } => (*column, *function, arg),
        };
        let Some(field) = row.get(column) else { return false };
        // An absent optional value compares with nothing.
        let order = || match (field.only(), arg.only()) {
            (Some(a), Some(b)) => Some(a.cmp(b)),
            _ => None,
        };
        match function {
            Function::Eq => field == arg,
            Function::Ne => field != arg,
            Function::Lt => order() == Some(Ordering::Less),
            Function::Le => matches!(order(), Some(Ordering::Less | Ordering::Equal)),
            Function::Gt => order() == Some(Ordering::Greater),
            Function::Ge => matches!(order(), Some(Ordering::Greater | Ordering::Equal)),
            Function::Includes => arg.is_subset_of(field),
            Function::Excludes => arg.is_disjoint_from(field),
        }
    }
}
