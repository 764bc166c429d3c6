//! HTTP, so far: `/ping` and `/stats`. Parsing and time-outs are hyper's.

use crate::stats::Stats;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// How long a client may take to send a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// How long to wait after a failed accept: too many open files, say, which does not pass by trying at once.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Brings statistics.
pub type Ask = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Stats> + Send>> + Send + Sync>;

/// Accepts connections for ever, at most `connections_max` with those counted in `connections`.
pub async fn serve(listener: TcpListener, ask: Ask, connections: Arc<AtomicUsize>, connections_max: usize) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) if connections.load(Ordering::Relaxed) < connections_max => {
                connections.fetch_add(1, Ordering::Relaxed);
                let (ask, connections) = (Arc::clone(&ask), Arc::clone(&connections));
                tokio::spawn(async move {
                    converse(stream, ask).await;
                    connections.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Ok(_) => tracing::warn!(connections_max, "too many connections: one was refused"),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, ask: Ask) {
    let service = service_fn(move |request| {
        let ask = Arc::clone(&ask);
        async move { Ok::<_, Infallible>(answer(&request, &ask).await) }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "connection ended");
    }
}

async fn answer(request: &Request<Incoming>, ask: &Ask) -> Response<Full<Bytes>> {
    let reading = matches!(*request.method(), Method::GET | Method::HEAD);
    match request.uri().path() {
        "/ping" if reading => text(StatusCode::OK, "text/html", "OK".to_owned()),
        "/stats" if reading => match serde_json::to_string(&ask().await) {
            Ok(json) => text(StatusCode::OK, "application/json", json),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
        },
        "/ping" | "/stats" => text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET only\n".to_owned()),
        _ => text(StatusCode::NOT_FOUND, "text/plain", "not found\n".to_owned()),
    }
}

fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}
