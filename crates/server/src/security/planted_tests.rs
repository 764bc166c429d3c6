//! Planted bugs of the doors: each fails the test of its rule.
//!
//! `cargo test -p server --features planted --lib planted`

use super::door_tests::{
    a_certificate_of_a_node_logs_nobody_in, a_revoked_certificate_ends_its_connections,
    each_request_by_https_logs_in,
};
use super::logins::tests::{a_changed_password_is_in_force_at_once, a_new_policy_costs_no_hash};
use super::tls::tests::nodes_and_clients_have_authorities_apart;
use base::planted::{Planted, plant};

#[test]
fn planted_bugs_of_the_doors_are_caught() {
    let rules: [(Planted, fn()); 6] = [
        (Planted::CacheSurvivesPasswordChange, a_changed_password_is_in_force_at_once),
        (Planted::HerdOnPolicyChange, a_new_policy_costs_no_hash),
        (Planted::ResumedAfterRevocation, a_revoked_certificate_ends_its_connections),
        (Planted::ClientCertificateJoins, nodes_and_clients_have_authorities_apart),
        (Planted::ForwardedForBelieved, each_request_by_https_logs_in),
        (Planted::PeerCertificateLogsIn, a_certificate_of_a_node_logs_nobody_in),
    ];
    for (bug, rule) in rules {
        plant(Some(bug));
        let told = std::panic::catch_unwind(rule);
        plant(None);
        assert!(told.is_err(), "{bug:?} is not caught");
    }
}
