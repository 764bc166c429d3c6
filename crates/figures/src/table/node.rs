//! Figures of the node: its name, process, machine, memory and log.

use crate::figure::{Figure, Kind, Scope, Unit};

/// Help of the parts of the plan of memory.
const MEMORY_USED: &str = "memory in use of a part of the plan for large pieces";

/// Help of the refusals by these parts.
const MEMORY_REFUSED: &str = "times that the part was full, and `overload` was answered";

/// The rows.
pub(super) const NODE: &[Figure] = rows! {
    Text "nodename" "annulet_node_info" Count ["node" = ""]: "the name of the node";
    Text "annulet_version" "annulet_build_info" Count ["version" = ""]: "the version of the program";
    Text "riak_kv_version" "annulet_build_info" Count ["riak" = ""]: "the Riak whose features clients may expect";
    Text "riak_core_version" "" Count: "the same";
    Text "storage_backend" "annulet_node_info" Count ["backend" = ""]: "`annulet`, or the name of another backend";
    Text "storage_type_backends" "annulet_node_info" Count ["type_backends" = ""]:
        "bucket types with stores of their own, and their backends; empty if there are none";
    List "ring_members" "" Count: "the members of the cluster";
    List "connected_nodes" "" Count: "the nodes that a message could be sent to";
    List "options" "" Count: "every option in force";
    Gauge "ring_creation_size" "" Count: "partitions of the ring when the node started";
    Gauge "ring_num_partitions" "annulet_ring_partitions" Count: "partitions of the ring";
    Gauge "shards" "annulet_shards" Count: "threads that own a store each";
    Gauge "ready" "annulet_ready" Count: "1 if `/health/ready` says that clients are to be sent to the node, else 0";
    Gauge "memory_total" "process_resident_memory_bytes" Bytes: "memory that the process holds";
    Gauge "process_virtual_memory_bytes" "process_virtual_memory_bytes" Bytes: "address space of the process";
    Counter "process_cpu_seconds_total" "process_cpu_seconds" Seconds:
        "CPU time of the process, of users and of the system";
    Gauge "process_start_time_seconds" "process_start_time_seconds" Seconds: "start of the process, since 1970";
    Gauge "process_open_fds" "process_open_fds" Count: "open file descriptors";
    Gauge "process_max_fds" "process_max_fds" Count: "file descriptors that the process may have";
    Gauge "process_threads" "process_threads" Count: "threads of the process";
    Gauge "mem_total" "annulet_machine_memory_bytes" Bytes: "memory of the machine";
    Gauge "mem_allocated" "annulet_machine_memory_used_bytes" Bytes: "memory in use on the machine";
    Gauge "cpu_avg1" "annulet_machine_load" Load ["minutes" = "1"]: "load average of the machine over so many minutes";
    Gauge "cpu_avg5" "annulet_machine_load" Load ["minutes" = "5"]: "load average of the machine over so many minutes";
    Gauge "cpu_avg15" "annulet_machine_load" Load ["minutes" = "15"]:
        "load average of the machine over so many minutes";
    Gauge "cpu_nprocs" "annulet_machine_threads" Count: "threads of the machine";
    Gauge "sys_logical_processors" "annulet_processors" Count: "processors that the process may use";
    Gauge "disk_free_bytes" "annulet_disk_free_bytes" Bytes:
        "space of the data folder's disk that the process may still take";
    Gauge "disk_size_bytes" "annulet_disk_size_bytes" Bytes: "size of the data folder's disk";
    Gauge "memory_limit" "annulet_memory_limit_bytes" Bytes: "memory that the node may use";
    Gauge "memory_requests" "annulet_memory_used_bytes" Bytes ["part" = "requests"]: MEMORY_USED;
    Gauge "memory_values" "annulet_memory_used_bytes" Bytes ["part" = "values"]: MEMORY_USED;
    Gauge "memory_answers" "annulet_memory_used_bytes" Bytes ["part" = "answers"]: MEMORY_USED;
    Gauge "memory_messages" "annulet_memory_used_bytes" Bytes ["part" = "messages"]: MEMORY_USED;
    Gauge "memory_records" "annulet_memory_used_bytes" Bytes ["part" = "records"]: MEMORY_USED;
    Counter "memory_requests_refused_total" "annulet_memory_refused" Count ["part" = "requests"]: MEMORY_REFUSED;
    Counter "memory_values_refused_total" "annulet_memory_refused" Count ["part" = "values"]: MEMORY_REFUSED;
    Counter "memory_answers_refused_total" "annulet_memory_refused" Count ["part" = "answers"]: MEMORY_REFUSED;
    Counter "memory_records_refused_total" "annulet_memory_refused" Count ["part" = "records"]: MEMORY_REFUSED;
    Counter "log_lines_total" "annulet_log_lines" Count: "lines of the log";
    Counter "log_lines_dropped_total" "annulet_log_lines_dropped" Count:
        "lines that were dropped, as standard error took them too slowly or not at all";
};
