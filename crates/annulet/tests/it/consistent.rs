//! Real processes: activation of consistent bucket types, births and registrations through restarts, recoveries.

use crate::common::nodes::{Cluster, count, name, until};
use crate::common::{Server, annulet, http, run};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;

/// Prefixes of a ring, if nothing else is said: each has a group.
const PREFIXES: usize = 1_024;

const PROPS: &str = r#"{"props":{"consistent":true,"n_val":3}}"#;

/// Runs `annulet admin`: its exit code, and what it says.
fn admin(server: &Server, words: &[&str]) -> (Option<i32>, String) {
    let output = run(Path::new("."), &[&["admin"], words, &["--node", &server.http]].concat());
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

fn done(server: &Server, words: &[&str]) -> String {
    let (code, text) = admin(server, words);
    assert_eq!(code, Some(0), "{words:?}: {text}");
    text
}

fn refused(server: &Server, words: &[&str], why: &str) {
    let (code, text) = admin(server, words);
    assert!(code == Some(1) && text.contains(why), "{words:?}: {text}");
}

fn strong(server: &Server) -> Value {
    serde_json::from_str(&done(server, &["strong", "status", "--json"])).unwrap()
}

/// Runs `annulet kv` on a key of the consistent type: its exit code, and what it says.
fn kv(server: &Server, command: &str, words: &[&str]) -> (Option<i32>, String) {
    kv_of(server, "k", command, words)
}

/// The same on another key.
fn kv_of(server: &Server, key: &str, command: &str, words: &[&str]) -> (Option<i32>, String) {
    let words = [&["kv", command, "--type", "accounts", "b", key], words, &["--node", &server.http]].concat();
    let output = run(Path::new("."), &words);
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// Writes the key. A try that ended by a timeout may have done it: the next one fails then.
fn until_written(server: &Server) {
    until("a write", || {
        let (code, text) = kv(server, "put", &["one"]);
        code == Some(0) || text.contains("failed")
    });
}

/// The context of the key's version, for a conditional write.
fn context(server: &Server) -> String {
    let (_, text) = kv(server, "head", &[]);
    let context = text.lines().find_map(|line| line.strip_prefix("context"));
    context.unwrap_or_default().trim().to_owned()
}

/// Members' births, once all of their last starts have registered them.
fn births(server: &Server) -> Value {
    let mut births = Value::Null;
    until("all stores are registered", || {
        let members = strong(server)["members"].as_array().unwrap().clone();
        births = members.iter().map(|member| member["births"].clone()).collect();
        members.iter().all(|member| member["registered"] == true)
    });
    births
}

/// The last start of a member that has registered its stores.
fn process(server: &Server, member: usize) -> Value {
    strong(server)["members"][member]["process"].clone()
}

/// The same as [`births`], once another start of a member than `before` has registered.
fn births_after(server: &Server, member: usize, before: &Value) -> Value {
    until("the new start is registered", || {
        let now = process(server, member);
        !now.is_null() && now != *before
    });
    births(server)
}

#[test]
fn a_node_alone_activates_a_consistent_type_and_goes_on_with_its_births() {
    let home = tempfile::tempdir().unwrap();
    let args = ["--data", "data", "--shards", "2"];
    let node = Server::start(home.path(), &args);
    assert_eq!(strong(&node)["registers"], false);
    assert!(done(&node, &["ensemble-status"]).contains("no consistent bucket type was activated"));
    done(&node, &["bucket-type", "create", "accounts", PROPS]);
    done(&node, &["bucket-type", "create", "plain"]);
    done(&node, &["bucket-type", "activate", "plain"]);
    assert_eq!(strong(&node)["registers"], false, "the other types need nothing of it");
    done(&node, &["bucket-type", "activate", "accounts"]);
    assert!(done(&node, &["bucket-type", "status", "accounts"]).contains("accounts is active"));
    let first = births(&node);
    assert_eq!(first[0].as_array().unwrap().len(), 2);
    let founding = strong(&node)["foundings"][0].clone();
    assert_eq!((&founding["n_val"], &founding["nodes"].as_array().unwrap().len()), (&json!(3), &1));
    refused(&node, &["cluster", "resize-ring", "128"], "partitions do not move while");
    until_written(&node);
    let before = process(&node, 0);
    node.kill();

    let again = Server::start(home.path(), &args);
    assert_eq!((&births_after(&again, 0, &before), &strong(&again)["foundings"][0]), (&first, &founding));
    until("a read", || kv(&again, "get", &[]) == (Some(0), "one".into()));
    let before = process(&again, 0);
    again.stop();

    let backup = |words: &[&str]| {
        let output = run(home.path(), &[&["backup"], words].concat());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(backup(&["create", "backups", "--data", "data", "--name", "b"]).0, Some(0));
    let restored = run(home.path(), &["backup", "restore", "backups/b", "--data", "restored"]);
    let text = String::from_utf8(restored.stdout).unwrap();
    assert!(restored.status.success() && text.contains("annulet admin strong recover --all"), "{text}");
    let restored = Server::start(home.path(), &["--data", "restored"]);
    until("the node is held back", || strong(&restored)["held"] == true);
    assert_eq!(strong(&restored)["members"][0]["registered"], false);
    let recovered = done(&restored, &["strong", "recover", "--all", "--accept-loss"]);
    assert!(recovered.contains("1024 groups can be recovered"), "{recovered}");
    let second = births_after(&restored, 0, &before);
    for shard in 0..2 {
        assert_ne!(second[0][shard], first[0][shard], "a restored store is another voter");
    }
    assert_eq!(strong(&restored)["foundings"][0]["number"], founding["number"]);
    until("a read", || kv(&restored, "get", &[]) == (Some(0), "one".into()));
    restored.stop();
}

#[test]
fn a_cluster_founds_groups_once_all_are_there_and_its_partitions_stay() {
    let cluster = Cluster::new(3);
    let mut servers = vec![cluster.start(1, &[]), cluster.start(2, &[])];
    done(&servers[0], &["bucket-type", "create", "accounts", PROPS]);
    let activate = ["bucket-type", "activate", "accounts"];
    refused(&servers[0], &activate, &format!("{} is not reached", name(3)));
    servers.push(cluster.start(3, &[]));
    until("the activation", || admin(&servers[1], &activate).0 == Some(0));
    let first = births(&servers[2]);
    assert_eq!(first.as_array().unwrap().len(), 3);
    for server in &servers {
        assert_eq!(strong(server)["foundings"][0]["nodes"].as_array().unwrap().len(), 3);
    }

    done(&servers[0], &["cluster", "leave", &name(3)]);
    let plan = done(&servers[0], &["cluster", "plan"]);
    assert!(plan.contains("partitions do not move while there are consistent bucket types"), "{plan}");
    refused(&servers[0], &["cluster", "commit"], "partitions do not move while");
    done(&servers[0], &["cluster", "clear"]);

    let before = process(&servers[0], 1);
    servers.remove(1).kill();
    servers.insert(1, cluster.start(2, &[]));
    let ready = || servers[1].http_get("/health/ready");
    until("it is to catch up", || ready().contains("the node is starting: its consistent groups"));
    until("it has caught up", || ready().starts_with("HTTP/1.1 200"));
    assert_eq!(births_after(&servers[1], 1, &before), first);
    until_written(&servers[1]);
    until("a read", || kv(&servers[2], "get", &[]) == (Some(0), "one".into()));

    let before = process(&servers[0], 2);
    servers.remove(2).stop();
    std::fs::remove_dir_all(cluster.dir.path().join("n3/shard-000")).unwrap();
    servers.push(cluster.start(3, &[]));
    let second = births_after(&servers[2], 2, &before);
    assert_eq!((&second[0], &second[1]), (&first[0], &first[1]));
    assert_ne!(second[2], first[2], "a lost store is another voter");
}

/// Waits until the store of a node votes in all groups.
fn until_voting(server: &Server, groups: usize) {
    until("the store votes", || {
        let status = strong(server);
        let roles: Vec<&Value> = status["groups"].as_array().unwrap().iter().map(|it| &it["role"]).collect();
        roles.len() == groups && !roles.contains(&&json!("learner"))
    });
}

#[test]
fn stores_that_are_lost_one_after_the_other_are_replaced_without_a_loss() {
    let cluster = Cluster::new(3);
    let mut servers: Vec<Server> = (1..=3).map(|node| cluster.start(node, &[])).collect();
    done(&servers[0], &["bucket-type", "create", "accounts", PROPS]);
    done(&servers[0], &["bucket-type", "activate", "accounts"]);
    births(&servers[0]);
    until_written(&servers[0]);
    for lost in [2, 1] {
        let before = process(&servers[0], lost);
        servers.remove(lost).stop();
        std::fs::remove_dir_all(cluster.dir.path().join(format!("n{}/shard-000", lost + 1))).unwrap();
        servers.insert(lost, cluster.start(lost + 1, &[]));
        births_after(&servers[lost], lost, &before);
        until_voting(&servers[lost], PREFIXES);
        // Without the first node a group in a joint configuration with the lost store has no majority.
        until("all groups are settled", || strong(&servers[0])["summary"]["unsettled"] == 0);
    }
    servers.remove(0).kill();
    until("a read", || kv(&servers[0], "get", &[]) == (Some(0), "one".into()));
}

/// Makes a node that reaches no other voter lead the metadata log.
fn recover_log(server: &Server) {
    let mut shown = Value::Null;
    until("the others are missed", || {
        let (code, text) = admin(server, &["cluster", "recover", "--json"]);
        shown = serde_json::from_str(&text).unwrap_or_default();
        code == Some(0) && shown["lost"] == true
    });
    done(server, &["cluster", "recover", shown["word"].as_str().unwrap()]);
}

/// Runs `annulet admin strong recover` on the folder of the first node.
fn recover_groups(dir: &Path, words: &[&str]) -> (Option<i32>, String) {
    let output = run(dir, &[&["admin", "strong", "recover", "--data", "n1"], words].concat());
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn a_survivor_is_recovered_with_all_that_it_has_and_the_others_come_back() {
    let cluster = Cluster::new(3);
    let dir = cluster.dir.path();
    let mut servers: Vec<Server> = (1..=3).map(|node| cluster.start(node, &[])).collect();
    done(&servers[0], &["bucket-type", "create", "accounts", PROPS]);
    done(&servers[0], &["bucket-type", "activate", "accounts"]);
    let first = births(&servers[0]);
    until_written(&servers[0]);
    until("the survivor has it", || strong(&servers[0])["summary"]["unsettled"] == 0);
    let (two, three) = (name(2), name(3));
    let declare = ["strong", "declare-lost", &two, &three];
    refused(&servers[0], &declare, "n2@127.0.0.1 is reached: its stores are not lost");
    servers.drain(1..).for_each(Server::kill);
    std::fs::remove_dir_all(dir.join("n2")).unwrap();
    std::fs::rename(dir.join("n3"), dir.join("found-again")).unwrap();
    recover_log(&servers[0]);

    let (code, text) = recover_groups(dir, &[]);
    assert!(code == Some(2) && text.contains("another process is using the data"), "{text}");
    refused(&servers[0], &["strong", "declare-lost", "n9@127.0.0.1"], "n9@127.0.0.1 is no member");
    assert!(done(&servers[0], &declare).contains("nothing was changed: --accept-loss"));
    assert_eq!(strong(&servers[0])["foundings"][0]["epoch"], 0);
    done(&servers[0], &[&declare[..], &["--accept-loss"]].concat());
    assert_eq!(strong(&servers[0])["foundings"][0]["epoch"], 1);
    servers.remove(0).stop();

    let (code, text) = recover_groups(dir, &[]);
    assert!(code == Some(0) && text.contains("; voters n1@127.0.0.1; epoch 1"), "{text}");
    assert!(text.contains("1024 groups can be recovered"), "{text}");
    let (code, text) = recover_groups(dir, &["--accept-loss"]);
    assert!(code == Some(0) && text.contains("1024 groups recovered"), "{text}");
    let (code, text) = recover_groups(dir, &["--accept-loss"]);
    assert!(code == Some(0) && text.contains("1024 groups kept: a majority"), "a second try: {text}");

    let survivor = cluster.start(1, &[]);
    until("a read", || kv(&survivor, "get", &[]) == (Some(0), "one".into()));
    until("a write over the version before the recovery", || {
        let context = context(&survivor);
        kv(&survivor, "put", &["two", "--vclock", &context]).0 == Some(0)
    });
    until("its read", || kv(&survivor, "get", &[]) == (Some(0), "two".into()));
    std::fs::rename(dir.join("found-again"), dir.join("n3")).unwrap();
    let others = [2, 3].map(|node| cluster.start(node, &[]));
    for other in &others {
        until_voting(other, PREFIXES);
    }
    let now = births(&survivor);
    assert_eq!(now[0], first[0]);
    assert!(now[1] != first[1] && now[2] != first[2], "lost stores do not vote again: {now}");
    until("the new voters have it", || strong(&survivor)["summary"]["unsettled"] == 0);
    survivor.kill();
    until("a read of the new voters", || kv(&others[0], "get", &[]) == (Some(0), "two".into()));
}

/// Writes a key whose value is its name. A try that ended by a timeout may have done it: the next one fails then.
fn until_has(server: &Server, key: &str) {
    until("a write", || {
        let (code, text) = kv_of(server, key, "put", &[key]);
        code == Some(0) || text.contains("failed")
    });
}

/// Lets a restored node go on without a group, as a recovery does that ends after its first node.
fn release_without_groups(server: &Server) {
    let ask = |method: &str, path: &str, body: &str| -> Value {
        let answer = http(&server.http, method, path, body);
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let declared = ask("POST", "/admin/cluster/declare-lost", r#"{"nodes":[],"accept_loss":true}"#);
    assert_eq!(declared["declared"], true);
    let earlier = ask("GET", "/admin/strong/copies", "");
    let survey = ask("GET", "/admin/strong/copies", "");
    assert_eq!(survey["foundings"][0]["epoch"], 1);
    let release = |survey: &Value| {
        let body = json!({ "survey": survey["survey"], "epochs": { "3": 1 }, "groups": {} });
        ask("POST", "/admin/strong/release", &body.to_string())
    };
    let refused = release(&earlier);
    assert!(refused["error"].as_str().unwrap().starts_with("another recovery has surveyed"), "{refused}");
    assert_eq!(release(&survey), json!({ "groups": 0 }));
    until("it has gone on", || strong(server)["members"][0]["registered"] == true);
}

/// Starts a node whose backups are outside of its data folder.
fn start_backed_up(cluster: &Cluster, node: usize) -> Server {
    cluster.start(node, &["--backup-dir", &format!("backups-{node}")])
}

/// Starts three nodes, and activates the type.
fn start_accounts(cluster: &Cluster) -> Vec<Server> {
    let servers: Vec<Server> = (1..=3).map(|node| start_backed_up(cluster, node)).collect();
    done(&servers[0], &["bucket-type", "create", "accounts", PROPS]);
    done(&servers[0], &["bucket-type", "activate", "accounts"]);
    servers
}

/// Makes a backup of a node that runs.
fn back_up(dir: &Path, server: &Server) {
    let made = run(dir, &["backup", "create", "--name", "b", "--copy", "--node", &server.http]);
    assert!(made.status.success(), "{made:?}");
}

/// Puts the backup of a node in the place of its data.
fn restore(dir: &Path, node: usize) {
    std::fs::remove_dir_all(dir.join(format!("n{node}"))).unwrap();
    let (backup, data) = (format!("backups-{node}/b"), format!("n{node}"));
    let restored = run(dir, &["backup", "restore", &backup, "--data", &data]);
    assert!(restored.status.success(), "{restored:?}");
}

/// Runs `annulet admin strong recover --all` for these nodes.
fn recover_all(dir: &Path, servers: &[Server], words: &[&str]) -> (Option<i32>, String) {
    let all = servers.iter().map(|it| it.http.clone()).collect::<Vec<_>>().join(",");
    let command = ["admin", "strong", "recover", "--all", "--node", &all];
    let output = run(dir, &[&command[..], words].concat());
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// Ends the wait of a restored node's metadata log for a lost member.
fn end_wait(server: &Server, lost: &str) {
    let shown =
        || -> Value { serde_json::from_str(&done(server, &["cluster", "recover", "--json"])).unwrap() };
    until("one member is waited for", || shown()["awaited"] == json!([lost]));
    let text = done(server, &["cluster", "recover"]);
    assert!(text.contains(&format!("was restored from a backup, and waits for {lost}")), "{text}");
    done(server, &["cluster", "recover", shown()["word"].as_str().unwrap()]);
}

#[test]
fn a_node_without_a_backup_is_given_up_and_comes_back_empty() {
    let cluster = Cluster::new(3);
    let dir = cluster.dir.path();
    let mut servers = start_accounts(&cluster);
    births(&servers[0]);
    until_written(&servers[0]);
    servers[..2].iter().for_each(|server| back_up(dir, server));
    servers.drain(..).for_each(Server::kill);
    [1, 2].into_iter().for_each(|node| restore(dir, node));
    std::fs::remove_dir_all(dir.join("n3")).unwrap();

    servers = [1, 2].map(|node| start_backed_up(&cluster, node)).into();
    for server in &servers {
        until("the node is held back", || strong(server)["held"] == true);
    }
    let (code, text) = recover_all(dir, &servers, &["--accept-loss"]);
    assert!(code == Some(1) && text.contains("not surveyed: 1 of 3 nodes: n3@127.0.0.1"), "{text}");
    end_wait(&servers[0], &name(3));
    let without = ["--without", "n3@127.0.0.1", "--accept-loss"];
    let (code, text) = recover_all(dir, &servers, &without);
    assert!(code == Some(0) && text.contains("1024 groups can be recovered"), "{text}");
    assert!(!text.contains("may be lost"), "two of three have all writes: {text}");
    until("a read", || kv(&servers[1], "get", &[]) == (Some(0), "one".into()));
    servers.push(start_backed_up(&cluster, 3));
    until_voting(&servers[2], PREFIXES);
}

#[test]
fn a_cluster_restored_from_backups_of_different_moments_has_all_consistent_keys_again() {
    let cluster = Cluster::new(3);
    let dir = cluster.dir.path();
    let mut servers = start_accounts(&cluster);
    let first = births(&servers[0]);
    let mut keys: Vec<String> = (0..12).map(|key| format!("k{key}")).collect();
    keys.iter().for_each(|key| until_has(&servers[0], key));
    for (at, server) in servers.iter().enumerate() {
        back_up(dir, server);
        if at == 0 {
            // The first backup lacks it. One of the others has it, since a majority has.
            keys.push("later".to_owned());
            until_has(server, "later");
        }
    }
    servers.drain(..).for_each(Server::kill);
    (1..=3).for_each(|node| restore(dir, node));

    servers = (1..=3).map(|node| start_backed_up(&cluster, node)).collect();
    let of_all = |words: &[&str]| recover_all(dir, &servers, words);
    for server in &servers {
        until("the node is held back", || strong(server)["held"] == true);
        until("it serves all other types", || server.http_get("/health/ready").starts_with("HTTP/1.1 200"));
        assert!(done(server, &["strong", "status"]).contains("`annulet admin strong recover --all` is run"));
    }
    let (code, text) = recover_all(dir, &servers[..1], &[]);
    assert!(
        code == Some(1) && text.contains("not surveyed: 2 of 3 nodes: n2@127.0.0.1, n3@127.0.0.1"),
        "{text}"
    );
    release_without_groups(&servers[0]);
    let (code, text) = of_all(&[]);
    assert!(code == Some(0) && text.contains("1024 groups can be recovered"), "{text}");
    assert!(
        text.contains("2 nodes held back") && text.contains("nothing was changed: --accept-loss"),
        "{text}"
    );
    let (code, text) = of_all(&["--accept-loss"]);
    assert!(code == Some(0) && text.contains("recovered: the nodes refill each other"), "{text}");
    let (code, text) = of_all(&["--accept-loss"]);
    assert!(code == Some(0) && text.contains("nothing to recover"), "a second time: {text}");

    for (at, key) in keys.iter().enumerate() {
        until("a read", || kv_of(&servers[at % 3], key, "get", &[]) == (Some(0), key.clone()));
    }
    until("a write over a restored version", || {
        let (_, text) = kv_of(&servers[1], "k0", "head", &[]);
        let context = text.lines().find_map(|line| line.strip_prefix("context")).unwrap_or_default();
        kv_of(&servers[1], "k0", "put", &["two", "--vclock", context.trim()]).0 == Some(0)
    });
    for server in &servers {
        until("the node is ready", || server.http_get("/health/ready").contains(r#""findings":[]"#));
    }
    servers.iter().for_each(|server| until_voting(server, PREFIXES));
    let now = births(&servers[0]);
    assert!((0..3).all(|node| now[node] != first[node]), "restored stores are other voters: {now}");
    for server in &servers {
        until("all groups are settled", || strong(server)["summary"]["unsettled"] == 0);
    }
    servers.remove(2).kill();
    until("a read without one of them", || kv_of(&servers[0], "k0", "get", &[]) == (Some(0), "two".into()));
}

#[test]
fn a_node_with_another_backend_has_no_consistent_types() {
    let home = tempfile::tempdir().unwrap();
    let node = Server::start(home.path(), &["--data", "data", "--shards", "1", "--backend", "bitcask"]);
    done(&node, &["bucket-type", "create", "accounts", PROPS]);
    refused(&node, &["bucket-type", "activate", "accounts"], "whose only backend is annulet");
}

/// Every operation of a consistent type on few keys, from eight connections over three nodes.
fn workload(servers: &[Server]) -> String {
    let addresses: Vec<&String> = servers.iter().map(|server| &server.pb).collect();
    let operations = [("get", 4), ("put_once", 2), ("cas", 4), ("delete", 1), ("delete_if", 1)];
    let operations =
        operations.map(|(op, weight)| format!("[[operation]]\nop = {op:?}\nweight = {weight}\n"));
    format!(
        "driver = \"pb\"\naddresses = {addresses:?}\nbucket_type = \"accounts\"\nconsistent = true\n\
         concurrency = 8\nwarm_up = \"0s\"\noperations_max = 6000\n[keys]\nkind = \"uniform\"\ncount = 20\n\
         [value]\nsize = 100\n{}",
        operations.concat()
    )
}

#[test]
fn clients_see_one_order_of_writes_while_nodes_are_killed() {
    let cluster = Cluster::new(3);
    let mut servers: Vec<Server> = (1..=3).map(|node| cluster.start(node, &[])).collect();
    done(&servers[0], &["bucket-type", "create", "accounts", PROPS]);
    done(&servers[0], &["bucket-type", "activate", "accounts"]);
    births(&servers[0]);

    let dir = cluster.dir.path();
    std::fs::write(dir.join("w.toml"), workload(&servers)).unwrap();
    let words = ["bench", "run", "w.toml", "--out", "results", "--history", "history.jsonl"];
    let mut load = annulet(dir, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    for killed in [2, 3] {
        let before = count(&servers[0], "consistent_puts_total");
        until("writes are under way", || {
            count(&servers[0], "consistent_puts_total") > before + 100 || load.try_wait().unwrap().is_some()
        });
        servers.remove(killed - 1).kill();
        servers.insert(killed - 1, cluster.start(killed, &[]));
        births(&servers[0]);
    }
    load.wait().unwrap();

    let output = run(dir, &["bench", "check", "history.jsonl"]);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let history = std::fs::read_to_string(dir.join("history.jsonl")).unwrap();
    let acknowledged = history.lines().filter(|line| line.contains("\"result\":\"ok\"")).count();
    assert!(acknowledged > 1_000, "{acknowledged} requests were done");
}
