//! `annulet admin cert`: the certificates by which the nodes of a cluster know each other, and those of client ports.
//!
//! The folder has the authority (`ca.pem`, `ca.key`) and for each node a certificate and a key, named by the part of
//! its name before the `@`. Files that are there are kept: an authority that was overwritten would lock every node out.
//! A node's certificate ends after a year, or `--days`; the authority's does not end. A node is locked out by a new
//! authority for the others. A certificate that is to be replaced is removed with its key, and made again.
//!
//! Another folder has an authority for client ports: certificates of their hosts, and of users that log in by one. One
//! authority for both would let clients join, so a call makes certificates of one kind.

use crate::failure::{FAILED, Failure, UNUSABLE};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use server::config::check_node_name;
use server::peer::{certificate_name, check_files};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;
use x509_parser::extensions::ExtendedKeyUsage;
use x509_parser::pem::parse_x509_pem;

/// Days of a certificate's validity: a year, so that renewal is practised.
const DAYS_DEFAULT: u32 = 365;

/// The most days: ten years.
pub const DAYS_MAX: u32 = 3650;

/// What the authority is called in its certificate.
const AUTHORITY: &str = "annulet cluster";

/// Who may read a key: its owner.
const KEY_MODE: u32 = 0o600;

/// Certificates are no secret.
const CERTIFICATE_MODE: u32 = 0o644;

/// Arguments of `admin cert`.
#[derive(clap::Args)]
pub struct CertArgs {
    /// Folder of the certificates, made if missing. Its ca.key can make members: keep it off the nodes.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Name of a node, as in `serve --name`; once for each node.
    #[arg(long = "name", value_name = "NAME@HOST")]
    names: Vec<String>,
    /// Host name or address of a client port, for `serve --tls-cert`; once for each. Give another folder than that of
    /// the nodes' certificates.
    #[arg(long = "host", value_name = "HOST", conflicts_with = "names")]
    hosts: Vec<String>,
    /// User that logs in with a certificate; once for each. For the authority of `serve --tls-client-ca`.
    #[arg(long = "user", value_name = "USER", conflicts_with = "names")]
    users: Vec<String>,
    /// Days until the certificates of nodes end.
    #[arg(long, value_name = "DAYS", default_value_t = DAYS_DEFAULT,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS_MAX)))]
    days: u32,
}

/// Makes what is missing, and says what that was.
pub fn run(args: &CertArgs) -> Result<(), Failure> {
    let clients = args.hosts.iter().map(|name| Leaf::Host(name));
    let clients = clients.chain(args.users.iter().map(|name| Leaf::User(name)));
    let leaves = args.names.iter().map(|name| Leaf::Node(name)).chain(clients).collect::<Vec<_>>();
    for (path, made) in make_all(&args.dir, &leaves, args.days)? {
        let word = if made { "made" } else { "kept" };
        writeln!(io::stdout(), "{word}  {}", path.display())?;
    }
    Ok(())
}

/// Makes the missing files of nodes in `dir`; certificates of nodes end after so many days. Returns all certificates,
/// and whether each is new.
pub fn make(dir: &Path, names: &[String], days: u32) -> Result<Vec<(PathBuf, bool)>, Failure> {
    make_all(dir, &names.iter().map(|name| Leaf::Node(name)).collect::<Vec<_>>(), days)
}

/// Makes the missing files of the client ports of hosts, and of users, in `dir`.
pub fn make_clients(dir: &Path, hosts: &[String], users: &[String]) -> Result<(), Failure> {
    let leaves = hosts.iter().map(|name| Leaf::Host(name)).chain(users.iter().map(|name| Leaf::User(name)));
    make_all(dir, &leaves.collect::<Vec<_>>(), DAYS_DEFAULT).map(drop)
}

