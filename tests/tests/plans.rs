//! No query reads a ledger from end to end: what one grant, one carve, one look-up costs does not grow with them.
//!
//! Every statement of the sql rooms is taken from the source and planned by the engine itself, SQLite and PostgreSQL,
//! on the shipped schema; PostgreSQL with rows and statistics, since its planner goes by them. A statement that has to
//! read everything is listed with the reason.

#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tests::postgres::Postgres;

/// Tables that grow with what was given out.
const LEDGERS: &[&str] = &["grants", "blocks", "segments", "marks", "audit"];

/// The index of what is not used up holds as many rows as there are holdings with something left.
const LEFT: &str = "_left";

/// Beginnings of statements that may read all there is, and why.
const ALLOWED: &[(&str, &str)] = &[
    ("UPDATE grants SET state = 'burned'", "once per epoch: all that the region ever held"),
    ("UPDATE blocks SET state = 'burned'", "once per epoch: all that the region ever held"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The string literals of a file, each with the code right before it; lines that are comments do not count.
fn literals(text: &str) -> Vec<(String, String)> {
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).map(|l| format!("{l}\n")).collect();
    let (mut found, mut before, mut rest) = (Vec::new(), String::new(), code.chars().peekable());
    while let Some(c) = rest.next() {
        if c != '"' {
            before.push(c);
            continue;
        }
        let mut literal = String::new();
        while let Some(c) = rest.next() {
            match c {
                '"' => break,
                '\\' if rest.peek() == Some(&'\n') => while rest.next_if(|c| c.is_whitespace()).is_some() {},
                '\\' => literal.extend(rest.next()),
                c => literal.push(c),
            }
        }
        found.push((std::mem::take(&mut before), literal));
    }
    found
}

fn is_statement(text: &str) -> bool {
    ["SELECT ", "UPDATE ", "DELETE ", "INSERT ", "WITH "].iter().any(|word| text.starts_with(word))
}

/// Every statement of some files, as it is sent.
fn statements(files: &[PathBuf]) -> BTreeSet<String> {
    let (mut heads, mut all) = (BTreeMap::new(), BTreeSet::new());
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        let mut defining = None;
        for (before, literal) in literals(&text) {
            let before = before.trim_end();
            if let Some((_, rest)) = before.rsplit_once("macro_rules! ") {
                defining = rest.split_whitespace().next().map(str::to_owned);
            }
            let called = before
                .strip_suffix("!(")
                .and_then(|code| code.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next());
            match called {
                Some("concat") => {
                    heads.insert(defining.clone().unwrap(), literal);
                }
                Some(name) if heads.contains_key(name) => {
                    all.insert(format!("{}{literal}", heads[name]));
                }
                _ if is_statement(&literal) => {
                    all.insert(literal);
                }
                _ => {}
            }
        }
    }
    all.into_iter().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

fn rooms(folder: &str) -> Vec<PathBuf> {
    let mut files = vec![root().join("shared/ledger/src/sql.rs"), root().join("shared/ledger/src/sql/roster.rs")];
    let own = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    files.extend(own.filter(|path| path.extension().is_some_and(|e| e == "rs")));
    files.sort();
    files
}

/// Both programs: where their statements are, and their schema.
fn programs() -> [(&'static str, BTreeSet<String>, Vec<&'static str>); 2] {
    let schema =
        |list: &[cadastre_runtime::db::Migration]| list.iter().flat_map(|(_, _, sql)| sql.iter().copied()).collect();
    [
        ("authority", statements(&rooms("global-authority/src/sql")), schema(global_authority::sql::MIGRATIONS)),
        ("region", statements(&rooms("region-agent/src/sql")), schema(region_agent::sql::MIGRATIONS)),
    ]
}

/// Of rows that are put together when it is sent: it reads nothing.
fn is_open(sql: &str) -> bool {
    sql.starts_with("INSERT ") && sql.ends_with("VALUES")
}

fn is_allowed(sql: &str) -> bool {
    is_open(sql) || ALLOWED.iter().any(|(begin, _)| sql.starts_with(begin))
}

/// SQLite is never sent it.
fn is_of_servers(sql: &str) -> bool {
    sql.contains(" LATERAL ")
}

/// The ledgers that a statement names, and what it calls them.
fn ledgers(sql: &str) -> BTreeSet<String> {
    let words: Vec<&str> = sql.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).collect();
    let names = words.windows(2).filter(|pair| LEDGERS.contains(&pair[0]));
    names.flat_map(|pair| [pair[0].to_owned(), pair[1].to_owned()]).collect()
}

/// What SQLite would do that reads a whole ledger, or sorts what it read of one.
fn sqlite_faults(db: &rusqlite::Connection, sql: &str) -> Vec<String> {
    let mut explain = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let rows = explain.raw_query();
    let steps: Vec<String> = rows.mapped(|row| row.get::<_, String>(3)).map(Result::unwrap).collect();
    let names = ledgers(sql);
    let scans = |step: &String| {
        let mut words = step.split_whitespace();
        words.next() == Some("SCAN") && words.next().is_some_and(|t| names.contains(t)) && !step.contains(LEFT)
    };
    let left = steps.iter().any(|step| step.contains(LEFT));
    let sorts = |step: &String| step.contains("TEMP B-TREE") && !names.is_empty() && !left;
    steps.iter().filter(|step| scans(step) || sorts(step)).cloned().collect()
}

