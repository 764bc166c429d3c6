//! Figures of clients: connections, requests and their times.

use crate::figure::{Figure, Kind, Scope, Unit};

/// Help of the times of requests.
const REQUEST_TIME: &str =
    "time from the begin of a request to its answer; of an index query to its first answer";

/// The rows.
pub(super) const CLIENTS: &[Figure] = rows! {
    Gauge "connections" "annulet_connections" Count: "open connections, of both protocols";
    Gauge "pbc_active" "annulet_protobuf_connections" Count: "open connections by protocol buffers";
    Gauge "pbc_connects" "" Count: "connections by protocol buffers begun in the last minute";
    Counter "pbc_connects_total" "annulet_protobuf_connections_begun" Count: "connections by protocol buffers begun";
    Counter "security_logins" "annulet_logins" Count: "logins of clients that were verified";
    Counter "security_logins_refused" "annulet_logins_refused" Count: "logins of clients that were refused";
    Counter "security_logins_put_off" "annulet_logins_put_off" Count:
        "logins of clients that were not verified, as too many passwords waited or were wrong of late";
    Counter "security_denied" "annulet_requests_denied" Count: "requests that the grants of their users do not cover";
    Counter "security_rate_limited" "annulet_requests_rate_limited" Count:
        "requests that were refused since they were beyond a limit of their users";
    Counter "security_audit_suppressed" "annulet_audit_lines_suppressed" Count:
        "lines of the audit log that refused logins and requests did not get, as too many came from one network";
    Counter "security_would_refuse" "annulet_would_refuse" Count:
        "requests in the permissive mode that would be refused if security were on";
    Counter "security_handshakes_dropped" "annulet_handshakes_dropped" Count:
        "handshakes of TLS that were given up for others, as too many were under way";
    Gauge "client_port_expiry_seconds" "annulet_certificate_expiry_timestamp_seconds" Seconds
        ["certificate" = "client_port"]:
        "end of a certificate's validity, since 1970; 0 without certificates";
    Gauge "client_authority_expiry_seconds" "annulet_certificate_expiry_timestamp_seconds" Seconds
        ["certificate" = "client_authority"]:
        "end of a certificate's validity, since 1970; 0 without certificates";
    Gauge "revocation_list_update_seconds" "annulet_revocation_list_update_timestamp_seconds" Seconds:
        "time until which the first revocation list is to be followed by another, since 1970; 0 without lists";
    Histogram "" "annulet_request_seconds" Seconds ["level" = "eventual", "op" = "get"]: REQUEST_TIME;
    Histogram "" "annulet_request_seconds" Seconds ["level" = "eventual", "op" = "put"]: REQUEST_TIME;
    Histogram "" "annulet_request_seconds" Seconds ["level" = "eventual", "op" = "delete"]: REQUEST_TIME;
    Histogram "" "annulet_request_seconds" Seconds ["level" = "eventual", "op" = "index"]: REQUEST_TIME;
    Histogram "" "annulet_request_seconds" Seconds ["level" = "consistent", "op" = "get"]: REQUEST_TIME;
    Histogram "" "annulet_request_seconds" Seconds ["level" = "consistent", "op" = "put"]: REQUEST_TIME;
    Gauge "node_gets" "" Count: "gets that this node coordinated in the last minute";
    Counter "node_gets_total" "" Count: "gets that this node coordinated: the histogram's count";
    Gauge "node_puts" "" Count: "puts that this node coordinated in the last minute";
    Counter "node_puts_total" "" Count: "puts that this node coordinated: the histogram's count";
    Gauge "node_get_fsm_time_mean" "" Microseconds: "time of a get of the last minute, on average";
    Gauge "node_get_fsm_time_median" "" Microseconds: "time that half of the gets did not exceed";
    Gauge "node_get_fsm_time_95" "" Microseconds: "time that 95 % of the gets did not exceed";
    Gauge "node_get_fsm_time_99" "" Microseconds: "time that 99 % of the gets did not exceed";
    Gauge "node_get_fsm_time_100" "" Microseconds: "longest time of a get";
    Gauge "node_put_fsm_time_mean" "" Microseconds: "time of a put of the last minute, on average";
    Gauge "node_put_fsm_time_median" "" Microseconds: "time that half of the puts did not exceed";
    Gauge "node_put_fsm_time_95" "" Microseconds: "time that 95 % of the puts did not exceed";
    Gauge "node_put_fsm_time_99" "" Microseconds: "time that 99 % of the puts did not exceed";
    Gauge "node_put_fsm_time_100" "" Microseconds: "longest time of a put";
    Counter "errors_total" "annulet_request_errors" Count: "requests answered with an error";
    Counter "refused_total" "annulet_requests_refused" Count: "requests refused because there was too much to do";
    Counter "slow_total" "annulet_slow_requests" Count: "requests that took as long as `--slow`, or longer";
    Gauge "requests_under_way" "annulet_requests_under_way" Count: "requests that are not answered yet";
    Counter "hops_total" "annulet_request_hops" Count: "requests passed on to another shard of this node";
    Counter "consistent_gets_total" "annulet_consistent_requests" Count ["op" = "get"]:
        "requests on consistent types that clients of this node made";
    Counter "consistent_puts_total" "annulet_consistent_requests" Count ["op" = "put"]:
        "requests on consistent types that clients of this node made";
    Counter "purges" "annulet_purges" Count: "purges begun on this node";
    Counter "purge_keys" "annulet_purge_keys" Count: "keys that purges found, each of which was read or deleted";
    Counter "purge_keys_failed" "annulet_purge_keys_failed" Count: "keys of purges that could not be read or deleted";
};
