//! Figures of replicas and other nodes: repairs, hints, hash trees, consistent groups, links.

use crate::figure::{Figure, Kind, Scope, Unit};

/// Help of the states of consistent groups.
const GROUPS: &str = "consistent groups of this node's stores; a group counts in each state that it is in";

/// The rows.
pub(super) const REPLICAS: &[Figure] = rows! {
    Counter "vnode_gets_total" "annulet_vnode_operations" Count ["op" = "get"]:
        "operations of this node's replicas, for its own requests and others'";
    Counter "vnode_puts_total" "annulet_vnode_operations" Count ["op" = "put"]:
        "operations of this node's replicas, for its own requests and others'";
    Counter "vnode_deletes_total" "annulet_vnode_operations" Count ["op" = "delete"]:
        "operations of this node's replicas, for its own requests and others'";
    Counter "replica_reads" "annulet_replica_operations" Count ["op" = "get"]:
        "operations of replicas that other nodes asked for";
    Counter "replica_writes" "annulet_replica_operations" Count ["op" = "put"]:
        "operations of replicas that other nodes asked for";
    Counter "forwards" "annulet_request_forwards" Count: "requests that another node was asked to coordinate";
    Counter "coord_redirs_total" "" Count: "the same as `forwards`";
    Counter "repairs" "annulet_read_repairs" Count: "versions sent to replicas that a read found behind";
    Counter "read_repairs_total" "" Count: "the same as `repairs`";
    Counter "repairs_failed" "annulet_repairs_failed" Count: "repairs of copies of this node that failed";
    Counter "heals" "annulet_heals" Count: "keys whose damaged values were read so that other replicas heal them";
    Counter "heals_failed" "annulet_heals_failed" Count: "keys whose values no replica had whole";
    Counter "hints" "annulet_hints" Count: "writes kept for nodes that were away";
    Counter "hints_home" "annulet_hints_delivered" Count: "hints brought home";
    Counter "hints_lost" "annulet_hints_lost" Count: "hints that could not be kept";
    Counter "hint_rounds" "annulet_hint_rounds" Count:
        "rounds through the hints of one node; the last one finds nothing";
    Counter "handoffs" "annulet_handoffs" Count: "versions sent to the primaries that they were kept for";
    Counter "bounced" "annulet_messages_bounced" Count: "messages to other nodes that could not be sent";
    Counter "reaps_proposed" "annulet_reaps_proposed" Count: "tombstones proposed to be removed";
    Counter "reaps_dropped" "annulet_reaps_dropped" Count: "proposals dropped, as too many waited";
    Counter "reaps_refused" "annulet_reaps_refused" Count: "proposals that some member refused";
    Counter "reaps" "annulet_reaps" Count: "tombstones removed";
    Counter "reaps_swept" "annulet_reaps_swept" Count:
        "tombstones that a sweep found, or that were refused, and that were read to be proposed again";
    Gauge "graves" "annulet_graves" Count: "tombstones whose removal is remembered";
    Counter "context_folds" "annulet_context_folds" Count:
        "keys whose long causal contexts were made short, as this node proposed";
    Counter "context_folds_refused" "annulet_context_folds_refused" Count:
        "proposals of that kind which came to nothing";
    Counter "version_times_ahead" "annulet_version_times_ahead" Count:
        "versions met whose time is more than 10 minutes ahead of this node's clock: some clock is wrong";
    Counter "exchanges" "annulet_exchanges" Count: "hash trees that differed from another node's and were looked into";
    Counter "exchanges_failed" "annulet_exchanges_failed" Count: "exchanges that came to no end";
    Counter "exchange_keys" "annulet_exchange_keys" Count:
        "keys that exchanges found to differ, and that were read for repair";
    Counter "trees_made" "annulet_trees_made" Count: "partitions whose hash trees were made from their heads";
    Counter "trees_kept" "annulet_trees_kept" Count: "partitions whose hash trees an earlier process left";
    Counter "trees_wrong" "annulet_trees_wrong" Count:
        "hash trees that differed from their store, without known damage";
    Gauge "trees_due" "annulet_trees_due" Count: "partitions whose hash trees are yet to be made";
    Gauge "tree_bytes" "annulet_tree_memory_bytes" Bytes: "memory of hash trees";
    Gauge "tree_keys" "annulet_tree_keys" Count: "keys in hash trees";
    Counter "tree_bytes_written" "annulet_tree_written_bytes" Bytes:
        "bytes written so that hash trees outlive the process";
    Counter "rebuild_keys" "annulet_tree_rebuild_keys" Count: "keys that rebuilds of hash trees read";
    Counter "rebuild_micros" "annulet_tree_rebuild_seconds" Microseconds: "time of rebuilds of hash trees";
    Counter "rebuild_damaged" "annulet_tree_rebuild_damaged" Count:
        "keys whose values a rebuild found missing or damaged";
    Gauge "consistent_groups" "annulet_consistent_groups" Count ["state" = "held"]: GROUPS;
    Gauge "consistent_groups_led" "annulet_consistent_groups" Count ["state" = "led"]: GROUPS;
    Gauge "consistent_groups_without_leader" "annulet_consistent_groups" Count ["state" = "without_leader"]: GROUPS;
    Gauge "consistent_groups_suspect" "annulet_consistent_groups" Count ["state" = "suspect"]: GROUPS;
    Gauge "consistent_groups_forgotten" "annulet_consistent_groups" Count ["state" = "forgotten"]: GROUPS;
    Gauge "consistent_groups_incomplete" "annulet_consistent_groups" Count ["state" = "incomplete"]: GROUPS;
    Gauge "consistent_groups_unreadable" "annulet_consistent_groups" Count ["state" = "unreadable"]: GROUPS;
    Gauge "consistent_groups_without_vote" "annulet_consistent_groups" Count ["state" = "without_vote"]: GROUPS;
    Gauge "consistent_groups_dormant" "annulet_consistent_groups" Count ["state" = "dormant"]: GROUPS;
    Counter "consistent_unloads" "annulet_consistent_unloads" Count:
        "consistent groups at rest that left memory, so that others have room";
    Counter "consistent_elections_total" "annulet_consistent_elections" Count:
        "leaders of consistent groups elected at this node, without hand-overs and the first one of each group";
    Counter "consistent_groups_begun_total" "annulet_consistent_groups_begun" Count:
        "consistent groups whose first leader was elected at this node; a group begins with its first request";
    Counter "consistent_hand_overs_total" "annulet_consistent_hand_overs" Count:
        "leaders of consistent groups at this node to which the leader before handed the group over";
    Counter "consistent_lease_reads_total" "annulet_consistent_lease_reads" Count:
        "reads of consistent types that leaders here answered by their leases, without a question to another node";
    Counter "consistent_index_reads_total" "annulet_consistent_index_reads" Count:
        "reads of consistent types that another node confirmed before this one answered";
    Counter "consistent_promises_lapsed_total" "annulet_consistent_promises_lapsed" Count:
        "promises to other nodes not to vote that had lapsed, and were renewed before a vote closed them";
    Counter "consistent_catch_ups" "annulet_consistent_catch_ups" Count:
        "catch-ups of voters that fell behind, begun by leaders here";
    Counter "consistent_replacements_begun" "annulet_consistent_replacements_begun" Count:
        "learners that leaders here added in the place of voters whose stores were lost";
    Counter "consistent_replacements_done" "annulet_consistent_replacements_done" Count:
        "replacements of lost stores that leaders here ended";
    Counter "consistent_malformed" "annulet_consistent_malformed_messages" Count:
        "messages of consistent groups that were not understood";
    Gauge "peers_up" "annulet_peers_up" Count: "other nodes that every shard can reach";
    Gauge "cluster_majority" "annulet_cluster_majority" Count:
        "1 if this node reaches a majority of the members and one of the voters, else 0; 1 on a node alone";
    Gauge "cluster_members" "annulet_cluster_members" Count:
        "members that own data or are about to, this node among them";
    Gauge "cluster_members_reached" "annulet_cluster_members_reached" Count: "members of those that this node reaches";
    Gauge "cluster_voters" "annulet_cluster_voters" Count: "voters of the metadata log";
    Gauge "cluster_voters_reached" "annulet_cluster_voters_reached" Count: "voters that this node reaches";
    Gauge "certificate_expiry_seconds" "annulet_certificate_expiry_timestamp_seconds" Seconds ["certificate" = "node"]:
        "end of a certificate's validity, since 1970; 0 without certificates";
    Gauge "authority_expiry_seconds" "annulet_certificate_expiry_timestamp_seconds" Seconds
        ["certificate" = "authority"]:
        "end of a certificate's validity, since 1970; 0 without certificates";
    Counter "peer_strangers_refused" "annulet_peer_strangers_refused" Count:
        "connections to the peers' port that were not of this cluster";
    Gauge "peer_links_up" "annulet_peer_links" Count ["direction" = "out"] for Peer:
        "connections to another node that may be sent on, or that are read";
    Gauge "peer_links_in" "annulet_peer_links" Count ["direction" = "in"] for Peer:
        "connections to another node that may be sent on, or that are read";
    Counter "peer_frames_sent" "annulet_peer_messages" Count ["direction" = "out"] for Peer:
        "messages to and from another node";
    Counter "peer_frames_received" "annulet_peer_messages" Count ["direction" = "in"] for Peer:
        "messages to and from another node";
    Counter "peer_bytes_sent" "annulet_peer_bytes" Bytes ["direction" = "out"] for Peer:
        "bytes of messages to and from another node";
    Counter "peer_bytes_received" "annulet_peer_bytes" Bytes ["direction" = "in"] for Peer:
        "bytes of messages to and from another node";
    Counter "peer_writes" "annulet_peer_calls" Count ["direction" = "out"] for Peer:
        "system calls that wrote or read messages";
    Counter "peer_reads" "annulet_peer_calls" Count ["direction" = "in"] for Peer:
        "system calls that wrote or read messages";
    Counter "peer_bounced" "annulet_peer_messages_bounced" Count for Peer:
        "messages given back because a link was down or its queue full";
    List "peers" "" Count: "the figures above that begin with `peer_`, except `peer_strangers_refused`, by node";
};
