use super::*;
use std::net::TcpListener;
use std::thread::JoinHandle;

/// A server that takes connections one after the other and, on each, requests in an order that is known.
fn serve(listener: TcpListener, connections: Vec<Vec<(String, String)>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut taken = Vec::new();
        for script in connections {
            let (mut stream, _) = listener.accept().unwrap();
            for (request, answer) in script {
                let mut bytes = vec![0; request.len()];
                stream.read_exact(&mut bytes).unwrap();
                assert_eq!(String::from_utf8_lossy(&bytes), request);
                stream.write_all(answer.as_bytes()).unwrap();
            }
            taken.push(stream);
        }
    })
}

fn request(words: &[&str]) -> String {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let words: Vec<String> = words.collect();
    format!("*{}\r\n{}", words.len(), words.concat())
}

/// All slots are there.
fn map(at: SocketAddr) -> String {
    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{}\r\n", at.port())
}

#[derive(Default)]
struct Heard(VecDeque<String>);

impl Sink for Heard {
    fn answered(&mut self, token: u32, answer: Answer<'_>) {
        self.0.push_back(match answer {
            Answer::Found { values, body, .. } => {
                format!("{token}: {}", String::from_utf8_lossy(&body[values[0].clone()]))
            }
            Answer::Again => format!("{token}: again"),
            Answer::Failed { kind, .. } => format!("{token}: {}", kind.name()),
            _ => format!("{token}: something else"),
        });
    }
}

fn get(cluster: &mut RedisCluster, token: u32) -> String {
    let request = Request { token, bucket: b"b", key: b"k", command: Command::Get };
    cluster.submit(&request).unwrap();
    let mut heard = Heard::default();
    while heard.0.is_empty() {
        cluster.poll(Duration::from_secs(1), &mut heard).unwrap();
    }
    assert_eq!(heard.0.len(), 1);
    heard.0.remove(0).unwrap()
}

fn poll_until(cluster: &mut RedisCluster, is_so: impl Fn(&RedisCluster) -> bool) {
    while !is_so(cluster) {
        cluster.poll(Duration::from_secs(1), &mut Heard::default()).unwrap();
    }
}

#[test]
fn clients_that_are_sent_elsewhere_go_there() {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [a, b] = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
    let pair = |request: String, answer: &str| (request, answer.to_owned());
    let (slots, read) = (request(&["CLUSTER", "SLOTS"]), request(&["GET", "b:k"]));
    let select = pair(request(&["SELECT", "0"]), "+OK\r\n");
    let to_b = |word: &str| format!("-{word} {} {b}\r\n", slot(&[b"b:k"]));
    let value = |value: &str| pair(read.clone(), &format!("${}\r\n{value}\r\n", value.len()));
    let of_a = vec![
        vec![pair(slots.clone(), &map(a))],
        vec![
            select.clone(),
            pair(read.clone(), &to_b("ASK")),
            value("old"),
            pair(read.clone(), &to_b("MOVED")),
        ],
    ];
    let of_b = vec![vec![
        select,
        pair(request(&["ASKING"]), "+OK\r\n"),
        value("asked"),
        value("moved"),
        pair(slots, &map(b)),
        value("known"),
    ]];
    let mut listeners = listeners.into_iter();
    let servers = [of_a, of_b].map(|script| serve(listeners.next().unwrap(), script));
    let mut cluster = RedisCluster::connect(&[a], 1, 1, Duration::from_secs(30)).unwrap();
    poll_until(&mut cluster, |it| it.is_connected());
    assert_eq!(get(&mut cluster, 1), "1: again");
    // The way there is made first, that this test need not be sent away for want of it.
    cluster.group(b).unwrap();
    poll_until(&mut cluster, |it| it.is_connected());
    assert_eq!(get(&mut cluster, 1), "1: asked");
    // That was for once.
    assert_eq!(get(&mut cluster, 2), "2: old");
    assert_eq!(get(&mut cluster, 3), "3: again");
    assert_eq!(get(&mut cluster, 3), "3: moved");
    poll_until(&mut cluster, |it| it.map == MapState::Known && it.groups.iter().all(|group| *group == 1));
    assert_eq!(get(&mut cluster, 4), "4: known");
    // Both are gone.
    servers.into_iter().for_each(|server| server.join().unwrap());
    poll_until(&mut cluster, |it| it.pool.room(1) == 0);
    assert_eq!(get(&mut cluster, 5), "5: refused");
    assert_eq!((cluster.ready(), cluster.detours.len()), (1, 0));
}

#[test]
fn who_tells_no_map_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let alone = "-ERR This instance has cluster support disabled\r\n".to_owned();
    let server = serve(listener, vec![vec![(request(&["CLUSTER", "SLOTS"]), alone)]]);
    let refused = RedisCluster::connect(&[address], 1, 1, Duration::from_secs(30)).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("cluster support disabled"), "{refused}");
    server.join().unwrap();
}
