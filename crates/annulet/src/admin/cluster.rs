//! `annulet admin cluster`, `member-status`, `ring-status`, `transfers`: with the words of `riak-admin`.

use super::http::{AdminNode, Answer};
use super::table::{cell, table};
use crate::failure::{FAILED, Failure};
use crate::plural::{count, len};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Commands for a cluster. Changes are staged, previewed by `plan` and carried out by `commit`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Show the members and the staged changes.
    Status(Shown),
    /// Preview the staged changes.
    Plan(Shown),
    /// Explain how a node joins the cluster of another: at its start, by `serve --join`.
    Join(JoinArgs),
    /// Stage the departure of a member, which hands its partitions over first.
    Leave(Of),
    /// Stage the replacement of a member by a new node, which copies its data.
    Replace(Pair),
    /// Stage the replacement of a dead member by a new node.
    ForceReplace(Pair),
    /// Stage the removal of a dead member.
    ForceRemove(Of),
    /// Mark a member as down for long. The mark ends when the member starts.
    Down(Of),
    /// Stage more partitions, so that more nodes can share the load evenly. No data is rewritten, and hardly any moves.
    ResizeRing(ResizeArgs),
    /// Discard the staged changes.
    Clear(Shown),
    /// Carry out the staged changes.
    Commit(CommitArgs),
    /// Recover a cluster that has lost the majority of its voters for good, from the state of one survivor. Without
    /// WORD, show the changes that may be lost, and the word that confirms.
    Recover(RecoverArgs),
}

/// That a majority is given up.
#[derive(clap::Args)]
pub struct RecoverArgs {
    #[command(flatten)]
    shown: Shown,
    /// The word that confirms, as shown without it.
    #[arg(value_name = "WORD")]
    word: Option<String>,
}

/// How many partitions there are to be.
#[derive(clap::Args)]
pub struct ResizeArgs {
    #[command(flatten)]
    shown: Shown,
    /// Number of partitions: a power of two above the current number, at most 16 times the number at the founding.
    #[arg(value_name = "PARTITIONS")]
    partitions: ring::RingSize,
}

/// How a commit is made.
#[derive(clap::Args)]
pub struct CommitArgs {
    #[command(flatten)]
    shown: Shown,
    /// Wait until the change is carried out, and show its progress; with --json, a line with an object at each step.
    #[arg(long)]
    wait: bool,
}

/// Limits of transfers.
#[derive(clap::Args)]
pub struct Limit {
    #[command(flatten)]
    shown: Shown,
    /// Transfers of a shard at a time, in each direction.
    #[arg(value_name = "COUNT")]
    count: Option<u32>,
    /// MiB per second that a shard receives from each node.
    #[arg(long, value_name = "MIB")]
    rate: Option<u64>,
}

/// Something to be shown.
#[derive(clap::Args)]
pub struct Shown {
    #[command(flatten)]
    node: AdminNode,
    /// Print JSON, for programs.
    #[arg(long)]
    json: bool,
}

/// A member.
#[derive(clap::Args)]
pub struct Of {
    #[command(flatten)]
    shown: Shown,
    /// The member.
    #[arg(value_name = "NAME@HOST")]
    member: String,
}

/// A member and its replacement.
#[derive(clap::Args)]
pub struct Pair {
    #[command(flatten)]
    of: Of,
    /// The new node that takes its place: a joining node.
    #[arg(value_name = "BY")]
    by: String,
}

/// Where a cluster is.
#[derive(clap::Args)]
pub struct JoinArgs {
    #[command(flatten)]
    shown: Shown,
    /// Address at which a member listens to other nodes.
    #[arg(value_name = "HOST:PORT")]
    address: String,
}

/// Does it.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Status(shown) => status(shown),
        Command::Plan(shown) => plan(shown),
        Command::Join(args) => change(&args.shown, "join", &json!({ "node": args.address }), "staged"),
        Command::Leave(of) => of.stage("leave"),
        Command::Replace(pair) => pair.stage("replace"),
        Command::ForceReplace(pair) => pair.stage("force-replace"),
        Command::ForceRemove(of) => of.stage("force-remove"),
        Command::Down(of) => change(&of.shown, "down", &json!({ "node": of.member }), "marked as down"),
        Command::ResizeRing(args) => resize(args),
        Command::Clear(shown) => change(shown, "clear", &json!({}), "staged changes discarded"),
        Command::Commit(args) => commit(args),
        Command::Recover(args) => recover(args),
    }
}

impl Of {
    fn stage(&self, what: &str) -> Result<(), Failure> {
        change(&self.shown, "stage", &json!({ "node": self.member, "change": what }), "staged")
    }
}

