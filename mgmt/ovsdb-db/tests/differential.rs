//! The same conversation with the reference's server and with ours: equal up to random uuids, the
//! order of rows, and what this file says.

mod support;

use fv_core::Nanos;
use fv_ovsdb::{Database, Schema, Uuid};
use fv_ovsdb_db::server::{ConnId, Now, Server};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use support::{Conn, ReferenceServer, tool_ok};

const ZOO: &str = include_str!("../../../wire/ovsdb/tests/zoo.ovsschema");

/// One step: connection 0 or 1 sends a message.
struct Step(usize, Value);

trait Peer {
    fn send(&mut self, conn: usize, v: &Value);
    /// All that arrives on both connections because of the last message.
    fn collect(&mut self) -> [Vec<Value>; 2];
}

struct Reference {
    conns: [Conn; 2],
    _server: ReferenceServer,
}

impl Peer for Reference {
    fn send(&mut self, conn: usize, v: &Value) {
        self.conns[conn].send(v);
    }

    /// An echo on each connection tells when everything before it has arrived; the further rounds
    /// are for what one connection causes on the other.
    fn collect(&mut self) -> [Vec<Value>; 2] {
        let mut out = [vec![], vec![]];
        for _ in 0..3 {
            for (i, out) in out.iter_mut().enumerate() {
                self.conns[i].send(&json!({"id": "sync", "method": "echo", "params": []}));
                let end = Instant::now() + support::PATIENCE;
                let mut synced = false;
                while !synced && !self.conns[i].closed {
                    assert!(Instant::now() < end);
                    for m in self.conns[i].receive() {
                        if m["id"] == "sync" { synced = true } else { out.push(m) }
                    }
                }
            }
        }
        out
    }
}

struct Ours {
    server: Server,
    conns: [ConnId; 2],
    start: Instant,
}

impl Ours {
    fn now(&self) -> Now {
        let t = Nanos::from_secs(100) + self.start.elapsed().into();
        Now { mono: t, wall: t }
    }
}

impl Peer for Ours {
    fn send(&mut self, conn: usize, v: &Value) {
        let now = self.now();
        self.server.handle(self.conns[conn], v.clone(), now);
    }

    fn collect(&mut self) -> [Vec<Value>; 2] {
        let now = self.now();
        self.server.turn(now);
        self.conns.map(|c| self.server.take_outgoing(c))
    }
}

fn normalise(v: &mut Value) {
    match v {
        Value::String(s) => {
            if Uuid::try_parse(s).is_ok() {
                *s = "U".into();
            } else if s.contains("has identical") || s.len() > 2000 {
                *s = "long".into();
            } else {
                *s = blank(s);
            }
        }
        Value::Array(a) => a.iter_mut().for_each(normalise),
        Value::Object(o) => {
            // Rows by uuid become a sorted list.
            let mut keyed: Vec<Value> = Vec::new();
            for k in o.keys().cloned().collect::<Vec<_>>() {
                if let (true, Some(mut v)) = (Uuid::try_parse(&k).is_ok(), o.get(&k).cloned()) {
                    o.remove(&k);
                    normalise(&mut v);
                    keyed.push(v);
                }
            }
            o.values_mut().for_each(normalise);
            if !keyed.is_empty() {
                keyed.sort_by_key(|v| v.to_string());
                o.insert("rows by uuid".into(), keyed.into());
            }
            if let Some(Value::Array(rows)) = o.get_mut("rows") {
                rows.sort_by_key(|r| r.to_string());
            }
        }
        _ => {}
    }
}

fn blank(s: &str) -> String {
    let mut out = String::new();
    let mut i = 0;
    while i < s.len() {
        if s.get(i..i + 36).is_some_and(|h| Uuid::try_parse(h).is_ok()) {
            out.push('U');
            i += 36;
        } else {
            let c = s[i..].chars().next().unwrap_or(' ');
            out.push(c);
            i += c.len_utf8();
        }
    }
    out
}

/// Messages as text, normalised. Notifications of one step come in no defined order among monitors.
fn text(messages: Vec<Value>) -> Vec<String> {
    let mut notifications = Vec::new();
    let mut replies = Vec::new();
    for mut m in messages {
        normalise(&mut m);
        if m.get("method").is_some() { notifications.push(m.to_string()) } else { replies.push(m.to_string()) }
    }
    notifications.sort();
    notifications.extend(replies);
    notifications
}

