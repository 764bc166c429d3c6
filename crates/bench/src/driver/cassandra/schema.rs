//! Keyspace and table, made before a run if they are not there.
//!
//! By one connection, one statement after the other: servers that are told to make the same table at once make two.
//! Other servers hear of it from the first; until then they refuse to prepare statements, and connections to them are
//! tried again.

use super::frame::{self, Message, opcode, put_long, put_request};
use super::{GREETING_STREAM, WANTS_PASSWORD, level, put_startup};
use crate::Error;
use crate::workload::{CassandraPlan, Consistency};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a change of the schema may take.
const SCHEMA_MAX: Duration = Duration::from_secs(30);

/// No answer to one is longer.
const ANSWER_MAX: usize = 64 << 10;

/// Makes keyspace and table by the first of the servers that takes a connection.
pub fn make_schema(addresses: &[SocketAddr], plan: &CassandraPlan) -> Result<(), Error> {
    let failed = |address: SocketAddr, what: String| Error::Unusable(format!("{address}: {what}"));
    let mut why = Error::Unusable("there is no server".to_owned());
    for &address in addresses {
        match TcpStream::connect_timeout(&address, SCHEMA_MAX) {
            Ok(stream) => return make(stream, plan).map_err(|what| failed(address, what)),
            Err(error) => why = failed(address, error.to_string()),
        }
    }
    Err(why)
}

fn make(mut stream: TcpStream, plan: &CassandraPlan) -> Result<(), String> {
    stream.set_read_timeout(Some(SCHEMA_MAX)).map_err(|error| error.to_string())?;
    let mut request = Vec::new();
    put_startup(&mut request);
    exchange(&mut stream, &request)?;
    for statement in statements(plan) {
        request.clear();
        put_request(&mut request, GREETING_STREAM, opcode::QUERY, |out| {
            put_long(out, statement.as_bytes());
            out.extend_from_slice(&level(Consistency::One).to_be_bytes());
            // No flags.
            out.push(0);
        });
        exchange(&mut stream, &request)?;
    }
    Ok(())
}

fn statements(plan: &CassandraPlan) -> [String; 2] {
    let CassandraPlan { keyspace, table, replication, .. } = plan;
    [
        format!(
            "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': {replication}}}"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.{table} \
             (bucket blob, key blob, value blob, PRIMARY KEY ((bucket, key)))"
        ),
    ]
}

/// Sends a request and reads its answer, which must be one of success.
fn exchange(stream: &mut TcpStream, request: &[u8]) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    stream.write_all(request).map_err(text)?;
    let mut answer = vec![0; frame::HEADER_LEN];
    stream.read_exact(&mut answer).map_err(text)?;
    match frame::frame_len(&answer)? {
        Some(len) if len <= ANSWER_MAX => answer.resize(len, 0),
        _ => return Err("an endless answer".to_owned()),
    }
    stream.read_exact(&mut answer[frame::HEADER_LEN..]).map_err(text)?;
    match frame::parse(&answer) {
        Some(Message::Ready | Message::Done) => Ok(()),
        Some(Message::Authenticate) => Err(WANTS_PASSWORD.to_owned()),
        Some(Message::Error { text, .. }) => Err(text.to_owned()),
        _ => Err("an answer that cannot be read".to_owned()),
    }
}
