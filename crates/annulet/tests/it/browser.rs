//! A real node and a real browser: what pages of other sites and stored objects can do. Ignored where no browser is
//! installed: `.ci/run` runs these by name, and fails if they cannot run.
//!
//!     cargo test -p annulet --test it browser:: -- --ignored

use crate::common::Server;
use results::report::png::Browser;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// How long a page's clock runs on while it waits for nothing, in milliseconds.
const BUDGET: u64 = 5000;

/// How long a site holds back the image that keeps the browser on a page: less than the browser's own patience.
const HOLD: Duration = Duration::from_secs(60);

/// Writes by the ways that a browser has without asking the node first, and tells its own site when all are answered.
/// The image is answered only then: a browser stays on a page until its images are loaded.
const ATTACK: &str = r#"<!doctype html><title>attack</title><img src="/held"><iframe name="frame" id="frame"></iframe>
<form id="form" method="post" enctype="text/plain" target="frame" action="$NODE/buckets/target/keys/form">
<input name="a" value="b"></form>
<script>
const send = (path, options) => fetch('$NODE' + path, {
  method: 'POST', mode: 'no-cors', referrerPolicy: 'no-referrer', headers: {'Content-Type': 'text/plain'}, ...options});
const submitted = () => new Promise(done => {
  document.getElementById('frame').onload = done;
  document.getElementById('form').submit();
});
Promise.allSettled([
  send('/buckets/target/keys/fetch', {body: 'x'}),
  send('/buckets/target/keys/beacon', {body: 'x', keepalive: true}),
  send('/buckets/target/keys', {body: 'x', referrerPolicy: 'origin'}),
  send('/admin/purge', {body: '{"purge": "erase", "bucket": "kept"}'}),
  send('/buckets/kept/keys/k', {method: 'DELETE', mode: 'cors'}),
  submitted(),
]).then(() => fetch('/done'));
</script>"#;

/// A page that writes when it is opened, stored as an object.
const STORED: &str = r#"<!doctype html><title>quiet</title><body onload="document.title = 'loaded'">
<form id="form" method="post" enctype="text/plain" action="/buckets/target/keys/form"><input name="a" value="b"></form>
<script>
document.title = 'ran';
fetch('/buckets/target/keys/script', {method: 'PUT', headers: {'Content-Type': 'text/plain'}, body: 'x'});
document.getElementById('form').submit();
</script></body>"#;

#[test]
#[ignore = "needs a browser"]
fn a_page_of_another_site_writes_nothing() {
    let browser = Browser::find(None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let kept = b"kept";
    put(&server, "/buckets/kept/keys/k", "text/plain", kept);
    let site = Site::open(ATTACK.replace("$NODE", &format!("http://{}", server.http)));
    browser.open(format!("http://{}/", site.address), &["--dump-dom".to_owned()]).unwrap();
    let asked = site.requests.paths.lock().unwrap().clone();
    assert!(asked.iter().any(|path| path == "/done"), "all was answered: {asked:?}");
    assert_eq!(keys(&server, "target"), "{\"keys\":[]}");
    let purge = server.http_get("/admin/purge");
    assert!(!purge.contains("erase"), "no purge was begun: {purge}");
    let answer = server.http_get("/buckets/kept/keys/k");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("kept"), "{answer}");
    server.stop();
}

#[test]
#[ignore = "needs a browser"]
fn a_stored_page_runs_no_script_and_writes_nothing() {
    let browser = Browser::find(None).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    put(&server, "/buckets/pages/keys/page", "text/html", STORED.as_bytes());
    let opened = |url: String| String::from_utf8(browser.open(url, &options()).unwrap()).unwrap();
    let page = opened(format!("http://{}/buckets/pages/keys/page", server.http));
    assert!(page.contains("<title>quiet</title>") && page.contains("<form"), "{page}");
    assert_eq!(keys(&server, "target"), "{\"keys\":[]}");
    // The same page runs where nobody holds it back.
    let site = Site::open(STORED.replace("document.getElementById('form').submit();", ""));
    let page = opened(format!("http://{}/", site.address));
    assert!(page.contains("<title>loaded</title>"), "{page}");
    server.stop();
}

fn options() -> [String; 2] {
    ["--dump-dom".to_owned(), format!("--virtual-time-budget={BUDGET}")]
}

fn put(server: &Server, path: &str, content_type: &str, value: &[u8]) {
    let mut stream = TcpStream::connect(&server.http).unwrap();
    let head = format!(
        "PUT {path} HTTP/1.0\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
        value.len()
    );
    stream.write_all(&[head.as_bytes(), value].concat()).unwrap();
    let mut status = String::new();
    BufReader::new(stream).read_line(&mut status).unwrap();
    assert!(status.starts_with("HTTP/1.1 204 "), "{status}");
}

/// What a bucket's keys are listed as.
fn keys(server: &Server, bucket: &str) -> String {
    let answer = server.http_get(&format!("/buckets/{bucket}/keys?keys=true"));
    let (_, chunks) = answer.split_once("\r\n\r\n").unwrap();
    // Chunks stand between lines with their lengths.
    chunks.split("\r\n").skip(1).step_by(2).collect()
}

/// Another site, which has one page.
struct Site {
    address: String,
    requests: Arc<Requests>,
}

/// The requests of a site's page.
#[derive(Default)]
struct Requests {
    paths: Mutex<Vec<String>>,
    added: Condvar,
}

impl Requests {
    fn add(&self, path: String) {
        self.paths.lock().unwrap().push(path);
        self.added.notify_all();
    }

    /// Waits for a path, [`HOLD`] at most.
    fn wait_for(&self, path: &str) {
        let is_missing = |paths: &mut Vec<String>| paths.iter().all(|other| other != path);
        drop(self.added.wait_timeout_while(self.paths.lock().unwrap(), HOLD, is_missing).unwrap());
    }
}

impl Site {
    fn open(page: String) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Requests::default());
        let added = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // A browser opens connections ahead, and closes some unused.
                let (page, requests) = (page.clone(), Arc::clone(&added));
                std::thread::spawn(move || answer(&stream.unwrap(), &page, &requests));
            }
        });
        Site { address, requests }
    }
}

fn answer(mut stream: &TcpStream, page: &str, requests: &Requests) {
    let mut head = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let Some(line) = head.next() else { return };
    head.for_each(drop);
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = if path == "/" { page } else { "" };
    if path == "/held" {
        requests.wait_for("/done");
    }
    requests.add(path);
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/html";
    // The browser may have gone.
    write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).ok();
}
