//! A real Chromium without a window, driven through Debian's chromedriver by the W3C WebDriver protocol.
//!
//! The protocol is JSON over HTTP, so a few calls of the HTTP client that is here anyway do; nothing is taken from
//! npm. What the page itself was told by the API is kept beside it ([`Browser::said`]), so that a test can compare
//! what is shown with exactly the answer that it was drawn from.

use crate::child::Managed;
use crate::http;
use crate::ports;
use crate::scratch::Scratch;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_secs(30);

/// Keeps the last answer of every path that the page asked for.
const LISTEN: &str = "window.__said = {}; const real = window.fetch; window.fetch = async (path, how) => {
    const answer = await real(path, how); const copy = answer.clone(); const json = answer.json.bind(answer);
    answer.json = async () => { const body = await json(); window.__said[path] = body; return body; }; return answer; };";

/// The keys that have no character.
pub mod keys {
    /// Tab.
    pub const TAB: &str = "\u{E004}";
    /// Enter.
    pub const ENTER: &str = "\u{E007}";
    /// Escape.
    pub const ESCAPE: &str = "\u{E00C}";
}

/// A browser with one tab. Dropped, it is killed.
pub struct Browser {
    session: String,
    _driver: Managed,
    _folder: Scratch,
}

impl Browser {
    /// A window of 1280 x 900, in light colours.
    pub async fn start() -> Self {
        let (port, folder) = (ports::free(), Scratch::new("browser"));
        let mut command = Command::new("chromedriver");
        command
            .arg(format!("--port={port}"))
            .env("HOME", folder.path())
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let driver = Managed::start("chromedriver (`ops/test` installs it)", command, "KILL");
        let url = format!("http://127.0.0.1:{port}");
        let until = Instant::now() + BOUND;
        while !matches!(http::call("GET", &format!("{url}/status"), None, None).await, Ok((200, _, _))) {
            assert!(driver.is_alive() && Instant::now() < until, "chromedriver does not answer");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"binary": "/usr/bin/chromium", "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let made = call("POST", &format!("{url}/session"), Some(&wanted)).await;
        let id = made["sessionId"].as_str().expect("a session has an id").to_owned();
        let browser = Self { session: format!("{url}/session/{id}"), _driver: driver, _folder: folder };
        browser.developer("Page.addScriptToEvaluateOnNewDocument", json!({"source": LISTEN})).await;
        browser.size(1280, 900).await;
        browser
    }

    /// A window of another size; below 600 it is a phone.
    pub async fn size(&self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.developer("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Dark or light colours, as the person's system wants them.
    pub async fn dark(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let wanted = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.developer("Emulation.setEmulatedMedia", wanted).await;
    }

    /// Opens an address.
    pub async fn open(&self, url: &str) {
        self.post("url", json!({"url": url})).await;
    }

    /// Runs a function body in the page.
    pub async fn js(&self, body: &str) -> Value {
        self.post("execute/sync", json!({"script": body, "args": []})).await
    }

    /// The text of the first element like this; empty where there is none.
    pub async fn text(&self, css: &str) -> String {
        let body = format!("const e = document.querySelector({}); return e ? e.innerText : '';", json!(css));
        self.js(&body).await.as_str().unwrap_or_default().to_owned()
    }

    /// Clicks the first element like this.
    pub async fn click(&self, css: &str) {
        let element = self.post("element", json!({"using": "css selector", "value": css})).await;
        let id = element.as_object().and_then(|o| o.values().next()).and_then(Value::as_str).expect("an element");
        self.post(&format!("element/{id}/click"), json!({})).await;
    }

    /// Presses these keys, whatever has the focus.
    pub async fn keys(&self, text: &str) {
        let each = |key: char| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})];
        let actions: Vec<Value> = text.chars().flat_map(each).collect();
        self.post("actions", json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})).await;
    }

    /// What the API last answered the page at this path.
    pub async fn said(&self, path: &str) -> Value {
        self.js(&format!("return window.__said[{}] ?? null;", json!(path))).await
    }

    /// What the browser's console complained of since the last call.
    pub async fn complaints(&self) -> Vec<String> {
        let all = self.post("se/log", json!({"type": "browser"})).await;
        let bad = |entry: &Value| {
            let level = entry["level"].as_str().unwrap_or_default();
            (level != "INFO" && level != "DEBUG").then(|| entry["message"].as_str().unwrap_or_default().to_owned())
        };
        all.as_array().into_iter().flatten().filter_map(bad).collect()
    }

    /// Keeps a picture of the page as `NAME.png` in the folder that `CADASTRE_SCREENSHOTS` names, if it names one.
    pub async fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("CADASTRE_SCREENSHOTS").map(PathBuf::from) else { return };
        let size = self.js("return [innerWidth, Math.min(1600, document.documentElement.scrollHeight)];").await;
        let clip = json!({"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1});
        let wanted = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let taken = self.developer("Page.captureScreenshot", wanted).await;
        let bytes = base64(taken["data"].as_str().expect("a picture"));
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        std::fs::write(folder.join(format!("{name}.png")), bytes).expect("the picture can be written");
    }

    async fn developer(&self, command: &str, params: Value) -> Value {
        self.post("goog/cdp/execute", json!({"cmd": command, "params": params})).await
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        call("POST", &format!("{}/{path}", self.session), Some(&body)).await
    }
}

async fn call(method: &str, url: &str, body: Option<&Value>) -> Value {
    let answer = http::call(method, url, None, body).await.unwrap_or_else(|error| panic!("{url}: {error:?}"));
    let (status, _, mut value) = answer;
    assert_eq!(status, 200, "{method} {url} {body:?}: {value}");
    value["value"].take()
}

fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().filter_map(|c| DIGITS.iter().position(|d| *d == c)) {
        held = (held << 6 | digit as u32) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    bytes
}
