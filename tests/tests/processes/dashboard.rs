//! The dashboard in a real Chromium: what is shown is what the API said, through a cut, a death, a quarantine and an
//! operator's hand; by keyboard, on a phone, in the dark; and nothing on the console.

use serde_json::{Value, json};
use std::time::Duration;
use tests::browser::{Browser, keys};
use tests::cluster::{Cluster, fixed};
use tests::http;
use tests::ledger_of_ids::Exposed;
use tests::load::{Load, Plan};
use tests::scratch::Scratch;

use crate::help::{copy_folder, put_back, quick, until};
use global_authority::service::words::lasting;

/// The page, signed in with a token by keyboard alone: the field has the focus from the start.
async fn signed_in(cluster: &Cluster, token: &str) -> Browser {
    let browser = Browser::start().await;
    browser.open(&format!("{}/", cluster.url)).await;
    until("the token's field has the focus", async || browser.js("return document.activeElement.id").await == "token")
        .await;
    browser.keys(token).await;
    browser.keys(keys::ENTER).await;
    until("the verdict is shown", async || !browser.text(".hero h1").await.is_empty()).await;
    browser
}

async fn go(browser: &Browser, to: &str, css: &str) {
    browser.js(&format!("location.hash = {};", json!(to))).await;
    let there = format!("return document.querySelector({}) !== null;", json!(css));
    until(&format!("{to} is shown"), async || browser.js(&there).await == true).await;
}

/// In the page: what was drawn, and the answers that it was drawn from, at one moment.
async fn shown_and_said(browser: &Browser, shown: &str, path: &str) -> (Value, Value) {
    let both = browser.js(&format!("return [{shown}, window.__said[{}] ?? null];", json!(path))).await;
    (both[0].clone(), both[1].clone())
}

/// A runway as the page writes it.
fn runway(seconds: &Value) -> String {
    seconds.as_u64().map_or_else(|| "idle".to_owned(), lasting)
}

/// The first view: the worst finding in front, and which region runs dry first.
async fn now_is_truthful(browser: &Browser) {
    let shown = "[document.querySelector('.hero h1').innerText, document.querySelector('#first-dry').innerText,
        Object.fromEntries([...document.querySelectorAll('.tile')].map(t => [t.querySelector('.name').firstChild.data,
            t.querySelector('.lasts').innerText]))]";
    until("the first view shows what the API said", async || {
        let (shown, said) = shown_and_said(browser, shown, "/v1/overview").await;
        let headline = said["findings"][0]["text"].as_str().unwrap_or("All is well.");
        let first = &said["first_dry"];
        let dry = match first {
            Value::Null => "Nothing is being issued, so nothing runs dry.".to_owned(),
            first => format!(
                "If every region were cut off now, {} would run dry first: {} in {}.",
                first["region"].as_str().unwrap(),
                first["namespace"].as_str().unwrap(),
                runway(&first["seconds"])
            ),
        };
        let regions = said["regions"].as_array().unwrap();
        let tiles = regions.iter().all(|r| {
            let name = r["region"].as_str().unwrap();
            shown[2][name] == runway(&r["first_dry"]["seconds"])
        });
        shown[0] == headline && shown[1] == dry && tiles && shown[2].as_object().unwrap().len() == regions.len()
    })
    .await;
}

/// The matrix: every cell.
async fn matrix_is_truthful(browser: &Browser) {
    let path = "/v1/overview/namespaces?offset=0&limit=25";
    let shown = "[...document.querySelectorAll('.matrix tbody tr')].map(row => [row.querySelector('th').innerText,
        Object.fromEntries([...row.querySelectorAll('td')].filter(td => td.querySelector('.cell')).map(td =>
            [td.getAttribute('data-label'), [td.querySelector('.cell').dataset.level, td.querySelector('.word').innerText]]))])";
    until("the matrix shows what the API said", async || {
        let (shown, said) = shown_and_said(browser, shown, path).await;
        let rows = said["namespaces"].as_array().cloned().unwrap_or_default();
        !rows.is_empty()
            && rows.iter().zip(shown.as_array().unwrap()).all(|(row, drawn)| {
                let cells = row["regions"].as_array().unwrap();
                drawn[0] == row["name"]
                    && cells.iter().all(|cell| {
                        let drawn = &drawn[1][cell["region"].as_str().unwrap()];
                        let word = drawn[1].as_str().unwrap_or_default();
                        let wanted = match (&cell["why"], &cell["runway_seconds"]) {
                            (Value::String(why), Value::Null) => why.replace('_', " "),
                            (_, seconds) => runway(seconds),
                        };
                        drawn[0] == cell["level"] && word.contains(&wanted)
                    })
            })
    })
    .await;
}

