use super::*;
use crate::driver::{Driver, Pool, Sink};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

fn codec() -> Cassandra {
    let mut codec = Cassandra::new(&CassandraPlan::default());
    for (id, text) in codec.ids.iter_mut().zip([b"G", b"H", b"P", b"D"]) {
        *id = text.to_vec();
    }
    codec
}

fn encoded(command: Command<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    codec().encode(&Request { token: 1, bucket: b"b", key: b"key", command }, 0x0102, &mut out);
    out
}

#[test]
fn requests_are_those_of_the_protocol() {
    // Version, flags, stream, opcode, length; the statement, quorum, flags, the values.
    let get = b"\x04\0\x01\x02\x0a\0\0\0\x14\0\x01G\0\x04\x03\0\x02\0\0\0\x01b\0\0\0\x03key";
    assert_eq!(encoded(Command::Get), get);
    assert_eq!(encoded(Command::Head)[11], b'H');
    let put = Command::Put { value: b"v\0", context: None, indexes: &[] };
    let expected =
        b"\x04\0\x01\x02\x0a\0\0\0\x1a\0\x01P\0\x04\x03\0\x03\0\0\0\x01b\0\0\0\x03key\0\0\0\x02v\0";
    assert_eq!(encoded(put), expected);
    assert_eq!(encoded(Command::Delete { context: None })[11], b'D');
    assert_eq!(encoded(Command::Ping), b"\x04\0\x01\x02\x05\0\0\0\0");
    let greeting = |step| {
        let mut out = Vec::new();
        codec().greet(step, &mut out).then_some(out)
    };
    let startup = b"\x04\0\0\0\x01\0\0\0\x16\0\x01\0\x0bCQL_VERSION\0\x053.0.0";
    assert_eq!(greeting(0).unwrap(), startup);
    let prepare =
        b"\x04\0\0\0\x09\0\0\0\x40\0\0\0\x3cSELECT value FROM bench.objects WHERE bucket = ? AND key = ?";
    assert_eq!(greeting(1).unwrap(), prepare);
    assert!(greeting(4).is_some() && greeting(5).is_none());
    assert_eq!(Consistency::ALL.map(|(_, it)| level(it)), [1, 2, 3, 4, 5, 6, 10]);
}

fn answer(stream: u16, code: u8, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_request(&mut out, stream, code, |out| out.extend_from_slice(body));
    out[0] = 0x84;
    out
}

fn error(stream: u16, code: u32) -> Vec<u8> {
    answer(stream, opcode::ERROR, &[&code.to_be_bytes()[..], b"\0\x03why"].concat())
}

fn row(stream: u16, value: &[u8]) -> Vec<u8> {
    let mut body = b"\0\0\0\x02\0\0\0\x04\0\0\0\x01\0\0\0\x01".to_vec();
    put_long(&mut body, value);
    answer(stream, opcode::RESULT, &body)
}

fn told(answer: &Answer<'_>) -> String {
    match answer {
        Answer::Found { values, body, .. } => String::from_utf8_lossy(&body[values[0].clone()]).into_owned(),
        Answer::Failed { kind, text } => format!("{}: {text}", kind.name()),
        Answer::NotFound => "not found".to_owned(),
        Answer::Done => "done".to_owned(),
        Answer::Again => "again".to_owned(),
        Answer::Listed(_) | Answer::Rows(_) | Answer::Stored { .. } => panic!("nobody asked for that"),
    }
}

#[test]
fn answers_mean_what_was_asked() {
    let read = |asked, frame: &[u8]| match codec().decode(asked, 0, frame) {
        Decoded::Answer(answer) => told(&answer),
        Decoded::Renew => "renew".to_owned(),
        Decoded::Part(_) => panic!("no part of anything"),
    };
    let none = answer(0, opcode::RESULT, b"\0\0\0\x02\0\0\0\x04\0\0\0\x01\0\0\0\0");
    let void = answer(0, opcode::RESULT, b"\0\0\0\x01");
    assert_eq!((&*read(Asked::Read, &row(0, b"v")), &*read(Asked::Read, &none)), ("v", "not found"));
    assert_eq!((&*read(Asked::Head, &row(0, b"v")), &*read(Asked::Head, &none)), ("done", "not found"));
    assert_eq!(
        (&*read(Asked::Write, &void), &*read(Asked::Write, &answer(0, opcode::SUPPORTED, b"\0\0"))),
        ("done", "done")
    );
    assert!(read(Asked::Read, &void).starts_with("protocol"));
    for (code, expected) in [
        (0x1000, "unavailable: why"),
        (0x1001, "overload: why"),
        (0x1002, "unavailable: why"),
        (0x1100, "timeout: why"),
        (0x1200, "timeout: why"),
        (0x1300, "unavailable: why"),
        (0x1500, "unavailable: why"),
        (0x2000, "unsupported: why"),
        (0x0000, "other: why"),
        (UNPREPARED, "renew"),
    ] {
        assert_eq!(read(Asked::Write, &error(0, code)), expected);
    }
    assert_eq!(
        codec().greeted(0, &answer(0, opcode::AUTHENTICATE, b"\0\x01x")),
        Err(WANTS_PASSWORD.to_owned())
    );
    assert_eq!(codec().greeted(1, &error(0, 0x2200)), Err("why".to_owned()));
}

/// A server that takes connections one after the other, and answers as it is told: each answer is to the request whose
/// place among the ones before it says, of the same connection.
struct Scripted {
    listener: TcpListener,
    prepared: usize,
}