impl Pair {
    fn stage(&self, what: &str) -> Result<(), Failure> {
        let body = json!({ "node": self.of.member, "change": what, "by": self.by });
        change(&self.of.shown, "stage", &body, "staged")
    }
}

fn change(shown: &Shown, word: &str, body: &Value, done: &str) -> Result<(), Failure> {
    let answer = shown.post(&format!("/admin/cluster/{word}"), body)?;
    let answer = taken(answer)?;
    shown.tell(&answer, || format!("{done}{}", warnings(&answer)))
}

/// What an operator should think twice about, a line for each.
fn warnings(answer: &Value) -> String {
    each(&answer["warnings"]).map(|warning| format!("\nwarning: {}", cell(warning))).collect()
}

fn resize(args: &ResizeArgs) -> Result<(), Failure> {
    change(&args.shown, "resize-ring", &json!({ "partitions": args.partitions.partitions() }), "staged")
}

/// How often it is looked how far a change is.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long the node that is asked may be away while a change is waited for: a restart.
const AWAY_MAX: Duration = Duration::from_secs(30);

fn commit(args: &CommitArgs) -> Result<(), Failure> {
    let CommitArgs { shown, wait } = args;
    let look = || shown.node.ask("GET", "/admin/cluster/transfers", "").and_then(taken);
    let before = look()?["version"].as_u64();
    change(shown, "commit", &json!({}), "begun")?;
    if !wait {
        return Ok(());
    }
    let (mut said, mut heard) = (String::new(), Instant::now());
    loop {
        std::thread::sleep(LOOK_EVERY);
        let seen = match look() {
            Ok(seen) => seen,
            Err(failure) if heard.elapsed() >= AWAY_MAX => return Err(failure),
            Err(_) => continue,
        };
        heard = Instant::now();
        // The node that answers may hear later than others of what was decided.
        if seen["version"].as_u64() <= before {
            continue;
        }
        let line = progress(&seen["change"]);
        if line != said {
            shown.tell(&seen["change"], || line.clone())?;
            said = line;
        }
        if is_over(&seen["change"]) {
            return Ok(());
        }
    }
}

fn recover(args: &RecoverArgs) -> Result<(), Failure> {
    if let Some(word) = &args.word {
        return change(
            &args.shown,
            "recover",
            &json!({ "word": word }),
            "begun: this node leads from now on",
        );
    }
    let seen = args.shown.ask("/admin/cluster/recover")?;
    args.shown.tell(&seen, || {
        let voters = table(&["voter", "reached"], &rows(&seen["voters"], &["name", "reachable"]));
        let awaited = names(&seen["awaited"]);
        if seen["lost"] != true && awaited.is_empty() {
            return format!("{voters}\n\na majority of the voters is reached: nothing is lost");
        }
        let waits = match awaited.is_empty() {
            true => String::new(),
            false => format!(
                "{} was restored from a backup, and waits for {awaited}. Start them, if they are not lost.\n\n",
                cell(&seen["here"])
            ),
        };
        format!(
            "{voters}\n\n{waits}{} knows the changes up to term {}, entry {}. Later changes of the other members are \
             lost.\nRecover from the survivor with the highest term, then entry, and from no other. The lost members \
             must not\ncome back.\n\n    \
             annulet admin cluster recover {}",
            cell(&seen["here"]),
            cell(&seen["last"]["term"]),
            cell(&seen["last"]["index"]),
            cell(&seen["word"]),
        )
    })
}

/// Whether a change is settled, and the voters are those that it calls for.
fn is_over(change: &Value) -> bool {
    change["settled"] == true && change["to_vote"].is_null() && change["to_vote_no_more"].is_null()
}

/// How far a change is, in a line.
fn progress(change: &Value) -> String {
    if is_over(change) {
        return "settled".to_owned();
    }
    if change["settled"] == true {
        return match (&change["to_vote"], &change["to_vote_no_more"]) {
            (Value::Null, voter) => format!("at rest; waits until {} votes no more", cell(voter)),
            (member, _) => format!("at rest; waits until {} votes", cell(member)),
        };
    }
    let to_copy = names(&change["to_copy"]);
    let waits = match (names(&change["to_adopt"]), to_copy) {
        (adopt, _) if !adopt.is_empty() => format!("waits until {adopt} have adopted the ring"),
        (_, copy) if !copy.is_empty() => format!("waits until {copy} have copied"),
        _ => "goes on".to_owned(),
    };
    format!("{}, {} to move; {waits}", cell(&change["step"]), counted(&change["to_move"], "partition"))
}