fn converse(dir: &Path, steps: &[Step]) {
    let schema = dir.join("t.ovsschema");
    std::fs::write(&schema, ZOO).unwrap();
    let db = dir.join("t.db");
    tool_ok("ovsdb-tool", &["create", db.to_str().unwrap(), schema.to_str().unwrap()]);
    let server = ReferenceServer::start(dir, &db);
    let mut reference = Reference { conns: [Conn::open(&server.socket), Conn::open(&server.socket)], _server: server };
    let mut server = Server::new(vec![(Database::new(Arc::new(Schema::parse(ZOO).unwrap())), None)]);
    let conns = [server.connection_opened(), server.connection_opened()];
    let mut ours = Ours { server, conns, start: Instant::now() };
    let mut bad = String::new();
    for Step(conn, message) in steps {
        reference.send(*conn, message);
        ours.send(*conn, message);
        let (want, got) = (reference.collect().map(text), ours.collect().map(text));
        if want != got {
            bad += &format!("{conn} sends {message}\n");
            for i in 0..2 {
                if want[i] != got[i] {
                    bad += &format!("  conn {i}\n    got  {}\n    want {}\n", got[i].join(" "), want[i].join(" "));
                }
            }
        }
    }
    assert!(bad.is_empty(), "\n{bad}");
}

/// Requests of connection 0, with ids that count.
fn requests(list: &[(&str, Value)]) -> Vec<Step> {
    list.iter()
        .enumerate()
        .map(|(i, (method, params))| Step(0, json!({"id": i, "method": method, "params": params})))
        .collect()
}

const NIL: &str = "00000000-0000-0000-0000-000000000000";

#[test]
fn requests_and_their_errors() {
    let dir = tempfile::tempdir().unwrap();
    converse(
        dir.path(),
        &requests(&[
            ("list_dbs", json!([])),
            ("list_dbs", json!([5])),
            ("nope", json!([])),
            ("get_schema", json!([])),
            ("get_schema", json!(["Zed"])),
            ("get_schema", json!([5])),
            ("get_schema", json!(["T"])),
            ("get_schema", json!(["_Server"])),
            ("echo", json!([1, {"a": [null]}])),
            ("transact", json!([])),
            ("transact", json!(["Zed"])),
            ("transact", json!(["T"])),
            ("get_server_id", json!([])),
            ("set_db_change_aware", json!([true])),
            ("set_db_change_aware", json!([5])),
            ("set_db_change_aware", json!([])),
            ("cancel", json!([77])),
            ("lock", json!(["l1"])),
            ("lock", json!(["l1"])),
            ("lock", json!([])),
            ("lock", json!([5])),
            ("lock", json!(["1x"])),
            ("transact", json!(["T", {"op": "assert", "lock": "l1"}, {"op": "assert", "lock": "l2"}])),
            ("unlock", json!(["l9"])),
            ("unlock", json!(["l1"])),
            ("steal", json!(["l1"])),
            ("steal", json!(["l1"])),
            ("unlock", json!(["l1"])),
            (
                "transact",
                json!(["_Server", {"op": "select", "table": "Database", "where": [],
                    "columns": ["name", "model", "connected", "leader", "cid", "sid", "index"]}]),
            ),
        ]),
    );
}

#[test]
fn locks_of_two_connections() {
    let dir = tempfile::tempdir().unwrap();
    let r = |c: usize, m: &str, p: Value| Step(c, json!({"id": 1, "method": m, "params": p}));
    converse(
        dir.path(),
        &[
            r(0, "lock", json!(["a"])),
            r(1, "lock", json!(["a"])),
            r(1, "steal", json!(["a"])),
            r(0, "unlock", json!(["a"])),
            r(0, "steal", json!(["a"])),
            r(1, "transact", json!(["T", {"op": "assert", "lock": "a"}])),
            r(0, "transact", json!(["T", {"op": "assert", "lock": "a"}])),
            r(0, "unlock", json!(["a"])),
            r(1, "unlock", json!(["a"])),
            r(1, "unlock", json!(["a"])),
        ],
    );
}