/// The owner of a certificate.
enum Leaf<'a> {
    /// A node, to other nodes.
    Node(&'a str),
    /// A host of a client port.
    Host(&'a str),
    /// A user.
    User(&'a str),
}

impl Leaf<'_> {
    fn files(&self, dir: &Path) -> Result<Files, Failure> {
        match *self {
            Leaf::Node(name) => node_files(dir, name),
            Leaf::Host(name) => named_files(dir, name, "--host"),
            Leaf::User(name) => named_files(dir, name, "--user"),
        }
    }

    fn params(&self, end: OffsetDateTime) -> Result<CertificateParams, Failure> {
        match *self {
            Leaf::Node(name) => Ok(node(name, end)),
            Leaf::Host(name) => leaf(name, vec![name.to_owned()], ExtendedKeyUsagePurpose::ServerAuth, end),
            Leaf::User(name) => leaf(name, Vec::new(), ExtendedKeyUsagePurpose::ClientAuth, end),
        }
    }

    /// Whether the files are of use.
    fn check(&self, ca: &Files, files: &Files) -> Result<(), Failure> {
        let path = &files.certificate;
        match *self {
            Leaf::Node(name) => check_files(&ca.certificate, path, &files.key, name)
                .map_err(|error| Failure::new(FAILED, error.to_string())),
            Leaf::Host(_) => check_purpose(path, "of a host", |it| it.server_auth),
            Leaf::User(_) => check_purpose(path, "of a user", |it| it.client_auth),
        }
    }
}

fn make_all(dir: &Path, leaves: &[Leaf<'_>], days: u32) -> Result<Vec<(PathBuf, bool)>, Failure> {
    let files = leaves.iter().map(|leaf| leaf.files(dir)).collect::<Result<Vec<_>, _>>()?;
    let mut paths = BTreeSet::new();
    if let Some(twice) = files.iter().find(|files| !paths.insert(&files.certificate)) {
        let path = twice.certificate.display();
        let text =
            format!("{path}: two certificates would have this name: choose another one, or another folder");
        return Err(Failure::new(UNUSABLE, text));
    }
    let end = end_after(days);
    std::fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
    let ca = authority_files(dir);
    let mut done = Vec::new();
    let made = missing(&ca)?;
    if made {
        let key = new_key(&ca)?;
        let certificate = authority().self_signed(&key).map_err(|error| failed(&ca.certificate, error))?;
        ca.write(&key, &certificate.pem())?;
    }
    done.push((ca.certificate.clone(), made));
    let key = std::fs::read_to_string(&ca.key).map_err(|error| failed(&ca.key, error))?;
    let key = KeyPair::from_pem(&key).map_err(|error| failed(&ca.key, error))?;
    // An authority that was made elsewhere may be called otherwise; the check below would tell.
    let issuer = Issuer::new(authority(), key);
    for (leaf, files) in leaves.iter().zip(files) {
        let made = missing(&files)?;
        if made {
            let key = new_key(&files)?;
            let certificate = leaf.params(end)?.signed_by(&key, &issuer);
            files.write(&key, &certificate.map_err(|error| failed(&files.certificate, error))?.pem())?;
        }
        leaf.check(&ca, &files)?;
        done.push((files.certificate, made));
    }
    Ok(done)
}

/// A certificate and its key.
pub struct Files {
    /// The certificate.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// The authority's files.
pub fn authority_files(dir: &Path) -> Files {
    Files { certificate: dir.join("ca.pem"), key: dir.join("ca.key") }
}

/// A node's files.
pub fn node_files(dir: &Path, name: &str) -> Result<Files, Failure> {
    let unusable = |what: String| Failure::new(UNUSABLE, format!("--name: {what}"));
    check_node_name(name).map_err(unusable)?;
    let stem = name.split_once('@').map_or(name, |(stem, _)| stem);
    if stem == "ca" || stem.starts_with('.') || stem.contains('/') {
        return Err(unusable(format!("{stem:?} cannot be the name of a node's files")));
    }
    Ok(Files { certificate: dir.join(format!("{stem}.pem")), key: dir.join(format!("{stem}.key")) })
}

/// The files of a host or a user.
fn named_files(dir: &Path, name: &str, option: &str) -> Result<Files, Failure> {
    if name.is_empty() || name == "ca" || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(Failure::new(UNUSABLE, format!("{option}: {name:?} cannot be the name of files")));
    }
    Ok(Files { certificate: dir.join(format!("{name}.pem")), key: dir.join(format!("{name}.key")) })
}

impl Files {
    /// Writes the key first: a certificate is never there without it.
    fn write(&self, key: &KeyPair, certificate: &str) -> Result<(), Failure> {
        write_new(&self.key, &key.serialize_pem(), KEY_MODE)?;
        write_new(&self.certificate, certificate, CERTIFICATE_MODE)
    }
}

/// Whether neither file is there. One without the other is for a person to look at.
fn missing(files: &Files) -> Result<bool, Failure> {
    match (files.certificate.exists(), files.key.exists()) {
        (true, false) => Err(failed(&files.key, "missing, though its certificate is there")),
        (false, true) => Err(failed(&files.certificate, "missing, though its key is there")),
        (there, _) => Ok(!there),
    }
}

/// Whether a certificate is for a purpose. A host and a user of one name have the same file: the certificate that was
/// made first would be taken for the other one.
fn check_purpose(
    path: &Path,
    owner: &str,
    has: impl Fn(&ExtendedKeyUsage<'_>) -> bool,
) -> Result<(), Failure> {
    let bytes = std::fs::read(path).map_err(|error| failed(path, error))?;
    let (_, pem) = parse_x509_pem(&bytes).map_err(|error| failed(path, error))?;
    let certificate = pem.parse_x509().map_err(|error| failed(path, error))?;
    let usage = certificate.extended_key_usage().map_err(|error| failed(path, error))?;
    // A certificate without purposes was made elsewhere, and is for all.
    if usage.is_none_or(|usage| usage.value.any || has(usage.value)) {
        return Ok(());
    }
    let text = format!("it is there, and is no certificate {owner}: choose another name, or another folder");
    Err(Failure::new(UNUSABLE, format!("{}: {text}", path.display())))
}

fn new_key(files: &Files) -> Result<KeyPair, Failure> {
    KeyPair::generate().map_err(|error| failed(&files.key, error))
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = called(AUTHORITY);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn node(name: &str, end: OffsetDateTime) -> CertificateParams {
    let mut params = CertificateParams::new(vec![certificate_name(name)])
        .expect("hexadecimal digits and dots are text that certificates can have");
    params.distinguished_name = called(name);
    params.not_after = end;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // A node opens connections and accepts them.
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// A certificate for one purpose, of these names and addresses.
fn leaf(
    name: &str,
    hosts: Vec<String>,
    purpose: ExtendedKeyUsagePurpose,
    end: OffsetDateTime,
) -> Result<CertificateParams, Failure> {
    let params = CertificateParams::new(hosts);
    let mut params = params.map_err(|error| Failure::new(UNUSABLE, format!("--host: {name:?}: {error}")))?;
    params.distinguished_name = called(name);
    params.not_after = end;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    Ok(params)
}

/// The moment after so many days.
fn end_after(days: u32) -> OffsetDateTime {
    let end = SystemTime::now() + Duration::from_secs(u64::from(days) * 24 * 3600);
    let seconds = end.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seconds = i64::try_from(seconds).expect("ten years from now are few seconds");
    OffsetDateTime::from_unix_timestamp(seconds).expect("ten years from now are a date")
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|error| failed(path, error))
}

fn failed(path: &Path, what: impl ToString) -> Failure {
    Failure::new(FAILED, format!("{}: {}", path.display(), what.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::prelude::{FromDer, X509Certificate};

    #[test]
    fn certificates_of_clients_have_one_purpose() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, names) = (folder.path(), ["127.0.0.1".to_owned(), "ann".to_owned()]);
        let leaves = || [Leaf::Host(&names[0]), Leaf::User(&names[1])];
        let made = make_all(dir, &leaves(), 1).ok().unwrap();
        assert!(made.len() == 3 && made.iter().all(|(_, is_new)| *is_new), "the authority, and two of it");
        assert!(make_all(dir, &leaves(), 1).ok().unwrap().iter().all(|(_, is_new)| !is_new));

        let purposes = |file: &str| {
            let pem = std::fs::read(dir.join(file)).unwrap();
            let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).unwrap();
            let (_, parsed) = X509Certificate::from_der(&pem.contents).unwrap();
            let key_usage = parsed.extended_key_usage().unwrap().unwrap().value;
            (key_usage.server_auth, key_usage.client_auth)
        };
        assert_eq!((purposes("127.0.0.1.pem"), purposes("ann.pem")), ((true, false), (false, true)));
        let other =
            [Leaf::Host("ann"), Leaf::User("127.0.0.1")].map(|leaf| make_all(dir, &[leaf], 1).err().unwrap());
        assert!(
            other.iter().all(|failure| failure.text.contains("is no certificate of a")),
            "of another owner"
        );
        let twice = make_all(dir, &[Leaf::Host("x"), Leaf::User("x")], 1).err().unwrap();
        assert!(twice.text.contains("two certificates would have this name") && !dir.join("x.pem").exists());
        for bad in ["", "ca", ".hidden", "a/b"] {
            assert!(make_all(dir, &[Leaf::User(bad)], 1).is_err(), "{bad:?}");
        }
    }
}
