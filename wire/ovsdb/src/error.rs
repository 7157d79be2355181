//! The protocol's errors: a tag that programs read, details for people, the offending JSON.

use serde_json::{Value, json};
use std::fmt;

/// The `error` member of an OVSDB error object (RFC 7047 section 3.1 and 5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tag {
    Syntax,
    UnknownColumn,
    UnknownFunction,
    UnknownMutator,
    UnknownDatabase,
    ConstraintViolation,
    ReferentialIntegrity,
    DuplicateUuidName,
    DuplicateUuid,
    Domain,
    Range,
    TimedOut,
    Aborted,
    NotOwner,
    NotAllowed,
    Io,
    ResourcesExhausted,
    /// An error that has no tag of its own.
    Ovsdb,
}

impl Tag {
    pub fn as_str(self) -> &'static str {
        match self {
            Tag::Syntax => "syntax error",
            Tag::UnknownColumn => "unknown column",
            Tag::UnknownFunction => "unknown function",
            Tag::UnknownMutator => "unknown mutator",
            Tag::UnknownDatabase => "unknown database",
            Tag::ConstraintViolation => "constraint violation",
            Tag::ReferentialIntegrity => "referential integrity violation",
            Tag::DuplicateUuidName => "duplicate uuid-name",
            Tag::DuplicateUuid => "duplicate uuid",
            Tag::Domain => "domain error",
            Tag::Range => "range error",
            Tag::TimedOut => "timed out",
            Tag::Aborted => "aborted",
            Tag::NotOwner => "not owner",
            Tag::NotAllowed => "not allowed",
            Tag::Io => "I/O error",
            Tag::ResourcesExhausted => "resources exhausted",
            Tag::Ovsdb => "ovsdb error",
        }
    }
}

/// One error as it goes to a client. Boxed inside, so that results stay one word wide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Inner {
    tag: Tag,
    details: String,
    syntax: Option<String>,
}

impl Error {
    pub fn new(tag: Tag, details: impl Into<String>) -> Error {
        Error(Box::new(Inner { tag, details: details.into(), syntax: None }))
    }

    /// A syntax error about `json`.
    pub fn syntax(json: &Value, details: impl Into<String>) -> Error {
        Error::new(Tag::Syntax, details).about(json)
    }

    pub fn constraint(details: impl Into<String>) -> Error {
        Error::new(Tag::ConstraintViolation, details)
    }

    /// Adds the JSON that the error is about.
    pub fn about(mut self, json: &Value) -> Error {
        self.0.syntax = Some(json.to_string());
        self
    }

    pub fn tag(&self) -> Tag {
        self.0.tag
    }

    pub fn details(&self) -> &str {
        &self.0.details
    }

    pub fn to_json(&self) -> Value {
        let mut o = json!({"error": self.0.tag.as_str(), "details": self.0.details});
        if let Some(s) = &self.0.syntax {
            o["syntax"] = Value::from(s.as_str());
        }
        o
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(s) = &self.0.syntax {
            write!(f, "syntax \"{s}\": ")?;
        }
        write!(f, "{}: {}", self.0.tag.as_str(), self.0.details)
    }
}

impl std::error::Error for Error {}

pub type Result<T> = std::result::Result<T, Error>;