impl Scripted {
    fn frame(stream: &mut TcpStream) -> (u16, u8, Vec<u8>) {
        let mut header = [0; frame::HEADER_LEN];
        stream.read_exact(&mut header).unwrap();
        let mut body = vec![0; u32::from_be_bytes(header[5..].try_into().unwrap()) as usize];
        stream.read_exact(&mut body).unwrap();
        (u16::from_be_bytes([header[2], header[3]]), header[4], body)
    }

    /// The next connection, when it is greeted.
    fn accept(&mut self) -> TcpStream {
        let (mut stream, _) = self.listener.accept().unwrap();
        assert_eq!(Scripted::frame(&mut stream).1, opcode::STARTUP);
        stream.write_all(&answer(0, opcode::READY, b"")).unwrap();
        for _ in 0..STATEMENTS {
            let (id, code, _) = Scripted::frame(&mut stream);
            assert_eq!(code, opcode::PREPARE);
            self.prepared += 1;
            stream.write_all(&answer(id, opcode::RESULT, b"\0\0\0\x04\0\x01S")).unwrap();
        }
        stream
    }
}

#[derive(Default)]
struct Heard(VecDeque<(u32, String)>);

impl Sink for Heard {
    fn answered(&mut self, token: u32, answer: Answer<'_>) {
        self.0.push_back((token, told(&answer)));
    }
}

fn next(pool: &mut Pool<Cassandra>, heard: &mut Heard) -> (u32, String) {
    loop {
        match heard.0.pop_front() {
            Some(next) => return next,
            None => pool.poll(Duration::from_secs(1), heard).unwrap(),
        }
    }
}

#[test]
fn answers_may_come_in_any_order_and_what_was_forgotten_is_prepared_anew() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let mut server = Scripted { listener, prepared: 0 };
        let mut stream = server.accept();
        let streams: Vec<u16> = (0..3).map(|_| Scripted::frame(&mut stream).0).collect();
        stream.write_all(&row(streams[2], b"third")).unwrap();
        stream.write_all(&row(streams[0], b"first")).unwrap();
        // Nothing new comes on this connection: what is under way is awaited, and then it is closed.
        stream.write_all(&error(streams[1], UNPREPARED)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it is closed");
        let mut stream = server.accept();
        let (id, ..) = Scripted::frame(&mut stream);
        stream.write_all(&error(id, UNPREPARED)).unwrap();
        let mut stream = server.accept();
        let (id, ..) = Scripted::frame(&mut stream);
        stream.write_all(&row(id, b"second")).unwrap();
        server.prepared
    });
    let codec = Cassandra::new(&CassandraPlan::default());
    let mut pool = Pool::connect(codec, &[address], 1, 3, Duration::from_secs(30)).unwrap();
    let mut heard = Heard::default();
    let connect = |pool: &mut Pool<Cassandra>, heard: &mut Heard| {
        while pool.ready() == 0 {
            pool.poll(Duration::from_secs(1), heard).unwrap();
        }
    };
    let get = |token| Request { token, bucket: b"b", key: b"k", command: Command::Get };
    connect(&mut pool, &mut heard);
    for token in [1, 2, 3] {
        pool.submit(&get(token)).unwrap();
    }
    assert_eq!(next(&mut pool, &mut heard), (3, "third".to_owned()));
    assert_eq!(next(&mut pool, &mut heard), (1, "first".to_owned()));
    assert_eq!(next(&mut pool, &mut heard), (2, "again".to_owned()));
    connect(&mut pool, &mut heard);
    pool.submit(&get(2)).unwrap();
    // Of a connection that has just prepared it: to go on would have no end.
    assert!(next(&mut pool, &mut heard).1.starts_with("other"));
    connect(&mut pool, &mut heard);
    pool.submit(&get(2)).unwrap();
    assert_eq!(next(&mut pool, &mut heard), (2, "second".to_owned()));
    assert_eq!(server.join().unwrap(), 3 * STATEMENTS);
}

#[test]
fn a_schema_is_made_or_the_reason_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut texts = Vec::new();
        assert_eq!(Scripted::frame(&mut stream).1, opcode::STARTUP);
        stream.write_all(&answer(0, opcode::READY, b"")).unwrap();
        for _ in 0..2 {
            let (_, code, body) = Scripted::frame(&mut stream);
            assert_eq!((code, &body[body.len() - 3..]), (opcode::QUERY, &[0, 1, 0][..]));
            texts.push(String::from_utf8(body[4..body.len() - 3].to_vec()).unwrap());
            stream.write_all(&answer(0, opcode::RESULT, b"\0\0\0\x05")).unwrap();
        }
        let (mut stream, _) = listener.accept().unwrap();
        Scripted::frame(&mut stream);
        stream.write_all(&answer(0, opcode::AUTHENTICATE, b"\0\x01x")).unwrap();
        texts
    });
    let plan = CassandraPlan { replication: 2, ..CassandraPlan::default() };
    make_schema(&[address], &plan).unwrap();
    assert!(make_schema(&[address], &plan).unwrap_err().to_string().contains(WANTS_PASSWORD));
    let texts = server.join().unwrap();
    assert!(
        texts[0].contains("KEYSPACE IF NOT EXISTS bench ") && texts[0].contains("'replication_factor': 2")
    );
    assert!(texts[1].starts_with("CREATE TABLE IF NOT EXISTS bench.objects "));
}