#[test]
fn monitors_and_their_updates() {
    let dir = tempfile::tempdir().unwrap();
    let mut steps = requests(&[
        (
            "transact",
            json!(["T",
            {"op": "insert", "table": "Kid", "row": {"k": 1}, "uuid-name": "k"},
            {"op": "insert", "table": "Root", "row": {"name": "p", "kids": ["named-uuid", "k"], "weak": ["named-uuid", "k"]}},
            {"op": "insert", "table": "Root", "row": {"name": "z", "m": ["map", [["a", "b"]]]}}]),
        ),
        ("monitor", json!([])),
        ("monitor", json!(["Zed", "m1", {}])),
        ("monitor", json!(["T", "m1", 5])),
        ("monitor", json!(["T", "m1", {"Nope": {}}])),
        ("monitor", json!(["T", "m1", {"Root": 5}])),
        ("monitor", json!(["T", "m1", {"Root": [{"columns": ["name", "name"]}]}])),
        ("monitor", json!(["T", "m1", {"Root": [{"columns": ["zip"]}]}])),
        ("monitor", json!(["T", "m1", {"Root": {"columns": ["name"], "foo": 1}}])),
        ("monitor", json!(["T", "m1", {"Root": {"columns": ["name"], "select": {"foo": 1}}}])),
        ("monitor", json!(["T", "m1", {"Root": {"columns": ["name"], "where": []}}])),
        ("monitor", json!(["T", "m1", {"Root": [{"columns": ["name"]}, {"columns": ["name"]}]}])),
        ("monitor", json!(["T", "m2", {"Root": {"columns": ["name", "kids"]}}])),
        ("monitor", json!(["T", "m2", {"Root": {"columns": ["name"]}}])),
        ("monitor", json!(["T", null, {"Kid": {"columns": ["k"], "select": {"initial": false}}}])),
        (
            "monitor",
            json!(["T", "sel", {"Root": [{"columns": ["name"], "select": {"delete": false}}, {"columns": ["m"], "select": {"insert": false, "initial": false}}]}]),
        ),
        ("monitor", json!(["T", {"a": 1}, {}])),
        ("monitor", json!(["T", "none", {"Root": {"columns": []}}])),
        ("monitor_cond", json!(["T", "none2", {"Root": [{"columns": []}]}])),
        ("monitor", json!(["T", "empty", {"Root": []}])),
        ("monitor_cond", json!(["T", "c1", {"Root": [{"columns": ["name", "m"], "where": [["name", "==", "z"]]}]}])),
        ("monitor_cond", json!(["T", "c2", {"Root": [{"columns": ["name"], "where": [["zip", "==", "z"]]}]}])),
        ("monitor_cond", json!(["T", "c2", {"Root": [{"columns": ["name"], "where": 5}]}])),
        ("monitor_cond", json!(["T", "c3", {"Root": [{"columns": ["name"], "where": [true]}], "Kid": [{}]}])),
        (
            "monitor_cond",
            json!(["T", "c4", {"Root": [{"columns": ["name", "r"], "where": [["name", "==", "p"], ["name", "==", "z"]]}]}]),
        ),
        ("monitor_cond_since", json!(["T", "s1", {"Root": [{"columns": ["name"]}]}, NIL])),
        ("monitor_cond_since", json!(["T", "s2", {"Root": [{"columns": ["name"]}]}])),
        ("monitor_cond_since", json!(["T", "s2", {"Root": [{"columns": ["name"]}]}, null])),
        ("monitor_cond_since", json!(["T", "s3", {"Root": [{"columns": ["name"]}]}, "bogus"])),
        ("monitor_cond_change", json!(["c1", "c1", {"Root": [{"where": [["name", "==", "p"]]}]}])),
        ("monitor_cond_change", json!(["zz", "zz", {}])),
        ("monitor_cond_change", json!(["c1", "c1b", {"Root": [{"where": [false]}]}])),
        ("monitor_cond_change", json!(["c1b", "c1", {"Root": [{"where": []}]}])),
        ("monitor_cond_change", json!(["c1", "c1", {"Kid": [{"where": []}]}])),
        ("monitor_cond_change", json!(["c1"])),
        ("monitor_cond_change", json!(["c1", "c1", {"Root": 5}])),
        ("monitor_cond_change", json!(["c1", "c1", {"Root": {"where": []}}])),
        ("monitor_cond_change", json!(["c1", "c1", {"Root": [{"foo": []}]}])),
    ]);
    let t = |conn: usize, ops: Value| {
        let mut params = vec![json!("T")];
        params.extend(ops.as_array().unwrap().iter().cloned());
        Step(conn, json!({"id": "t", "method": "transact", "params": params}))
    };
    let p = json!([["name", "==", "p"]]);
    steps.extend([
        t(1, json!([{"op": "mutate", "table": "Root", "where": p, "mutations": [["m", "insert", ["map", [["x", "y"], ["z", "w"]]]]]},
            {"op": "insert", "table": "Root", "row": {"name": "new"}}])),
        t(1, json!([{"op": "update", "table": "Root", "where": p, "row": {"m": ["map", [["x", "Y"], ["q", "w"]]], "ints": ["set", [1, 2]]}},
            {"op": "delete", "table": "Root", "where": [["name", "==", "new"]]}])),
        t(0, json!([{"op": "insert", "table": "Root", "row": {"name": "own"}}])),
        t(0, json!([{"op": "update", "table": "Root", "where": [["name", "==", "own"]], "row": {"name": "z2"}}])),
        t(0, json!([{"op": "update", "table": "Root", "where": p, "row": {"kids": ["set", []]}}])),
        t(0, json!([{"op": "update", "table": "Root", "where": p, "row": {"r": 1.5, "name": "p2"}}])),
        t(0, json!([{"op": "delete", "table": "Root", "where": []}])),
    ]);
    for (i, params) in
        [json!(["c4"]), json!(["c4"]), json!([null]), json!([]), json!(["c1", "x"])].into_iter().enumerate()
    {
        steps.push(Step(0, json!({"id": i, "method": "monitor_cancel", "params": params})));
    }
    steps.push(t(1, json!([{"op": "insert", "table": "Root", "row": {"name": "last"}}])));
    converse(dir.path(), &steps);
}

