use super::*;
use crate::driver::IndexRange;

fn encoded(command: Command<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    Redis::new(0).encode(&Request { token: 1, bucket: b"b", key: b"k\r\n", command }, 0, &mut out);
    out
}

#[test]
fn requests_are_those_of_the_protocol() {
    assert_eq!(encoded(Command::Get), b"*2\r\n$3\r\nGET\r\n$5\r\nb:k\r\n\r\n");
    assert_eq!(encoded(Command::Head), b"*2\r\n$6\r\nEXISTS\r\n$5\r\nb:k\r\n\r\n");
    let put = Command::Put { value: b"v\0", context: None, indexes: &[] };
    assert_eq!(encoded(put), b"*3\r\n$3\r\nSET\r\n$5\r\nb:k\r\n\r\n$2\r\nv\0\r\n");
    assert_eq!(encoded(Command::Delete { context: None }), b"*2\r\n$3\r\nDEL\r\n$5\r\nb:k\r\n\r\n");
    assert_eq!(encoded(Command::Ping), b"*1\r\n$4\r\nPING\r\n");
    let mut greeting = Vec::new();
    assert!(Redis::new(12).greet(0, &mut greeting) && !Redis::new(12).greet(1, &mut greeting));
    assert_eq!(greeting, b"*2\r\n$6\r\nSELECT\r\n$2\r\n12\r\n");
    assert_eq!(Redis::new(12).greeted(0, b"-ERR DB index\r\n"), Err("ERR DB index".to_owned()));
}

#[test]
fn what_redis_has_not_is_refused() {
    let of = |index, from, to| IndexRange {
        index,
        from,
        to,
        return_terms: false,
        term_regex: None,
        max_results: None,
        continuation: None,
    };
    for command in [Command::ListKeys, Command::ListBuckets, Command::Query(of("f_bin", b"a", b"b"))] {
        assert!(Redis::new(0).refuses(&command).is_some());
    }
    assert!(Redis::new(0).refuses(&Command::Ping).is_none());
}

fn told(asked: Asked, frame: &[u8]) -> String {
    match Redis::new(0).decode(asked, 0, frame) {
        Decoded::Answer(Answer::Found { values, body, .. }) => {
            format!("found {}", String::from_utf8_lossy(&body[values[0].clone()]))
        }
        Decoded::Answer(Answer::NotFound) => "not found".to_owned(),
        Decoded::Answer(Answer::Done) => "done".to_owned(),
        Decoded::Answer(Answer::Failed { kind, .. }) => kind.name().to_owned(),
        _ => panic!("no answer to what was asked"),
    }
}

#[test]
fn answers_mean_what_was_asked() {
    assert_eq!(told(Asked::Read, b"$3\r\nabc\r\n"), "found abc");
    assert_eq!(told(Asked::Read, b"$0\r\n\r\n"), "found ");
    assert_eq!(told(Asked::Read, b"$-1\r\n"), "not found");
    assert_eq!(
        (told(Asked::Head, b":1\r\n"), told(Asked::Head, b":0\r\n")),
        ("done".into(), "not found".into())
    );
    assert_eq!(
        (told(Asked::Write, b"+OK\r\n"), told(Asked::Write, b":0\r\n")),
        ("done".into(), "done".into())
    );
    assert_eq!(told(Asked::Frame, b"*0\r\n"), "found *0\r\n");
    for (asked, nonsense) in [
        (Asked::Read, &b"+OK\r\n"[..]),
        (Asked::Read, b":1\r\n"),
        (Asked::Head, b"$-1\r\n"),
        (Asked::Write, b"$1\r\na\r\n"),
        (Asked::Read, b"$1\r\nabc"),
    ] {
        assert_eq!(told(asked, nonsense), "protocol", "{nonsense:?}");
    }
    for (text, kind) in [
        ("CLUSTERDOWN The cluster is down", ErrorKind::Unavailable),
        ("TRYAGAIN Multiple keys request during rehashing of slot", ErrorKind::Unavailable),
        ("LOADING Redis is loading the dataset in memory", ErrorKind::Unavailable),
        ("OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::Overload),
        ("ERR unknown command 'X'", ErrorKind::Unsupported),
        ("MOVED 1 127.0.0.1:1", ErrorKind::Other),
        ("WRONGTYPE Operation against a key", ErrorKind::Other),
    ] {
        assert_eq!(told(Asked::Read, format!("-{text}\r\n").as_bytes()), kind.name(), "{text}");
    }
}