/// The same, and what the node that answers has to do before it can drop what it is to give up.
fn progress_here(change: &Value) -> String {
    let progress = progress(change);
    match names(&change["kept_for"]) {
        none if none.is_empty() => progress,
        nodes => format!("{progress}; the node that answers keeps hints for {nodes} until it reaches them"),
    }
}

fn counted(number: &Value, noun: &str) -> String {
    count(number.as_u64().unwrap_or_default(), noun)
}

fn names(list: &Value) -> String {
    each(list).map(cell).collect::<Vec<_>>().join(", ")
}

/// The answer's body, if it is not what is wrong.
pub(super) fn taken(Answer { status, body }: Answer) -> Result<Value, Failure> {
    if status < 300 {
        return Ok(body);
    }
    let text = body["error"].as_str().or(body.as_str()).unwrap_or_default();
    Err(Failure::new(FAILED, if text.is_empty() { format!("HTTP status {status}") } else { text.to_owned() }))
}

impl Shown {
    pub(super) fn ask(&self, path: &str) -> Result<Value, Failure> {
        self.send("GET", path, "")
    }

    pub(super) fn send(&self, method: &str, path: &str, body: &str) -> Result<Value, Failure> {
        taken(self.node.ask(method, path, body)?)
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Answer, Failure> {
        self.node.ask("POST", path, &body.to_string())
    }

    /// Whether the answer is for a program.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Shows a part of an answer to a program, or the text of it to a person.
    pub(super) fn tell(&self, part: &Value, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json { say(&part.to_string()) } else { say(&text()) }
    }
}

fn status(shown: &Shown) -> Result<(), Failure> {
    let cluster = shown.ask("/admin/cluster")?;
    shown.tell(&cluster, || {
        let unreached = each(&cluster["members"]).filter(|member| member["reachable"] == false).count();
        format!(
            "{}cluster {}, state {}, {}{}\n{}\n\n{}\n\n{}",
            majority_lines(&cluster),
            cell(&cluster["cluster"]),
            cell(&cluster["version"]),
            len(each(&cluster["members"]).count(), "member"),
            if unreached == 0 { String::new() } else { format!(", {unreached} not reached from here") },
            progress_here(&cluster["change"]),
            members_table(&cluster),
            staged_table(&cluster),
        )
    })
}

/// Lists the members.
pub fn members(shown: &Shown) -> Result<(), Failure> {
    let cluster = shown.ask("/admin/cluster")?;
    shown.tell(&cluster["members"], || format!("{}{}", majority_lines(&cluster), members_table(&cluster)))
}

/// What the node that answers does not reach, and that it knows of no leader; nothing if all is well.
fn majority_lines(cluster: &Value) -> String {
    let here = cell(&cluster["here"]);
    let is_voter = each(&cluster["voters"]).any(|voter| *voter == cluster["here"]);
    let no_leader = (is_voter && cluster["leader"].is_null())
        .then(|| "no leader is known: members and properties cannot be changed".to_owned());
    let missing = each(&cluster["majority"]["missing"]).map(cell);
    let lines: Vec<String> = missing.chain(no_leader).map(|line| format!("{here}: {line}\n")).collect();
    if lines.is_empty() { String::new() } else { format!("{}\n", lines.concat()) }
}

/// Shows the ring.
pub fn ring(shown: &Shown) -> Result<(), Failure> {
    let cluster = shown.ask("/admin/cluster")?;
    let (ring, change) = (&cluster["ring"], &cluster["change"]);
    let part = json!({
        "ring": ring,
        "here": cluster["here"],
        "leader": cluster["leader"],
        "voters": cluster["voters"],
        "epoch": cluster["epoch"],
        "change": change,
    });
    shown.tell(&part, || {
        let voters: Vec<String> = each(&cluster["voters"]).map(cell).collect();
        format!(
            "ring:     version {}, {} (at most {}), {}\nepoch:    {}\nleader:   {}\nvoters:   {}\nanswered: {}",
            cell(&ring["version"]),
            counted(&ring["partitions"], "partition"),
            cell(&ring["partitions_max"]),
            progress(change),
            cell(&cluster["epoch"]),
            match &cluster["leader"] {
                Value::Null => "not known to the node that answers".to_owned(),
                leader => cell(leader),
            },
            voters.join(", "),
            cell(&cluster["here"]),
        )
    })
}

/// Lists what is on its way to the node that answers, and whom a change waits for.
pub fn transfers(shown: &Shown) -> Result<(), Failure> {
    let transfers = shown.ask("/admin/cluster/transfers")?;
    shown.tell(&transfers, || {
        let columns = [
            "from",
            "shard",
            "state",
            "partitions_left",
            "objects",
            "bytes",
            "seconds",
            "still_for",
            "lossy",
            "retry_in",
            "reason",
        ];
        let heading = [
            "from",
            "shard",
            "state",
            "partitions left",
            "objects",
            "bytes",
            "since s",
            "still for s",
            "damaged",
            "retry in s",
            "reason",
        ];
        let received = match each(&transfers["received"]).count() {
            0 => format!("no transfers to {}", cell(&transfers["here"])),
            _ => format!(
                "to {}:\n{}",
                cell(&transfers["here"]),
                table(&heading, &rows(&transfers["received"], &columns))
            ),
        };
        format!("{}\n\n{received}", progress_here(&transfers["change"]))
    })
}

/// Shows or changes how much transfers may take.
pub fn limit(limit: &Limit) -> Result<(), Failure> {
    if limit.count.is_some() || limit.rate.is_some() {
        let mut body = json!({});
        if let Some(count) = limit.count {
            body["count"] = json!(count);
        }
        if let Some(rate) = limit.rate {
            body["bytes_per_second"] = json!(rate.saturating_mul(1 << 20));
        }
        return change(&limit.shown, "transfer-limit", &body, "changed");
    }
    let cluster = limit.shown.ask("/admin/cluster")?;
    let limit_now = &cluster["transfer_limit"];
    limit.shown.tell(limit_now, || {
        let mib = limit_now["bytes_per_second"].as_u64().unwrap_or_default() >> 20;
        format!(
            "{} at a time, {mib} MiB/s from each node to each shard",
            counted(&limit_now["count"], "transfer")
        )
    })
}

fn plan(shown: &Shown) -> Result<(), Failure> {
    let plan = shown.ask("/admin/cluster/plan")?;
    shown.tell(&plan, || {
        let columns = ["node", "change", "state", "owns", "will_own"];
        let shortfalls = match plan["shortfalls"].as_u64() {
            None | Some(0) => String::new(),
            Some(number) => {
                format!("\nreplicas of {} will be closer together than required", count(number, "partition"))
            }
        };
        let warnings = warnings(&plan);
        let copies = &plan["copies"];
        let number = |what: &str| copies[what].as_u64().unwrap_or_default();
        let share = 100.0 * number("moved") as f64 / number("of").max(1) as f64;
        format!(
            "{}\n\n{} of {} get another owner; {share:.1} % of the data moves, and is on {} then (with three \
             replicas){shortfalls}{warnings}",
            table(&["node", "change", "state then", "owns", "will own"], &rows(&plan["parts"], &columns)),
            cell(&plan["moved"]),
            counted(&plan["partitions"], "partition"),
            count(number("distinct"), "node"),
        )
    })
}

fn members_table(cluster: &Value) -> String {
    let columns =
        ["name", "state", "reachable", "votes", "partitions", "pending", "weight", "zone", "address"];
    let heading = ["member", "state", "reached", "votes", "owns", "will own", "weight", "zone", "address"];
    table(&heading, &rows(&cluster["members"], &columns))
}

fn staged_table(cluster: &Value) -> String {
    let mut staged = Vec::new();
    if each(&cluster["staged"]).next().is_some() {
        let columns = ["node", "change", "by", "weight"];
        staged.push(table(&["member", "staged", "by", "weight"], &rows(&cluster["staged"], &columns)));
    }
    if let Some(partitions) = cluster["ring"]["partitions_staged"].as_u64() {
        staged.push(format!("the ring will have {}", count(partitions, "partition")));
    }
    match staged.is_empty() {
        true => "nothing is staged".to_owned(),
        false => format!("{}\n\n`annulet admin cluster plan` shows the effect", staged.join("\n\n")),
    }
}

pub(super) fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn rows(list: &Value, columns: &[&str]) -> Vec<Vec<String>> {
    each(list).map(|entry| columns.iter().map(|column| cell(&entry[*column])).collect()).collect()
}

fn say(text: &str) -> Result<(), Failure> {
    Ok(writeln!(io::stdout(), "{text}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(adds: Option<&str>, removes: Option<&str>) -> Value {
        json!({ "settled": true, "to_vote": adds, "to_vote_no_more": removes })
    }

    #[test]
    fn a_change_is_over_when_the_voters_are_replaced() {
        let adds = change(Some("n4@h"), None);
        assert_eq!((is_over(&adds), &*progress(&adds)), (false, "at rest; waits until n4@h votes"));
        let removes = change(None, Some("n1@h"));
        assert_eq!(
            (is_over(&removes), &*progress(&removes)),
            (false, "at rest; waits until n1@h votes no more")
        );
        assert_eq!((is_over(&change(None, None)), &*progress(&change(None, None))), (true, "settled"));
        // An older node does not tell about voters.
        assert!(is_over(&json!({ "settled": true })) && !is_over(&json!({ "settled": false })));
    }
}
