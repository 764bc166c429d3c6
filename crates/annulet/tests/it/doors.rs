//! The doors of a real node under TLS: STARTTLS, HTTPS, and files that are of no use.

use crate::common::{Server, run};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

const NODE: &str = "n@127.0.0.1";

/// Makes an authority, and a certificate with its key; the arguments that name them.
fn certificate(dir: &Path) -> [&'static str; 4] {
    let output = run(dir, &["admin", "cert", "--dir", ".", "--name", NODE]);
    assert!(output.status.success(), "{output:?}");
    ["--tls-cert", "n.pem", "--tls-key", "n.key"]
}

fn secured(dir: &Path, tcp: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(dir.join("ca.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(server::peer::certificate_name(NODE)).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), tcp)
}

fn ask(stream: &mut (impl Read + Write), frame: &[u8]) -> Vec<u8> {
    stream.write_all(frame).unwrap();
    stream.flush().unwrap();
    let mut len = [0; 4];
    stream.read_exact(&mut len).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut answer).unwrap();
    answer
}

fn http(stream: &mut (impl Read + Write), request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    stream.flush().unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_node_with_a_certificate_speaks_tls_at_both_doors() {
    let dir = tempfile::tempdir().unwrap();
    let files = certificate(dir.path());
    let server = Server::start(dir.path(), &[&files[..], &["--https-listen", "127.0.0.1:0"]].concat());

    let mut tcp = TcpStream::connect(&server.pb).unwrap();
    assert_eq!(ask(&mut tcp, b"\0\0\0\x01\xff"), [255]);
    let mut stream = secured(dir.path(), tcp);
    assert_eq!(ask(&mut stream, b"\0\0\0\x01\x01"), [2]);
    let login = ask(&mut stream, b"\0\0\0\x07\xfd\x0a\x01a\x12\x01b");
    assert!(String::from_utf8_lossy(&login).contains("Unknown message code: 253"), "security is off");

    let https = server.banner.lines().find_map(|line| line.trim_start().strip_prefix("HTTPS ")).unwrap();
    let https = https.split_whitespace().next().unwrap();
    let secured = || secured(dir.path(), TcpStream::connect(https).unwrap());
    let value = "v".repeat(200_000);
    let put = format!(
        "PUT /buckets/b/keys/k HTTP/1.1\r\nHost: {https}\r\nConnection: close\r\nContent-Type: text/plain\r\n\
         Content-Length: {}\r\n\r\n{value}",
        value.len()
    );
    assert!(http(&mut secured(), &put).starts_with("HTTP/1.1 204 "));
    let get = format!("GET /buckets/b/keys/k HTTP/1.1\r\nHost: {https}\r\nConnection: close\r\n\r\n");
    let answer = http(&mut secured(), &get);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&value), "{}", &answer[..200]);
}

#[test]
fn files_that_are_of_no_use_end_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let [_, cert, _, key] = certificate(dir.path());
    let told = |args: &[&str]| {
        let ports = ["serve", "--pb-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
        let output = run(dir.path(), &[&ports, args].concat());
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let alone = told(&["--https-listen", "127.0.0.1:0"]);
    assert!(alone.contains("--https-listen: needs tls_cert and tls_key"), "{alone}");
    let alone = told(&["--tls-cert", cert]);
    assert!(alone.contains("--tls-cert: needs tls_key"), "{alone}");
    let swapped = told(&["--tls-cert", key, "--tls-key", key]);
    assert!(swapped.contains(&format!("{key}: no certificate in this file")), "{swapped}");
    let of_other = told(&["--tls-cert", "ca.pem", "--tls-key", key]);
    assert!(of_other.contains(&format!("{key}: ")), "{of_other}");
}
