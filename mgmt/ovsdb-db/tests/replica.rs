//! Random writes through the server: every replica, and the file's replay, equal the database.

use fv_core::Nanos;
use fv_ovsdb::{Database, Schema};
use fv_ovsdb_db::client::{Client, Config};
use fv_ovsdb_db::log::LogFile;
use fv_ovsdb_db::server::{ConnId, Now, Server};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

const NOW: Now = Now { mono: Nanos::from_secs(100), wall: Nanos::from_secs(100) };

fn zoo() -> Arc<Schema> {
    Arc::new(Schema::parse(include_str!("../../../wire/ovsdb/tests/zoo.ovsschema")).unwrap())
}

/// A client in this process; `refuse` names monitor methods that its server pretends not to know.
struct Replica {
    client: Client,
    conn: ConnId,
    refuse: &'static [&'static str],
}

impl Replica {
    fn new(server: &mut Server, refuse: &'static [&'static str]) -> Replica {
        let schema = zoo();
        let config = Config { database: "T".into(), schema, tables: Vec::new(), quiet: &[], lock: None };
        let mut client = Client::new(config);
        client.connected();
        Replica { client, conn: server.connection_opened(), refuse }
    }

    fn reconnect(&mut self, server: &mut Server) {
        server.connection_closed(self.conn);
        self.client.disconnected();
        self.conn = server.connection_opened();
        self.client.connected();
    }

    fn exchange(&mut self, server: &mut Server) {
        loop {
            let out = self.client.take_outgoing();
            let mut replies = Vec::new();
            for m in &out {
                if self.refuse.iter().any(|r| m["method"] == *r) {
                    replies.push(json!({"id": m["id"], "error": "unknown method"}));
                } else {
                    server.handle(self.conn, m.clone(), NOW);
                }
            }
            replies.extend(server.take_outgoing(self.conn));
            if out.is_empty() && replies.is_empty() {
                return;
            }
            for m in replies {
                self.client.handle(m).unwrap();
            }
        }
    }

    fn check(&self, db: &Database) {
        assert!(self.client.is_synced());
        for (t, ts) in db.schema().tables.iter().enumerate() {
            assert_eq!(self.client.row_count(&ts.name), db.row_count(t));
            for (u, row) in db.rows(t) {
                let r = self.client.row(&ts.name, u).expect("the row");
                for (c, d) in ts.columns.iter().zip(row.iter()).skip(2) {
                    assert_eq!(r.datum(&c.name), d, "{} {}", ts.name, c.name);
                }
            }
        }
    }
}

fn op() -> impl Strategy<Value = Value> {
    let name = 0..4u8;
    let ints = proptest::collection::btree_set(0..5i64, 0..4);
    let map = proptest::collection::btree_map("[a-c]", "[xy]", 0..3);
    let set_json = |s: &std::collections::BTreeSet<i64>| json!(["set", s.iter().collect::<Vec<_>>()]);
    let map_json = |m: &std::collections::BTreeMap<String, String>| json!(["map", m.iter().collect::<Vec<_>>()]);
    let by_name = |n: u8| json!([["name", "==", n.to_string()]]);
    prop_oneof![
        (name.clone(), ints.clone(), map.clone()).prop_map(move |(n, i, m)| json!({"op": "insert", "table": "Root",
            "row": {"name": n.to_string(), "ints": set_json(&i), "m": map_json(&m), "kids": ["named-uuid", "k"], "eph": n}})),
        (name.clone(), ints.clone(), map.clone()).prop_map(move |(n, i, m)| json!({"op": "update", "table": "Root",
            "where": by_name(n), "row": {"ints": set_json(&i), "m": map_json(&m), "r": n, "one": ["set", []]}})),
        (name.clone(), ints).prop_map(move |(n, i)| json!({"op": "mutate", "table": "Root", "where": by_name(n),
            "mutations": [["ints", "insert", set_json(&i)], ["eph", "+=", 1]]})),
        (name.clone(), map).prop_map(move |(n, m)| json!({"op": "mutate", "table": "Root", "where": by_name(n),
            "mutations": [["m", "insert", map_json(&m)], ["m", "delete", ["set", ["a"]]], ["b", "delete", true]]})),
        (name.clone(), any::<bool>()).prop_map(move |(n, b)| json!({"op": "update", "table": "Root",
            "where": by_name(n), "row": {"b": b, "name": (n + 1).to_string()}})),
        name.prop_map(move |n| json!({"op": "delete", "table": "Root", "where": by_name(n)})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replicas_and_the_file_equal_the_database(
        steps in proptest::collection::vec((proptest::collection::vec(op(), 1..3), 0..8u8), 1..40)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.db");
        let (log, db) = LogFile::open(&path, &zoo(), 1).unwrap();
        let mut server = Server::new(vec![(db, Some(Box::new(log)))]);
        let writer = server.connection_opened();
        let mut replicas: [Replica; 3] = [
            Replica::new(&mut server, &[]),
            Replica::new(&mut server, &["monitor_cond_since"]),
            Replica::new(&mut server, &["monitor_cond_since", "monitor_cond"]),
        ];
        for (ops, event) in steps {
            let mut params = vec![json!("T"), json!({"op": "insert", "table": "Kid", "row": {"k": 1}, "uuid-name": "k"})];
            params.extend(ops);
            server.handle(writer, json!({"id": 1, "method": "transact", "params": params}), NOW);
            server.take_outgoing(writer);
            match event {
                // Away for a while: what it misses comes when it is back.
                0..=2 => replicas[event as usize].reconnect(&mut server),
                3 => server.compact(None, NOW).unwrap(),
                4 => continue,
                _ => {}
            }
            for r in &mut replicas {
                r.exchange(&mut server);
                r.check(server.database("T").unwrap());
            }
        }
        let rows = |db: &Database, t: usize| -> Vec<Value> {
            let ts = &db.schema().tables[t];
            let kept: Vec<usize> = (0..ts.columns.len()).filter(|c| !ts.columns[*c].ephemeral).collect();
            db.rows(t).map(|(_, r)| fv_ovsdb::exec::row_to_json(ts, r, &kept)).collect()
        };
        let before: Vec<_> = (0..3).map(|t| rows(server.database("T").unwrap(), t)).collect();
        drop(server);
        let (_log, db) = LogFile::open(&path, &zoo(), 1).unwrap();
        prop_assert_eq!((0..3).map(|t| rows(&db, t)).collect::<Vec<_>>(), before);
    }
}
