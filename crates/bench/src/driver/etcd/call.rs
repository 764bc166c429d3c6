//! One gRPC call: a stream with a message each way, and a status behind it.

use super::messages::{PREFIX_LEN, RangeResponse, unframed};
use crate::Error;
use crate::driver::ErrorKind;
use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::client::SendRequest;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use http::{Request, Uri};
use prost::Message;
use std::net::SocketAddr;

/// No answer is longer, far above what etcd takes.
const ANSWER_MAX: usize = 256 << 20;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Range, for a value.
    Get,
    /// Range, for what is there.
    Head,
    /// Put.
    Put,
    /// DeleteRange.
    Delete,
    /// Status of the member.
    Status,
}

/// The head of a request for each method, to one member.
pub struct Templates([Request<()>; 4]);

impl Templates {
    /// For the member at an address.
    pub fn new(address: SocketAddr) -> Result<Templates, Error> {
        let head = |path: &str| -> Result<Request<()>, Error> {
            let uri = format!("http://{address}/etcdserverpb.{path}").parse::<Uri>();
            let uri = uri.map_err(|error| Error::Unusable(format!("{address}: {error}")))?;
            let mut request = Request::new(());
            *request.method_mut() = http::Method::POST;
            *request.uri_mut() = uri;
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
            Ok(request)
        };
        Ok(Templates([
            head("KV/Range")?,
            head("KV/Put")?,
            head("KV/DeleteRange")?,
            head("Maintenance/Status")?,
        ]))
    }

    /// The head of a request.
    pub fn request(&self, method: Method) -> Request<()> {
        let at = match method {
            Method::Get | Method::Head => 0,
            Method::Put => 1,
            Method::Delete => 2,
            Method::Status => 3,
        };
        self.0[at].clone()
    }
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A value.
    Found(Bytes),
    /// The key is not there.
    NotFound,
    /// Done.
    Done,
    /// It failed.
    Failed(ErrorKind, String),
}

/// Calls, and waits for the end.
pub async fn call(sender: SendRequest<Bytes>, head: Request<()>, method: Method, message: Bytes) -> Ended {
    match exchange(sender, head, message).await {
        Ok((status, body)) => ended(method, &status, body),
        Err(error) => {
            let kind =
                if error.is_io() || error.is_go_away() { ErrorKind::Disconnected } else { ErrorKind::Other };
            Ended::Failed(kind, error.to_string())
        }
    }
}

/// What was answered: headers with a status, and a body.
async fn exchange(
    sender: SendRequest<Bytes>,
    head: Request<()>,
    message: Bytes,
) -> Result<(HeaderMap, Bytes), h2::Error> {
    let (answer, mut stream) = sender.ready().await?.send_request(head, false)?;
    stream.send_data(message, true)?;
    let (head, mut body) = answer.await?.into_parts();
    let bytes = read(&mut body).await?;
    // A server that refuses at once puts the status in front.
    let status = body.trailers().await?.unwrap_or(head.headers);
    Ok((status, bytes))
}

async fn read(body: &mut RecvStream) -> Result<Bytes, h2::Error> {
    let Some(first) = body.data().await else { return Ok(Bytes::new()) };
    let first = first?;
    body.flow_control().release_capacity(first.len())?;
    // Most answers are one piece.
    let Some(second) = body.data().await else { return Ok(first) };
    let (mut all, mut next) = (BytesMut::from(first), Some(second));
    while let Some(piece) = next {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        all.extend_from_slice(&piece);
        if all.len() > ANSWER_MAX {
            return Err(h2::Reason::ENHANCE_YOUR_CALM.into());
        }
        next = body.data().await;
    }
    Ok(all.freeze())
}

fn ended(method: Method, status: &HeaderMap, body: Bytes) -> Ended {
    let text = |name| status.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let Some(code) = text("grpc-status") else {
        return Ended::Failed(ErrorKind::Protocol, "an answer without a status".to_owned());
    };
    if code != "0" {
        let text = text("grpc-message").unwrap_or_default();
        return Ended::Failed(kind_of(&code, &text), format!("status {code}: {text}"));
    }
    let nonsense = || Ended::Failed(ErrorKind::Protocol, "an answer that cannot be read".to_owned());
    match method {
        Method::Put | Method::Delete | Method::Status if body.len() >= PREFIX_LEN => Ended::Done,
        Method::Get | Method::Head => {
            let range = unframed(body).and_then(|message| RangeResponse::decode(message).ok());
            match range.map(|mut range| (range.kvs.pop(), range.kvs.len())) {
                Some((None, _)) => Ended::NotFound,
                Some((Some(_), 0)) if method == Method::Head => Ended::Done,
                Some((Some(found), 0)) => Ended::Found(found.value),
                _ => nonsense(),
            }
        }
        _ => nonsense(),
    }
}

/// The kind of an error, by gRPC's number, and by what etcd says where it has one number for several.
fn kind_of(code: &str, text: &str) -> ErrorKind {
    match code {
        "4" => ErrorKind::Timeout,
        "14" if text.contains("timed out") => ErrorKind::Timeout,
        "14" => ErrorKind::Unavailable,
        "8" => ErrorKind::Overload,
        "12" => ErrorKind::Unsupported,
        _ => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::etcd::messages::{KeyValue, framed};

    fn status(code: &'static str, text: &'static str) -> HeaderMap {
        let pairs = [("grpc-status", code), ("grpc-message", text)];
        pairs
            .into_iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn answers_mean_what_was_called() {
        let ok = |method, body| ended(method, &status("0", ""), body);
        let range = |values: &[&'static [u8]]| {
            let kvs = values.iter().map(|value| KeyValue { value: Bytes::from_static(value) }).collect();
            framed(&RangeResponse { kvs })
        };
        assert_eq!(ok(Method::Get, range(&[b"v"])), Ended::Found(Bytes::from_static(b"v")));
        assert_eq!(
            (ok(Method::Get, range(&[])), ok(Method::Head, range(&[]))),
            (Ended::NotFound, Ended::NotFound)
        );
        assert_eq!(
            (ok(Method::Head, range(&[b""])), ok(Method::Put, range(&[]))),
            (Ended::Done, Ended::Done)
        );
        for wrong in [
            ok(Method::Get, range(&[b"a", b"b"])),
            ok(Method::Get, Bytes::new()),
            ok(Method::Put, Bytes::new()),
        ] {
            assert!(matches!(wrong, Ended::Failed(ErrorKind::Protocol, _)), "{wrong:?}");
        }
        assert!(matches!(
            ended(Method::Put, &HeaderMap::new(), range(&[])),
            Ended::Failed(ErrorKind::Protocol, _)
        ));
    }

    #[test]
    fn errors_have_kinds() {
        for (code, text, kind) in [
            ("14", "etcdserver: no leader", ErrorKind::Unavailable),
            ("14", "etcdserver: request timed out", ErrorKind::Timeout),
            ("4", "context deadline exceeded", ErrorKind::Timeout),
            ("8", "etcdserver: too many requests", ErrorKind::Overload),
            ("12", "unknown service", ErrorKind::Unsupported),
            ("3", "etcdserver: request is too large", ErrorKind::Other),
        ] {
            let told = ended(Method::Put, &status(code, text), Bytes::new());
            assert_eq!(told, Ended::Failed(kind, format!("status {code}: {text}")));
        }
    }
}
