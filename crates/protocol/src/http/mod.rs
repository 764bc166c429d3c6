//! HTTP/1.1 as a server speaks it: bytes in, bytes out.
//!
//! 1. [`Reader`] takes one request after the other off the input: a [`Head`], then its body. It decides how long a
//!    body is, and nobody else does.
//! 2. [`target`] takes the target apart: path segments and query, percent-decoded.
//! 3. [`Answer`] writes a response to the output: status, headers, body or chunks.
//! 4. [`date`], [`etag`], [`link`], [`media_type`] and [`accept`] read and write the headers that need it, [`escape`]
//!    what a header cannot hold; [`gzip`] makes bodies shorter.
//!
//! Invariants: what a second reader could frame differently is refused ([`Refused`]) and costs the connection: both
//! lengths at once, a length twice, line ends other than CRLF, folded lines, chunk extensions, trailers, another
//! target than a path. No input makes a parser panic; memory taken is bounded by bytes that have arrived; a byte
//! that has arrived is looked at a bounded number of times, also if every byte comes alone. Header values that are
//! written hold no line end, whoever made them.
//!
//! Left out: HTTP/2, upgrades, trailers, ranges, content codings but gzip, and that of requests (a value is stored
//! in the coding it came in).
//!
//! Follows RFC 9110 and RFC 9112, on the strict side wherever they leave a choice. The wire is described in
//! `docs/formats/http.md`.

pub mod accept;
mod answer;
mod chunked;
pub mod date;
pub mod escape;
pub mod etag;
pub mod gzip;
mod head;
pub mod link;
pub mod media_type;
mod reader;
mod refused;
pub mod target;

pub use answer::{Answer, Connection, chunk, last_chunk};
pub use head::{Framing, HEAD_BYTES_MAX, HEADERS_MAX, Head, Method};
pub use reader::{BODY_BYTES_MAX, Progress, Reader, Waits};
pub use refused::Refused;