/// What services use of their limits: every row.
async fn uses_are_truthful(browser: &Browser) {
    let shown = "[...document.querySelectorAll('[data-key=uses] tbody tr')].map(row =>
        [row.querySelector('th').innerText, ...[...row.querySelectorAll('td')].map(td => td.innerText)])";
    until("the use of limits shows what the API said", async || {
        let (shown, said) = shown_and_said(browser, shown, "/v1/services/use").await;
        let rows = said["uses"].as_array().cloned().unwrap_or_default();
        let drawn = shown.as_array().cloned().unwrap_or_default();
        rows.len() == 2
            && drawn.len() == 2
            && rows.iter().zip(&drawn).all(|(row, drawn)| {
                let share = (row["share"].as_f64().unwrap() * 100.0).round();
                let used = drawn[2].as_str().unwrap_or_default();
                drawn[0] == row["service"]
                    && drawn[1] == row["region"]
                    && used.contains(&format!("{share} % of {}", row["nearest"].as_str().unwrap()))
                    && drawn[5] == "no limit"
            })
    })
    .await;
}

fn builder() -> tests::cluster::Builder {
    quick()
        .limits(json!({"ids_per_second": 1_000_000, "in_flight": 1_000}))
        .region("eu")
        .region("us")
        .namespace_with("orders", fixed(100_000, 1_000))
        .namespace("invoices")
        .define(json!({"name": "events", "kind": "snowflake"}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_shown_is_what_the_api_says_through_a_cut_and_a_death() {
    let cluster = builder().start().await;
    let exposed = std::sync::Arc::new(Exposed::new());
    let load = Load::start(Plan::of(&cluster, "eu", "orders").tasks(1).pause(Duration::from_millis(100)), exposed);
    let browser = signed_in(&cluster, &cluster.operator_token).await;
    until("eu issues, by the page", async || browser.text("#first-dry").await.contains("would run dry first")).await;
    now_is_truthful(&browser).await;
    browser.picture("now").await;
    for (to, css) in VIEWS {
        go(&browser, to, css).await;
    }
    go(&browser, "#/services", "[data-key=uses] .badge").await;
    uses_are_truthful(&browser).await;
    browser.picture("services").await;
    go(&browser, "#/headroom", ".matrix .cell").await;
    matrix_is_truthful(&browser).await;
    browser.picture("headroom").await;
    go(&browser, "#/namespace/orders", ".number-line").await;
    browser.picture("namespace").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new(), "nothing on the console");

    cluster.region("eu").link.cut();
    go(&browser, "#/now", ".hero").await;
    until("the silence of eu is the headline", async || {
        browser.text(".hero h1").await.starts_with("Region eu has been silent")
    })
    .await;
    now_is_truthful(&browser).await;
    assert!(browser.js("return document.title").await.as_str().unwrap().starts_with('▲'));
    assert!(browser.text("#live").await.contains("Region eu has been silent"), "a screen reader is told");
    browser.picture("cut").await;
    go(&browser, "#/headroom", ".matrix .cell").await;
    matrix_is_truthful(&browser).await;
    cluster.region("eu").link.heal();
    go(&browser, "#/now", ".hero").await;
    until("all is well again", async || browser.text(".hero h1").await == "All is well.").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new(), "nothing on the console");

    cluster.authority.kill9();
    until("the page says that nobody answers", async || browser.text("#trouble").await.contains("does not answer"))
        .await;
    assert_eq!(browser.js("return document.querySelector('#view').className").await, "stale");
    assert!(!browser.text(".hero h1").await.is_empty(), "what was last known stays");
    browser.picture("not-reached").await;
    cluster.restart_authority().await;
    until("it goes on by itself", async || browser.text("#trouble").await.is_empty()).await;
    let lost = browser.complaints().await;
    assert!(lost.iter().all(|line| line.contains("net::ERR_")), "only that nobody answered: {lost:?}");
    load.stop().await;
}

/// Every view, and something that is there once it is drawn.
const VIEWS: &[(&str, &str)] = &[
    ("#/headroom", ".matrix .cell"),
    ("#/namespace/orders", ".number-line"),
    ("#/namespace/events", ".number-line"),
    ("#/namespace/orders?lo=0&hi=1000", ".number-line"),
    ("#/ledger/orders", "table code"),
    ("#/regions", "table .badge"),
    ("#/region/eu", "table .badge"),
    ("#/lookup", "#lookup-id"),
    ("#/services", "table a"),
    ("#/switches", ".empty"),
    ("#/audit", "table td"),
    ("#/quarantine", ".empty"),
    ("#/now", ".hero"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_fences_by_keyboard_and_it_is_written_down_and_a_viewer_cannot() {
    let cluster = builder().start().await;
    let browser = signed_in(&cluster, &cluster.operator_token).await;
    go(&browser, "#/region/us", "[data-do=fence]").await;
    browser.js("document.querySelector('[data-do=fence]').focus()").await;
    browser.keys(keys::ENTER).await;
    until("what will happen is said", async || browser.text("#confirm-happens").await.contains("us loses its epoch"))
        .await;
    browser.picture("confirm").await;
    assert_eq!(browser.js("return document.querySelector('#confirm .sure').disabled").await, true);
    browser.keys(keys::ESCAPE).await;
    assert_eq!(region(&cluster, "us").await["state"], "active", "nothing was done");
    browser.keys(keys::ENTER).await;
    until("it is asked again", async || browser.js("return document.activeElement.id").await == "confirm-reason").await;
    browser.keys(&format!("its store moves{}us{}", keys::TAB, keys::ENTER)).await;
    until("it is done", async || browser.text(".notice.ok").await == "Region us is fenced, epoch 2.").await;
    assert_eq!(region(&cluster, "us").await["state"], "fenced");
    go(&browser, "#/audit", "table td").await;
    until("it is written down", async || {
        let row = browser.text("tbody tr").await;
        row.contains("operator bootstrap: its store moves") && row.contains("fence") && row.contains("region us")
    })
    .await;
    assert_eq!(browser.complaints().await, Vec::<String>::new(), "nothing on the console");
    drop(browser);
    cluster.operate("POST", "/v1/operators", Some(&json!({"name": "eve", "role": "viewer"}))).await.unwrap();
    let made = cluster.operate("POST", "/v1/operators/eve/tokens", Some(&json!({}))).await.unwrap();
    let viewer = signed_in(&cluster, made["token"].as_str().unwrap()).await;
    go(&viewer, "#/region/us", "#view h1").await;
    until("it says why nothing can be done", async || viewer.text("#view").await.contains("this token reads")).await;
    assert_eq!(viewer.js("return document.querySelectorAll('[data-do]').length").await, 0);
    in_the_dark_on_a_phone(&viewer).await;
    assert_eq!(viewer.complaints().await, Vec::<String>::new(), "nothing on the console");
}

/// No view is wider than a phone, and each has colours for the dark.
async fn in_the_dark_on_a_phone(browser: &Browser) {
    browser.size(390, 844).await;
    browser.dark(true).await;
    for (to, css) in VIEWS {
        go(browser, to, css).await;
        let wide = browser.js("return document.documentElement.scrollWidth").await.as_u64().unwrap();
        assert!(wide <= 390, "{to} is {wide} wide");
    }
    let paper = browser.js("return getComputedStyle(document.body).backgroundColor").await;
    assert_eq!(paper, "rgb(18, 23, 26)");
    browser.picture("phone-dark").await;
}

async fn region(cluster: &Cluster, name: &str) -> Value {
    let all = cluster.operate("GET", "/v1/regions", None).await.unwrap();
    all["regions"].as_array().unwrap().iter().find(|r| r["name"] == name).unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quarantine_is_the_headline_until_it_ends() {
    let cluster = builder().authority_env("CADASTRE_WITNESS", "none").start().await;
    let browser = signed_in(&cluster, &cluster.operator_token).await;
    cluster.authority.kill9();
    let copy = Scratch::new("backup");
    copy_folder(&cluster.authority.data_folder(), copy.path());
    cluster.restart_authority().await;
    // A namespace that the copy does not know: once both regions have heard of it, it is theirs to testify.
    let later = json!({"name": "later"});
    until("it is open again", async || cluster.operate("POST", "/v1/namespaces", Some(&later)).await.is_ok()).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.region("us").link.cut();
    cluster.authority.kill9();
    put_back(copy.path(), &cluster.authority.data_folder());
    cluster.restart_authority().await;
    until("the quarantine is the headline", async || browser.text(".hero h1").await.starts_with("Quarantine")).await;
    until("us is waited for", async || browser.text(".hero h1").await.contains("It waits for us.")).await;
    now_is_truthful(&browser).await;
    assert!(browser.js("return document.title").await.as_str().unwrap().starts_with('✕'));
    go(&browser, "#/quarantine", "#lift-namespace").await;
    browser.picture("quarantine").await;
    cluster.region("us").link.heal();
    go(&browser, "#/now", ".hero").await;
    until("it ends with the word of us", async || !browser.text(".hero h1").await.starts_with("Quarantine")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_sites_page_changes_nothing_and_no_cookie_opens_anything() {
    let cluster = quick().region("eu").namespace("orders").start().await;
    let fence = format!("{}/v1/regions/eu/fence", cluster.url);
    for site in ["cross-site", "same-site", "nonsense"] {
        let asked = http::client().post(&fence).bearer_auth(&cluster.operator_token).header("sec-fetch-site", site);
        let answer = asked.json(&json!({})).send().await.unwrap();
        assert_eq!(answer.status(), 403, "{site}");
    }
    // What a browser would send of itself: a cookie. There is none that counts.
    let cookie = format!("token={0}; session={0}; authorization={0}", cluster.operator_token);
    let answer = http::client().post(&fence).header("cookie", cookie).json(&json!({})).send().await.unwrap();
    assert_eq!(answer.status(), 401);
    assert_eq!(region(&cluster, "eu").await["state"], "active");
    for site in ["same-origin", "none"] {
        let asked = http::client().post(&fence).bearer_auth(&cluster.operator_token).header("sec-fetch-site", site);
        assert_ne!(asked.json(&json!({})).send().await.unwrap().status(), 403, "{site} is the page, or a person");
    }
    assert_eq!(region(&cluster, "eu").await["state"], "fenced");
    let page = http::client().get(format!("{}/", cluster.url)).send().await.unwrap();
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert!(page.headers().get("set-cookie").is_none());
    let other = http::client().get(format!("{}/page/../page.rs", cluster.url)).send().await.unwrap();
    assert_eq!(other.status(), 404);
}