#[test]
fn waits_park_until_a_commit_satisfies_them() {
    let dir = tempfile::tempdir().unwrap();
    let wait = |conn, id: &str, rows: Value, extra: Value| {
        let mut op =
            json!({"op": "wait", "table": "Root", "where": [], "columns": ["name"], "until": "==", "rows": rows});
        op.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap_or_default());
        Step(
            conn,
            json!({"id": id, "method": "transact", "params": ["T", op, {"op": "insert", "table": "Root", "row": {"name": id}}]}),
        )
    };
    converse(
        dir.path(),
        &[
            wait(0, "w1", json!([{"name": "a"}]), json!({})),
            wait(0, "w1", json!([]), json!({})),
            wait(0, "w2", json!([{"name": "a"}]), json!({})),
            wait(1, "w3", json!([{"name": "a"}, {"name": "w2"}]), json!({"timeout": 30_000})),
            Step(
                1,
                json!({"id": 1, "method": "transact", "params": ["T", {"op": "insert", "table": "Root", "row": {"name": "a"}}]}),
            ),
            Step(
                1,
                json!({"id": 1, "method": "transact", "params": ["T", {"op": "select", "table": "Root", "where": [], "columns": ["name"]}]}),
            ),
            wait(0, "w4", json!([]), json!({"timeout": 0})),
        ],
    );
}

/// Where we mean to differ.
#[test]
fn what_the_reference_does_not_survive() {
    let mut s = Server::new(vec![(Database::new(Arc::new(Schema::parse(ZOO).unwrap())), None)]);
    let c = s.connection_opened();
    let now = Now { mono: Nanos::from_secs(1), wall: Nanos::from_secs(1) };
    // It crashes on a monitor without requests.
    s.handle(c, json!({"id": 1, "method": "monitor", "params": ["T", "m1"]}), now);
    assert_eq!(s.take_outgoing(c)[0]["error"]["details"], "invalid parameters");
    // It forgets to answer some cancelled transactions.
    let op = json!({"op": "wait", "table": "Root", "where": [], "until": "!=", "rows": []});
    s.handle(c, json!({"id": "w", "method": "transact", "params": ["T", op]}), now);
    assert!(s.take_outgoing(c).is_empty());
    s.handle(c, json!({"id": null, "method": "cancel", "params": ["w"]}), now);
    assert_eq!(s.take_outgoing(c), [json!({"id": "w", "error": "canceled"})]);
    // Its time is up.
    let op = json!({"op": "wait", "table": "Root", "where": [], "until": "!=", "rows": [], "timeout": 50});
    s.handle(c, json!({"id": "w", "method": "transact", "params": ["T", op]}), now);
    let at = s.next_deadline().unwrap();
    assert_eq!(at, now.mono + Nanos::from_ms(50));
    s.turn(now);
    assert!(s.take_outgoing(c).is_empty());
    s.turn(Now { mono: at, ..now });
    assert_eq!(s.take_outgoing(c)[0]["result"][0]["details"], "\"wait\" timed out after 50 ms");
    assert_eq!(s.next_deadline(), None);
    // A client that has seen everything is told so.
    s.handle(c, json!({"id": 1, "method": "monitor_cond_since", "params": ["T", "a", {"Root": [{}]}, NIL]}), now);
    let last = s.take_outgoing(c)[0]["result"][1].clone();
    let insert = |n: &str| json!({"id": 2, "method": "transact", "params": ["T", {"op": "insert", "table": "Root", "row": {"name": n}}]});
    s.handle(c, insert("x"), now);
    let update = s.take_outgoing(c).remove(0);
    assert_eq!(update["method"], "update3");
    let d = s.connection_opened();
    for (since, found, rows) in [(&last, true, 1), (&update["params"][1], true, 0), (&json!(NIL), false, 1)] {
        s.handle(
            d,
            json!({"id": 1, "method": "monitor_cond_since", "params": ["T", since, {"Root": [{}]}, since]}),
            now,
        );
        let r = s.take_outgoing(d)[0]["result"].clone();
        let n = r[2]["Root"].as_object().map_or(0, |o| o.len());
        assert_eq!((&r[0], n), (&json!(found), rows), "{r}");
    }
    // Beyond the remembered commits everything is sent again.
    for i in 0..fv_ovsdb_db::server::MAX_HISTORY + 1 {
        s.handle(c, insert(&format!("n{i}")), now);
        s.take_outgoing(c);
        s.take_outgoing(d);
    }
    s.handle(d, json!({"id": 1, "method": "monitor_cond_since", "params": ["T", "z", {"Root": [{}]}, last]}), now);
    assert_eq!(s.take_outgoing(d)[0]["result"][0], false);
}

