//! JSON-RPC 1.0 messages as OVSDB uses them (RFC 7047 section 4).

use serde_json::{Map, Value, json};

/// One message. A notification is a request without an id.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    Request { id: Value, method: String, params: Vec<Value> },
    Notification { method: String, params: Vec<Value> },
    Reply { id: Value, result: Value },
    Error { id: Value, error: Value },
}

impl Message {
    pub fn request(id: impl Into<Value>, method: &str, params: Vec<Value>) -> Message {
        Message::Request { id: id.into(), method: method.to_owned(), params }
    }

    pub fn notification(method: &str, params: Vec<Value>) -> Message {
        Message::Notification { method: method.to_owned(), params }
    }

    /// Reads a message; the error says why the peer's connection must be closed.
    pub fn from_json(json: Value) -> Result<Message, &'static str> {
        let Value::Object(mut o) = json else { return Err("message is not a JSON object") };
        let mut take = |k: &str| o.remove(k).filter(|v| !v.is_null());
        let (method, params, result, error) = (take("method"), take("params"), take("result"), take("error"));
        let id = take("id");
        if !o.is_empty() {
            return Err("message has unexpected members");
        }
        match (method, params, result, error, id) {
            (Some(Value::String(method)), Some(Value::Array(params)), None, None, Some(id)) => {
                Ok(Message::Request { id, method, params })
            }
            (Some(Value::String(method)), Some(Value::Array(params)), None, None, None) => {
                Ok(Message::Notification { method, params })
            }
            (Some(_), ..) => Err("request must have a string method and array params"),
            (None, None, Some(result), None, Some(id)) => Ok(Message::Reply { id, result }),
            (None, None, None, Some(error), Some(id)) => Ok(Message::Error { id, error }),
            _ => Err("message is neither request nor reply"),
        }
    }

    pub fn into_json(self) -> Value {
        let object = |members: [(&str, Value); 3]| {
            Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>())
        };
        match self {
            Message::Request { id, method, params } => {
                object([("id", id), ("method", method.into()), ("params", params.into())])
            }
            Message::Notification { method, params } => {
                object([("id", Value::Null), ("method", method.into()), ("params", params.into())])
            }
            Message::Reply { id, result } => object([("id", id), ("result", result), ("error", Value::Null)]),
            Message::Error { id, error } => json!({"id": id, "error": error}),
        }
    }
}
