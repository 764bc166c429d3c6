//! Logins: the source that decides, and the proof that it asks for.

use std::cmp::Reverse;
use std::net::IpAddr;

use crate::credential::Credential;
use crate::policy::{Policy, UserId};
use crate::source::{Method, Source, covers, normal_address};

/// The proof that a client offers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Offer<'a> {
    /// A password.
    pub password: Option<&'a [u8]>,
    /// The common name of a client certificate that was verified ([`crate::common_name`]).
    pub certificate: Option<&'a [u8]>,
}

/// The decision on a login.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Login<'a> {
    /// The client is the user.
    Accepted(UserId),
    /// The client is the user if the password is right; that costs a hash, which is not made here.
    Verify(UserId, &'a Credential),
    /// The client is not the user. All reasons get the same answer, after the same time.
    Refused(Refusal),
}

/// Why a login is refused; for the audit log, never for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such user.
    #[error("no such user")]
    UnknownUser,
    /// No source has the address.
    #[error("no source for the address")]
    NoSource,
    /// The source wants a password, and none came, or an empty one.
    #[error("no password")]
    EmptyPassword,
    /// The source wants a password, and the user has none.
    #[error("the user has no password")]
    NoCredential,
    /// The source wants a certificate with the user's name, and none came, or one with another name.
    #[error("no certificate of the user")]
    WrongCertificate,
}

impl Policy {
    /// Decides whether the client at `address` is the user of `name`, compared as it was sent.
    pub fn login(&self, name: &[u8], address: IpAddr, offer: Offer<'_>) -> Login<'_> {
        let Some(user) = self.user(name) else { return Login::Refused(Refusal::UnknownUser) };
        let Some(source) = self.source(name, address) else { return Login::Refused(Refusal::NoSource) };
        match source.method {
            Method::Trust => Login::Accepted(user),
            Method::Certificate if offer.certificate == Some(name) => Login::Accepted(user),
            Method::Certificate => Login::Refused(Refusal::WrongCertificate),
            Method::Password => self.login_by_password(user, offer.password.unwrap_or_default()),
        }
    }

    fn login_by_password(&self, user: UserId, password: &[u8]) -> Login<'_> {
        if password.is_empty() && !base::planted!(EmptyPasswordAccepted) {
            return Login::Refused(Refusal::EmptyPassword);
        }
        match &self.at(user).credential {
            None => Login::Refused(Refusal::NoCredential),
            Some(credential) => Login::Verify(user, credential),
        }
    }

    /// The source that decides for a user at an address: the longest prefix, and the user's own before one for all.
    pub fn source(&self, name: &[u8], address: IpAddr) -> Option<&Source> {
        let address = normal_address(address);
        let is_match = |source: &&Source| covers(&source.net, address);
        let own = self.at(self.user(name)?).sources.iter().find(is_match);
        let for_all = self.sources_for_all.iter().find(is_match);
        match (own, for_all) {
            (Some(own), Some(for_all)) => {
                let all_first = base::planted!(AllBeforeUser);
                let (own_bits, all_bits) = (own.net.prefix_len(), for_all.net.prefix_len());
                Some(if all_bits > own_bits || (all_first && all_bits == own_bits) { for_all } else { own })
            }
            (own, for_all) => own.or(for_all),
        }
    }
}

/// Sorts sources as they decide: the longest prefix first.
pub(super) fn sort(sources: &mut [Source]) {
    sources.sort_by_key(|source| Reverse(source.net.prefix_len()));
}