#[test]
fn peers_that_break_the_protocol_are_closed_and_no_others() {
    let mut s = Server::new(vec![(Database::new(Arc::new(Schema::parse(ZOO).unwrap())), None)]);
    let now = Now { mono: Nanos::from_secs(1), wall: Nanos::from_secs(1) };
    let good = s.connection_opened();
    for (message, closed) in [
        (json!({"method": "list_dbs", "params": [], "id": null}), false),
        (json!({"method": "cancel", "params": ["x"], "id": null}), false),
        (json!({"method": "list_dbs", "params": [], "id": 7, "error": null, "result": null}), false),
        (json!({"method": "list_dbs", "id": 1}), true),
        (json!({"method": "list_dbs", "params": {}, "id": 1}), true),
        (json!({"method": 5, "params": [], "id": 1}), true),
        (json!({"id": 1, "result": {}, "error": null}), true),
        (json!({"method": "list_dbs", "params": [], "id": 1, "x": 2}), true),
        (json!([1, 2]), true),
        (json!(null), true),
    ] {
        let c = s.connection_opened();
        s.handle(c, message.clone(), now);
        assert_eq!(s.close_reason(c).is_some(), closed, "{message}");
        s.connection_closed(c);
    }
    // One that never reads.
    s.handle(good, json!({"id": 1, "method": "monitor", "params": ["T", "m", {"Root": {}}]}), now);
    let writer = s.connection_opened();
    let n = 1000;
    for i in 0..n {
        let op = json!({"op": "insert", "table": "Root", "row": {"name": i.to_string()}});
        s.handle(writer, json!({"id": 1, "method": "transact", "params": ["T", op]}), now);
        s.take_outgoing(writer);
    }
    assert!(s.close_reason(good).is_none() && s.close_reason(writer).is_none());
    let updates = s.take_outgoing(good);
    assert!(updates.len() < 50, "changes are merged: {}", updates.len());
    let rows = |u: &Value| u["params"][1]["Root"].as_object().map_or(0, |t| t.len());
    assert_eq!(updates.iter().map(rows).sum::<usize>(), n, "and none is lost");
}

/// A journal that has no room left.
struct Full;

impl fv_ovsdb_db::server::Journal for Full {
    fn append(&mut self, _: &Database, _: &fv_ovsdb::Commit, _: u64) -> Result<(), String> {
        Err("No space left on device".into())
    }
}

#[test]
fn a_full_disk_refuses_the_transaction_and_serves_on() {
    let db = Database::new(Arc::new(Schema::parse(ZOO).unwrap()));
    let mut s = Server::new(vec![(db, Some(Box::new(Full)))]);
    let now = Now { mono: Nanos::from_secs(1), wall: Nanos::from_secs(1) };
    let c = s.connection_opened();
    let op = json!({"op": "insert", "table": "Root", "row": {"name": "x"}});
    s.handle(c, json!({"id": 1, "method": "transact", "params": ["T", op]}), now);
    let r = s.take_outgoing(c).remove(0);
    assert_eq!(r["result"][1]["error"], "I/O error");
    s.handle(
        c,
        json!({"id": 1, "method": "transact", "params": ["T", {"op": "select", "table": "Root", "where": []}]}),
        now,
    );
    assert_eq!(s.take_outgoing(c)[0]["result"][0]["rows"], json!([]));
}
