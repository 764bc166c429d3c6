use super::*;
use proptest::prelude::*;

fn encoded(command: Command<'_>) -> String {
    encoded_of(command, false)
}

fn encoded_of(command: Command<'_>, returns_context: bool) -> String {
    let quorums = [("r".to_owned(), 2)].into();
    let common = Common { bucket_type: Some("a b".to_owned()), quorums, returns_context };
    let (mut codec, mut out) = (Http::new(&common, "h"), Vec::new());
    codec.encode(&Request { token: 1, bucket: b"b/c", key: b"k", command }, 0, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn requests_are_riaks() {
    let get = encoded(Command::Get);
    assert!(get.starts_with("GET /types/a%20b/buckets/b%2Fc/keys/k?r=2 HTTP/1.1\r\nHost: h\r\n"), "{get}");
    let indexes = [("f_bin", b"x".to_vec())];
    let put = encoded(Command::Put { value: b"value", context: Some(b"clock"), indexes: &indexes });
    assert!(put.starts_with("PUT /types/a%20b/buckets/b%2Fc/keys/k HTTP/1.1\r\n"), "{put}");
    assert!(
        put.contains("\r\nX-Riak-Vclock: clock\r\nX-Riak-Index-f_bin: x\r\nContent-Length: 5\r\n\r\nvalue")
    );
    let put = encoded_of(Command::Put { value: b"value", context: None, indexes: &[] }, true);
    assert!(put.starts_with("PUT /types/a%20b/buckets/b%2Fc/keys/k?returnbody=true HTTP/1.1\r\n"), "{put}");
    let delete = encoded_of(Command::Delete { context: Some(b"clock") }, true);
    assert!(delete.starts_with("DELETE /types/a%20b/buckets/b%2Fc/keys/k HTTP/1.1\r\n"), "{delete}");
    assert!(delete.contains("\r\nX-Riak-Vclock: clock\r\n"), "{delete}");
    let keys = encoded(Command::ListKeys);
    assert!(keys.starts_with("GET /types/a%20b/buckets/b%2Fc/keys?keys=true HTTP/1.1\r\n"), "{keys}");
    let range = IndexRange {
        index: "f_bin",
        from: b"a|",
        to: b"b",
        return_terms: true,
        term_regex: Some("[a]"),
        max_results: None,
        continuation: None,
    };
    let query = encoded(Command::Query(range));
    assert!(
        query.contains("/index/f_bin/a%7C/b?return_terms=true&term_regex=%5Ba%5D HTTP/1.1\r\n"),
        "{query}"
    );
    let page =
        IndexRange { to: b"a|", term_regex: None, max_results: Some(7), continuation: Some(b"p+="), ..range };
    let query = encoded(Command::Query(page));
    assert!(
        query.contains("/index/f_bin/a%7C?return_terms=true&max_results=7&continuation=p%2B%3D HTTP/1.1\r\n"),
        "{query}"
    );
}

fn decode(asked: Asked, answer: &str) -> Result<String, ErrorKind> {
    let mut codec = Http::new(&Common::default(), "h");
    let bytes = answer.as_bytes();
    for len in 0..bytes.len() {
        assert!(codec.frame_len(asked, &bytes[..len]).unwrap().is_none_or(|whole| whole == bytes.len()));
    }
    assert_eq!(codec.frame_len(asked, bytes), Ok(Some(bytes.len())));
    match codec.decode(asked, 0, bytes) {
        Decoded::Answer(Answer::Found { context, values, body }) => {
            let all: Vec<_> = values.iter().map(|at| String::from_utf8_lossy(&body[at.clone()])).collect();
            Ok(format!("{} {}", String::from_utf8_lossy(context), all.join(",")))
        }
        Decoded::Answer(Answer::Failed { kind, .. }) => Err(kind),
        Decoded::Answer(Answer::Rows(rows)) => {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            let pairs: Vec<_> = rows.iter().map(|(term, key)| (term.map(text), text(key))).collect();
            Ok(format!("{pairs:?} {:?}", rows.continuation.map(text)))
        }
        Decoded::Answer(other) => Ok(format!("{other:?}")),
        Decoded::Part(_) | Decoded::Renew => panic!("no answer"),
    }
}

#[test]
fn answers_are_told_apart() {
    let get = "HTTP/1.1 200 OK\r\nx-riak-vclock: clock\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(decode(Asked::Read, get), Ok("clock abc".to_owned()));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n";
    assert_eq!(decode(Asked::Read, chunked), Ok(" abc".to_owned()));
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(decode(Asked::Head, head), Ok("Done".to_owned()));
    let siblings = "HTTP/1.1 300 Multiple Choices\r\nX-Riak-Vclock: c\r\nContent-Type: multipart/mixed; \
        boundary=XY\r\nContent-Length: 105\r\n\r\n\r\n--XY\r\nEtag: 1\r\n\r\none\r\n--XY\r\nX-Riak-Deleted: \
        true\r\n\r\n\r\n--XY\r\nEtag: 2\r\n\r\ntwo\r\n--XY--\r\n";
    let (before, body) = siblings.split_once("\r\n\r\n").unwrap();
    let siblings = format!("{}\r\n\r\n{body}", before.replace("105", &body.len().to_string()));
    assert_eq!(decode(Asked::Read, &siblings), Ok("c one,two".to_owned()));
    assert_eq!(decode(Asked::Read, "HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n"), Ok("NotFound".to_owned()));
    assert_eq!(decode(Asked::Write, "HTTP/1.1 204 No Content\r\n\r\n"), Ok("Done".to_owned()));
    let keys = "HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{\"keys\":[\"a\",\"b\"]}";
    assert_eq!(decode(Asked::List, keys), Ok("Listed(2)".to_owned()));
    let rows = "HTTP/1.1 200 OK\r\nContent-Length: 55\r\n\r\n{\"results\":[{\"t\":\"\\u00e4\"},{\"t\":\"b\"}],\"continuation\":\"c\"}";
    let (_, body) = rows.split_once("\r\n\r\n").unwrap();
    let rows = rows.replace("55", &body.len().to_string());
    let expected = "[(Some(\"t\"), \"ä\"), (Some(\"t\"), \"b\")] Some(\"c\")";
    assert_eq!(decode(Asked::Rows, &rows), Ok(expected.to_owned()));
    assert_eq!(decode(Asked::Rows, keys), Ok("[(None, \"a\"), (None, \"b\")] None".to_owned()));
    let no_pair = "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{\"results\":[{}]}";
    assert_eq!(decode(Asked::Rows, no_pair), Err(ErrorKind::Protocol));
    let overload = "HTTP/1.1 503 x\r\nContent-Length: 8\r\n\r\noverload";
    assert_eq!(decode(Asked::Write, overload), Err(ErrorKind::Overload));
    let stored = "HTTP/1.1 200 x\r\nX-Riak-Vclock: c\r\nContent-Length: 1\r\n\r\nv";
    assert_eq!(decode(Asked::Write, stored), Ok("Stored { context: [99] }".to_owned()));
    assert_eq!(
        decode(Asked::Write, "HTTP/1.1 404 x\r\nContent-Length: 0\r\n\r\n"),
        Ok("NotFound".to_owned())
    );
    let timeout = "HTTP/1.1 503 x\r\nContent-Length: 17\r\n\r\nrequest timed out";
    assert_eq!(decode(Asked::Write, timeout), Err(ErrorKind::Timeout));
    let unavailable = "HTTP/1.1 503 x\r\nContent-Length: 11\r\n\r\nunavailable";
    assert_eq!(decode(Asked::Write, unavailable), Err(ErrorKind::Unavailable));
    assert_eq!(
        decode(Asked::Write, "HTTP/1.1 412 x\r\nContent-Length: 0\r\n\r\n"),
        Err(ErrorKind::Precondition)
    );
}

#[test]
fn a_server_that_closes_says_so() {
    let codec = Http::new(&Common::default(), "h");
    assert!(codec.closes(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"));
    assert!(!codec.closes(b"HTTP/1.1 200 OK\r\n\r\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn any_answer_is_read_or_refused(
        status in "(HTTP/1.1 )?[0-9]{0,4}",
        headers in "(Content-Length: [0-9]{0,20}\r\n|Transfer-Encoding: chunked\r\n|Content-Type: multipart/mixed; boundary=a\r\n|x){0,3}",
        body in "([0-9a-f]{0,17}\r\n|--a|\r\n\r\n|.){0,20}",
    ) {
        let answer = format!("{status} OK\r\n{headers}\r\n{body}");
        let mut codec = Http::new(&Common::default(), "h");
        for asked in [Asked::Read, Asked::Head, Asked::Write, Asked::List, Asked::Rows] {
            if let Ok(Some(len)) = codec.frame_len(asked, answer.as_bytes())
                && len <= answer.len()
                && let Decoded::Answer(Answer::Found { values, body, .. }) = codec.decode(asked, 0, &answer.as_bytes()[..len])
            {
                prop_assert!(values.iter().all(|at| at.start <= at.end && at.end <= body.len()));
            }
        }
    }
}

#[test]
fn each_request_of_a_user_has_the_login() {
    let config = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let config = std::sync::Arc::new(config);
    let tls = ServerTls::new(&config, &[], &[]).unwrap();
    let login = |password: Option<&str>| Login {
        tls: std::sync::Arc::clone(&config),
        user: Some("Aladdin".to_owned()),
        password: password.map(str::to_owned),
    };
    let ping = |login: Login| {
        let mut codec = Http::new(&Common::default(), "h").secured(&login, tls.clone());
        assert!(codec.tls_at_first().is_some());
        let mut out = Vec::new();
        codec.encode(&Request { token: 1, bucket: b"", key: b"", command: Command::Ping }, 0, &mut out);
        String::from_utf8(out).unwrap()
    };
    // RFC 7617, section 2.
    let header = "\r\nAuthorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n";
    assert!(ping(login(Some("open sesame"))).ends_with(header));
    assert_eq!(ping(login(None)), "GET /ping HTTP/1.1\r\nHost: h\r\n\r\n", "a certificate is the login");
}
