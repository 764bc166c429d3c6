//! Layers of the configuration, and their errors.

use super::*;
use backends::Kind;
use engine::Durability;
use node::http::HostName;
use node::store::TypeBackends;
use ring::RingSize;
use std::time::Duration;

fn load(
    flags: &[(&'static str, &str)],
    variables: &[(&str, &str)],
    file: &str,
) -> Result<Loaded, ConfigError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    std::fs::write(&path, file).unwrap();
    let flags = flags.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
    let environment = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Config::load(flags, environment.collect::<Vec<_>>(), Some(&path)).map_err(|error| ConfigError {
        place: error.place.replace(&path.display().to_string(), "a.toml"),
        ..error
    })
}

fn refused(flags: &[(&'static str, &str)], variables: &[(&str, &str)], file: &str) -> String {
    load(flags, variables, file).unwrap_err().to_string()
}

#[test]
fn flags_are_over_the_environment_over_the_file_over_defaults() {
    let file = "pb_listen = '0.0.0.0:1'\nhttp_listen = '0.0.0.0:2'\n\nring_size = 128\n";
    let variables = [("ANNULET_HTTP_LISTEN", "0.0.0.0:3"), ("ANNULET_RING_SIZE", "256"), ("OTHER", "x")];
    let loaded = load(&[("ring_size", "512")], &variables, file).unwrap();
    let config = &loaded.config;
    assert_eq!((config.pb_listen.port(), config.http_listen.port()), (1, 3));
    assert_eq!(config.ring_size.map(RingSize::partitions), Some(512));
    assert_eq!(config.durability, Durability::Sync);
    let origin = |name| {
        let index = SETTINGS.iter().position(|setting| setting.name == name).unwrap();
        loaded.origins[index].to_string()
    };
    assert!(origin("pb_listen").ends_with("a.toml:1"), "{}", origin("pb_listen"));
    assert_eq!(origin("http_listen"), "ANNULET_HTTP_LISTEN");
    assert_eq!(origin("ring_size"), "--ring-size");
    assert_eq!(origin("durability"), "default");
    assert!(loaded.unknown_variables.is_empty());
}

#[test]
fn every_setting_is_read_from_what_it_shows() {
    let config = Config {
        http_host: ["db.example.com", "[fd00::1]", "10.0.0.1"]
            .map(|name| HostName::read(name.as_bytes()).unwrap())
            .to_vec(),
        insecure: true,
        ring_size: Some(RingSize::default()),
        shards: Some(3),
        backend: Some(Kind::Bitcask),
        type_backends: Some(TypeBackends::read("cache=memory,archive=hash").unwrap()),
        sync_interval: Duration::from_millis(1500),
        memory: Some(Size(3 << 30)),
        block_cache: Some(Size(1536 << 20)),
        cluster: Vec::read("b@h=[::1]:2,a@h=127.0.0.1:1,c@h=a-name:3").unwrap(),
        join: Vec::read("127.0.0.1:1,[::1]:2,localhost:3").unwrap(),
        zone: "rack-1".to_owned(),
        peer_listen: Some("0.0.0.0:3".parse().unwrap()),
        peer_address: Some("n1.example.org:3".parse().unwrap()),
        peer_key: Some(PathBuf::from("a.key")),
        ..Config::default()
    };
    for setting in SETTINGS {
        let shown = setting.show(&config);
        let mut read = Config::default();
        setting.set(&mut read, &shown).unwrap_or_else(|what| panic!("{}: {what}", setting.name));
        assert_eq!(setting.show(&read), shown);
    }
}

#[test]
fn options_of_tls_for_clients_need_one_another() {
    assert_eq!(
        refused(&[("tls_cert", "a.pem")], &[], ""),
        "--tls-cert: needs tls_key, the key of the certificate"
    );
    assert_eq!(
        refused(&[("tls_key", "a.key")], &[], ""),
        "--tls-key: needs tls_cert, the certificate of the key"
    );
    assert_eq!(
        refused(&[("tls_client_ca", "ca.pem")], &[], ""),
        "--tls-client-ca: needs tls_cert and tls_key"
    );
    assert_eq!(
        refused(&[("tls_client_crl", "a.crl")], &[], ""),
        "--tls-client-crl: needs tls_cert and tls_key"
    );
    let tls = [("tls_cert", "a.pem"), ("tls_key", "a.key"), ("tls_client_crl", "a.crl,b.crl")];
    assert_eq!(
        refused(&tls, &[], ""),
        "--tls-client-crl: needs tls_client_ca, the authority that the lists are of"
    );
    assert_eq!(refused(&[("https_listen", "h:1")], &[], ""), "--https-listen: needs tls_cert and tls_key");
}

#[test]
fn what_is_wrong_is_refused_where_it_stands() {
    assert_eq!(
        refused(&[], &[], "name = 'a@b'\n\nsharts = 3\n"),
        "a.toml:3: unknown key \"sharts\"; did you mean shards?; the keys are data, pb_listen, http_listen, \
         https_listen, tls_cert, tls_key, tls_client_ca, tls_client_crl, http_host, insecure, name, ring_size, shards, \
         backend, type_backends, durability, sync_interval, read_form, strong_reads, delete_mode, anti_entropy, tree_rebuild, \
         tree_rebuild_check, tree_rebuild_turns, compression, compress_at, zstd_level, memory, memtable, block_cache, \
         space_target, disk_reserve, scrub_period, waste_retention, backup_dir, connections_max, \
         idle_timeout, log_format, slow, slow_keys, drain_wait, cluster, join, zone, weight, peer_listen, \
         peer_address, peer_ca, peer_cert, peer_key"
    );
    assert_eq!(refused(&[], &[], "\nshards = 0"), "a.toml:2: shards: \"0\" is not a number from 1 to 256");
    assert_eq!(refused(&[], &[], "shards = [3]"), "a.toml:1: shards must be a number or a text in quotes");
    assert!(load(&[], &[], "insecure = true\n").unwrap().config.insecure);
    assert!(refused(&[], &[], "name = 'a@b'\nshards = \n").starts_with("a.toml:2: "));
    assert!(refused(&[], &[], "[server]\nshards = 3\n").starts_with("a.toml:1: unknown key \"server\""));
    assert!(refused(&[], &[], "shards = 1\nshards = 2\n").starts_with("a.toml:2: "));
    let twice = "shards = 1\ntype_backends = 'cache=memory,cache=hash'";
    assert_eq!(refused(&[], &[], twice), "a.toml:2: type_backends: the type cache comes twice");
    assert!(refused(&[("ring_size", "63")], &[], "").starts_with("--ring-size: "));
    assert!(
        refused(&[("cluster", "a@b=127.0.0.1:1,")], &[], "")
            .starts_with("--cluster: \"\" is not of the form")
    );
    assert_eq!(
        refused(&[], &[("ANNULET_DURABILITY", "always")], ""),
        "ANNULET_DURABILITY: \"always\" is none of none, interval, sync"
    );
    let wrong: &[(&'static str, &[&str])] = &[
        ("pb_listen", &["8087"]),
        ("http_host", &["db.example.com:8098", "http://db.example.com", "a b", "[::1"]),
        ("insecure", &["yes"]),
        ("name", &["annulet", "a b@c", "a@b,c@d"]),
        ("sync_interval", &["5", "0s"]),
        ("backend", &["leveldb"]),
        ("type_backends", &["cache"]),
        ("delete_mode", &["3000", "never"]),
        ("anti_entropy", &["yes", "0s"]),
        ("tree_rebuild", &["0s", "on"]),
        ("tree_rebuild_check", &["all"]),
        ("tree_rebuild_turns", &["shard"]),
        ("idle_timeout", &["99999999999999999999h", "9999h", "", "é"]),
        ("compression", &["gzip"]),
        ("compress_at", &["never"]),
        ("zstd_level", &["20", "0"]),
        ("memory", &["8GB", "1MiB", "99999999999TiB"]),
        ("memtable", &["1024"]),
        ("block_cache", &["-1MiB"]),
        ("space_target", &["100"]),
        ("connections_max", &["-1"]),
        ("data", &[""]),
        ("cluster", &["a@b", "a@b=127.0.0.1", "a@b=127.0.0.1:0"]),
        ("peer_listen", &["127.0.0.1"]),
        ("join", &["n1@h=127.0.0.1:1"]),
        ("zone", &["a b"]),
        ("weight", &["0"]),
    ];
    for (name, texts) in wrong {
        for text in *texts {
            assert!(refused(&[(*name, *text)], &[], "").contains(text), "{name} {text}");
        }
    }
}

#[test]
fn a_cluster_is_the_same_in_any_order_and_has_this_node() {
    let all = [
        ("name", "b@h"),
        ("cluster", "c@h=127.0.0.1:3, a@h=127.0.0.1:1,b@h=127.0.0.1:2"),
        ("peer_ca", "ca.pem"),
        ("peer_cert", "b.pem"),
        ("peer_key", "b.key"),
    ];
    let found = load(&all, &[], "").unwrap().config.cluster().unwrap().unwrap();
    let names: Vec<_> = found.members.iter().map(|member| &*member.name).collect();
    assert_eq!((names, found.listen.port()), (vec!["a@h", "b@h", "c@h"], 2));
    let listening = [&all[..], &[("peer_listen", "0.0.0.0:9")]].concat();
    let listening = load(&listening, &[], "").unwrap().config.cluster().unwrap().unwrap();
    assert_eq!(listening.listen, "0.0.0.0:9".parse().unwrap());
    assert_eq!(load(&[], &[], "").unwrap().config.cluster(), Ok(None));

    let with = |name: &'static str, value: &'static str| {
        let other = all.iter().map(|&(key, old)| (key, if key == name { value } else { old }));
        refused(&other.collect::<Vec<_>>(), &[], "")
    };
    assert_eq!(with("name", "d@h"), "--cluster: this node, d@h, is not in the list");
    assert_eq!(with("cluster", "b@h=127.0.0.1:1,b@h=127.0.0.1:2"), "--cluster: b@h is in the list twice");
    assert_eq!(
        with("cluster", "b@h=127.0.0.1:1,a@h=127.0.0.1:1"),
        "--cluster: 127.0.0.1:1 is in the list twice"
    );
    assert_eq!(
        with("cluster", ""),
        "--peer-ca: needs the option cluster (the founding nodes) or join (the address of a member)"
    );
    assert_eq!(with("peer_key", ""), "--peer-key: a cluster needs it; see `annulet admin cert`");
    assert_eq!(
        refused(&[], &[], "name = 'b@h'\ncluster = 'a@h=127.0.0.1:1'\n"),
        "a.toml:2: cluster: this node, b@h, is not in the list"
    );
    assert_eq!(refused(&all[..2], &[], ""), "peer_ca: a cluster needs it; see `annulet admin cert`");
    assert!(
        refused(&[], &[], "peer_listen = '0.0.0.0:1'")
            .starts_with("a.toml:1: peer_listen: needs the option cluster")
    );
    let listing = |list: &str| refused(&[("cluster", list)], &[], "");
    assert_eq!(listing("a=127.0.0.1:1"), "--cluster: \"a\" is not of the form name@host");
    let long = format!("{}@h=127.0.0.1:1", "n".repeat(NODE_NAME_BYTES_MAX));
    assert!(listing(&long).ends_with("longer than 100 bytes"));
    let many: Vec<_> = (1..=257).map(|n| format!("n{n}@h=127.0.0.1:{n}")).collect();
    assert_eq!(listing(&many.join(",")), "--cluster: 257 nodes; the most is 256");
}

#[test]
fn a_node_that_joins_says_where_it_is() {
    let all = [
        ("name", "d@h"),
        ("join", "127.0.0.1:1, 127.0.0.1:2"),
        ("peer_listen", "127.0.0.1:0"),
        ("peer_ca", "ca.pem"),
        ("peer_cert", "d.pem"),
        ("peer_key", "d.key"),
    ];
    let found = load(&all, &[], "").unwrap().config.cluster().unwrap().unwrap();
    assert_eq!((found.join.len(), found.members.len(), found.address), (2, 0, None));
    let with = |name: &'static str, value: &'static str| {
        let changed = all.iter().filter(|(key, _)| *key != name).copied().chain([(name, value)]);
        refused(&changed.collect::<Vec<_>>(), &[], "")
    };
    assert_eq!(
        with("peer_listen", ""),
        "--join: needs peer_listen, the address at which this node listens to other nodes"
    );
    assert_eq!(
        with("peer_listen", "0.0.0.0:1"),
        "--peer-listen: 0.0.0.0:1: needs peer_address, the address at which other nodes reach this one"
    );
    assert_eq!(with("peer_key", ""), "--peer-key: a cluster needs it; see `annulet admin cert`");
    assert_eq!(
        with("cluster", "d@h=127.0.0.1:1"),
        "--join: give either join or cluster: a node joins a cluster or founds one"
    );
    let elsewhere = [&all[..], &[("peer_listen", "0.0.0.0:1"), ("peer_address", "10.0.0.1:1")]].concat();
    let found = load(&elsewhere, &[], "").unwrap().config.cluster().unwrap().unwrap();
    assert_eq!(found.address, Some("10.0.0.1:1".parse().unwrap()));
}

#[test]
fn a_node_is_reached_where_it_listens_whatever_an_old_list_says() {
    let all = [
        ("name", "b@h"),
        ("cluster", "a@h=10.0.0.1:8099,b@h=10.0.0.2:8099"),
        ("peer_ca", "ca.pem"),
        ("peer_cert", "b.pem"),
        ("peer_key", "b.key"),
    ];
    let address = |text: &str| text.parse::<std::net::SocketAddr>().unwrap();
    let reached = |more: &[(&'static str, &'static str)], bound: &str| {
        let found = load(&[&all[..], more].concat(), &[], "").unwrap().config.cluster().unwrap().unwrap();
        (found.listen.to_string(), found.reached_at(address(bound)).to_string())
    };
    let same = |listen: &str, expected: &str| (listen.to_owned(), expected.to_owned());
    assert_eq!(reached(&[], "10.0.0.2:8099"), same("10.0.0.2:8099", "10.0.0.2:8099"));
    for (listen, bound, expected) in [
        ("10.0.0.2:9000", "10.0.0.2:9000", "10.0.0.2:9000"),
        ("10.0.0.7:8099", "10.0.0.7:8099", "10.0.0.7:8099"),
        ("10.0.0.2:0", "10.0.0.2:4711", "10.0.0.2:4711"),
        ("0.0.0.0:9000", "0.0.0.0:9000", "10.0.0.2:9000"),
        ("0.0.0.0:0", "0.0.0.0:4711", "10.0.0.2:4711"),
        ("[::]:9000", "[::]:9000", "10.0.0.2:9000"),
        ("b-name:0", "10.0.0.7:4711", "b-name:4711"),
    ] {
        assert_eq!(reached(&[("peer_listen", listen)], bound), same(listen, expected));
        let given = [("peer_listen", listen), ("peer_address", "10.9.9.9:1")];
        assert_eq!(reached(&given, bound), same(listen, "10.9.9.9:1"));
    }
    let text = refused(&[&all[..], &[("peer_address", "0.0.0.0:1")]].concat(), &[], "");
    assert_eq!(text, "--peer-address: 0.0.0.0:1: other nodes cannot connect to this address");
}

#[test]
fn a_file_that_was_asked_for_must_be_there() {
    let error = Config::load(Vec::new(), Vec::new(), Some(Path::new("no/such.toml"))).unwrap_err();
    assert!(error.to_string().starts_with("no/such.toml: No such file"), "{error}");
    let named = vec![(OsString::from("ANNULET_CONFIG"), OsString::from("no/other.toml"))];
    assert_eq!(Config::load(Vec::new(), named, None).unwrap_err().place, "no/other.toml");
}

#[test]
fn slips_are_told_what_may_have_been_meant() {
    let error = load(&[], &[], "ring-size = 8").unwrap_err().to_string();
    assert!(
        error.contains("unknown key \"ring-size\"; did you mean ring_size?; the keys are data, "),
        "{error}"
    );
    let error = load(&[], &[], "colour = 8").unwrap_err().to_string();
    assert!(error.contains("unknown key \"colour\"; the keys are data, "), "{error}");
    let meant = |variable| super::variable_meant_by(variable);
    assert_eq!(meant("ANNULET_SHARTS").as_deref(), Some("ANNULET_SHARDS"));
    assert_eq!(meant("ANNULET_COLOUR"), None);
}

#[test]
fn file_that_is_a_link_to_nowhere_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.toml");
    std::os::unix::fs::symlink("gone.toml", &file).unwrap();
    let error = Config::load(Vec::new(), Vec::new(), Some(&file)).unwrap_err().to_string();
    assert!(error.ends_with("a.toml is a symbolic link to gone.toml, which does not exist"), "{error}");
}

#[test]
fn unknown_variables_are_told_and_nothing_more() {
    let variables =
        [("ANNULET_SHARTS", "3"), ("ANNULET_LOG", "debug"), ("ANNULET_data", "x"), ("ANNULET_CA", "ca.pem")];
    let loaded = load(&[], &variables, "").unwrap();
    assert_eq!(loaded.unknown_variables, ["ANNULET_SHARTS", "ANNULET_data"]);
    assert_eq!(loaded.config.data, Config::default().data);
}

#[test]
fn random_texts_are_read_or_refused_without_panic() {
    use base::Rng;
    let mut rng = base::rng::SplitMix64::new(7);
    let pieces: Vec<&str> =
        "0 18446744073709551616 - ms h @ : 127.0.0.1 [::1] = ' \n é shards #".split(' ').collect();
    let mut loaded = load(&[], &[], "").unwrap();
    for _ in 0..10_000 {
        let text: String =
            (0..rng.below(7)).map(|_| pieces[rng.below(pieces.len() as u64) as usize]).collect();
        let setting = &SETTINGS[rng.below(SETTINGS.len() as u64) as usize];
        let mut config = Config::default();
        if setting.set(&mut config, &text).is_ok() {
            let shown = setting.show(&config);
            setting.set(&mut config, &shown).unwrap();
            assert_eq!(setting.show(&config), shown);
        }
        loaded.read_text(&text, Path::new("a.toml")).ok();
    }
}