#[test]
fn sqlite_finds_its_way_by_an_index_in_every_statement() {
    let mut faults = Vec::new();
    for (program, statements, schema) in programs() {
        assert!(statements.len() > 30, "{program}: the statements are found: {}", statements.len());
        let db = rusqlite::Connection::open_in_memory().unwrap();
        schema.iter().for_each(|sql| db.execute_batch(sql).unwrap());
        for sql in statements.iter().filter(|sql| !is_allowed(sql) && !is_of_servers(sql)) {
            faults.extend(sqlite_faults(&db, sql).iter().map(|fault| format!("{program}: {sql}\n    {fault}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Reads every grant there is.
const SCANS: &str = "SELECT namespace, MAX(hi) FROM grants GROUP BY namespace";

/// A statement that scans is found, and without its index the look-up of an origin does.
#[test]
fn a_scan_is_noticed() {
    let (_, statements, schema) = programs().into_iter().next().unwrap();
    let db = rusqlite::Connection::open_in_memory().unwrap();
    schema.iter().for_each(|sql| db.execute_batch(sql).unwrap());
    let origin = |sql: &&String| sql.ends_with("WHERE namespace = $1 AND lo < $2 ORDER BY lo DESC LIMIT 1");
    let origin = statements.iter().find(origin).unwrap();
    assert_eq!(sqlite_faults(&db, origin), Vec::<String>::new());
    assert!(!sqlite_faults(&db, SCANS).is_empty());
    db.execute_batch("DROP INDEX grants_place; DROP INDEX grants_region").unwrap();
    assert!(!sqlite_faults(&db, origin).is_empty());
}

/// What PostgreSQL would do that reads a whole ledger.
fn postgres_faults(server: &Postgres, database: &str, sql: &str) -> Vec<String> {
    let most = (1..20).rev().find(|n| sql.contains(&format!("${n}"))).unwrap_or(0);
    let nothing = if most == 0 { String::new() } else { format!("({})", vec!["NULL"; most].join(", ")) };
    let explain = format!(
        "SET plan_cache_mode = force_generic_plan; PREPARE it AS {sql}; EXPLAIN (COSTS OFF) EXECUTE it{nothing}"
    );
    let plan = server.try_psql(database, &explain).unwrap_or_else(|e| panic!("{sql}: {e}"));
    let lines: Vec<&str> = plan.lines().map(str::trim).collect();
    let names = ledgers(sql);
    let mut faults = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let of = line.split(" on ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
        let by_index = lines.get(at + 1).is_some_and(|next| next.starts_with("Index Cond"));
        let whole = line.contains("Seq Scan") || (line.contains("Index") && line.contains("Scan") && !by_index);
        if names.contains(of) && whole && !line.contains(LEFT) && !line.contains("Bitmap Heap") {
            faults.push((*line).to_owned());
        }
    }
    faults
}

/// Rows for each ledger: 40,000 in 20 namespaces, of which hardly any is left.
const ROWS: &str = "
    INSERT INTO marks SELECT md5(i::text), 'ns/n' || i % 20, 1, i, i, 'grant', i FROM generate_series(1, 40000) i;
    INSERT INTO audit SELECT md5(i::text), i, 'w', 'x', 'y' FROM generate_series(1, 40000) i;";
const AUTHORITY_ROWS: &str = "
    INSERT INTO grants SELECT md5(i::text), 'n' || i % 20, md5('a' || i), 'r' || i % 3, i % 3, 1, 's', 10, i * 10, i * 10 + 10, 1,
        md5('m' || i), 1, i FROM generate_series(1, 40000) i;";
const REGION_ROWS: &str = "
    INSERT INTO grants SELECT md5(i::text), 'n' || i % 20, i * 10, i * 10 + 10, i * 10 + CASE WHEN i > 39960 THEN 5 ELSE 10 END,
        1, 1, md5('a' || i), 'held', i, md5('m' || i) FROM generate_series(1, 40000) i;
    INSERT INTO blocks SELECT md5(i::text), 'n' || i % 20, 's' || i % 3, md5(i::text), i * 10, i * 10 + 10,
        i * 10 + CASE WHEN i > 39960 THEN 5 ELSE 10 END, 1, 'held', i FROM generate_series(1, 40000) i;
    INSERT INTO segments SELECT md5(i::text), 'n' || i % 20, md5('g' || i), NULL, i * 10, i * 10 + 10, 's', 'i', 'p', md5('a' || i),
        10, 1, i, 'open', md5('m' || i) FROM generate_series(1, 40000) i;";

#[test]
fn postgres_finds_its_way_by_an_index_in_every_statement() {
    let server = Postgres::shared();
    let mut faults = Vec::new();
    for (program, statements, schema) in programs() {
        let database = server.fresh_database().rsplit('/').next().unwrap().to_owned();
        let own = if program == "authority" { AUTHORITY_ROWS } else { REGION_ROWS };
        server.psql_in(&database, &format!("{};{ROWS}{own} ANALYZE", schema.join(";")));
        assert!(!postgres_faults(server, &database, SCANS).is_empty(), "{program}: a scan is noticed");
        for sql in statements.iter().filter(|sql| !is_allowed(sql)) {
            faults.extend(postgres_faults(server, &database, sql).iter().map(|f| format!("{program}: {sql}\n    {f}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
