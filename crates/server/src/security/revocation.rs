//! Revocation lists of the authority of clients' certificates, read from files of PEM.
//!
//! A list is of use if an authority of the file of authorities has signed it. Each of these authorities needs a list:
//! the status of its certificates would be unknown otherwise, and they would all be refused. Where certificates of
//! another authority stand between, it belongs into the file of authorities, and has a list as well.
//!
//! A list that is older than its next update stays in force: it is better than none. A figure tells its time.

use crate::peer::TlsError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use std::path::{Path, PathBuf};
use x509_parser::prelude::{CertificateRevocationList, FromDer, X509Certificate};

/// Lists that were checked.
#[derive(Default)]
pub(super) struct RevocationLists {
    ders: Vec<CertificateRevocationListDer<'static>>,
    /// The time at which the first of them is to be followed by another, in seconds since 1970; 0 if none says.
    first_update: i64,
}

impl RevocationLists {
    /// The time until which the first of them is to be followed by another, in seconds since 1970; 0 if none says.
    pub(super) fn first_update(&self) -> i64 {
        self.first_update
    }

    /// Their bytes.
    pub(super) fn into_ders(self) -> Vec<CertificateRevocationListDer<'static>> {
        self.ders
    }
}

/// Reads the lists of all files. Each file has one or several.
///
/// # Errors
/// A file without a list, a list that none of the authorities has signed, or an authority without a list.
pub(super) fn read_lists(
    paths: &[PathBuf],
    authorities: &[CertificateDer<'_>],
) -> Result<RevocationLists, TlsError> {
    let mut lists = RevocationLists::default();
    let Some(last) = paths.last() else { return Ok(lists) };
    let authorities: Vec<X509Certificate<'_>> = authorities
        .iter()
        .filter_map(|authority| Some(X509Certificate::from_der(authority).ok()?.1))
        .collect();
    let mut has_list = vec![false; authorities.len()];
    for path in paths {
        for der in ders(path)? {
            let (_, list) = CertificateRevocationList::from_der(&der).map_err(|error| wrong(path, error))?;
            let signer = authorities.iter().position(|authority| has_signed(authority, &list));
            let signer = signer.ok_or_else(|| {
                wrong(
                    path,
                    format!("the list of {} is signed by no authority of tls_client_ca", list.issuer()),
                )
            })?;
            has_list[signer] = true;
            let update = list.next_update().map_or(0, |time| time.timestamp());
            if update != 0 && (lists.first_update == 0 || update < lists.first_update) {
                lists.first_update = update;
            }
            lists.ders.push(der);
        }
    }
    match has_list.iter().position(|has_list| !has_list) {
        None => Ok(lists),
        Some(at) => {
            let name = authorities[at].subject();
            Err(wrong(last, format!("no list of {name}, which is an authority of tls_client_ca")))
        }
    }
}

/// Whether a list is one of an authority that may sign lists.
fn has_signed(authority: &X509Certificate<'_>, list: &CertificateRevocationList<'_>) -> bool {
    let usage = authority.key_usage().ok().flatten();
    authority.subject() == list.issuer()
        && usage.is_none_or(|usage| usage.value.crl_sign())
        && list.verify_signature(authority.public_key()).is_ok()
}

fn ders(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let all = CertificateRevocationListDer::pem_file_iter(path).map_err(|error| wrong(path, error))?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(path, error))?;
    if all.is_empty() { Err(wrong(path, "no revocation list in this file")) } else { Ok(all) }
}

fn wrong(path: &Path, what: impl ToString) -> TlsError {
    TlsError { path: path.to_path_buf(), what: what.to_string() }
}
