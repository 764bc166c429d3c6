//! The reading of a node's figures: `/stats`, `/health/ready` and `/admin/cluster`. The names of fields are here alone.

use crate::admin::http::Endpoint;
use serde_json::{Value, json};
use std::time::Duration;

/// The longest wait for each answer of a node. One that hangs is a row like one that is down.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// A node at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reading {
    /// Its HTTP address or its data folder, as it was named.
    pub(super) address: String,
    /// Its figures, or why there are none.
    pub(super) figures: Result<Figures, String>,
    /// The members of its cluster, as it knows them; none of a node that does not tell.
    pub(super) members: Option<Value>,
}

/// The figures of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) name: String,
    /// Why it is not ready; empty if it is.
    pub(super) reasons: Vec<String>,
    /// Gets and puts a second: since the reading before, or in the last minute.
    pub(super) rates: [f64; 2],
    /// Gets and puts since the start.
    pub(super) totals: [u64; 2],
    /// Microseconds of 99 of 100 gets and puts in the last minute.
    pub(super) times_99: [Option<u64>; 2],
    pub(super) connections: Option<u64>,
    pub(super) under_way: Option<u64>,
    /// Thousandths of the nearest limit of the stores.
    pub(super) pressure: Option<u64>,
    /// Bytes of memory of the process, and its limit.
    pub(super) memory: [Option<u64>; 2],
}

/// Reads all nodes, at once.
pub(super) fn all(endpoints: &[Endpoint]) -> Vec<Reading> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = endpoints.iter().map(|endpoint| scope.spawn(|| read(endpoint))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a reading is an answer or an error")).collect()
    })
}

fn read(endpoint: &Endpoint) -> Reading {
    let ask = |path| endpoint.look(path, ANSWER_MAX);
    let figures = ask("/stats").and_then(|stats| {
        let ready = ask("/health/ready")?;
        figures_of(&stats, &ready)
    });
    let cluster = figures.is_ok().then(|| ask("/admin/cluster").ok()).flatten();
    let members = cluster.map(|mut cluster| cluster["members"].take()).filter(Value::is_array);
    Reading { address: endpoint.to_string(), figures, members }
}

fn figures_of(stats: &Value, ready: &Value) -> Result<Figures, String> {
    let name = stats["nodename"].as_str().ok_or("it answers, and not as a node")?.to_owned();
    let number = |name: &str| stats[name].as_u64();
    let in_minute = |name: &str| number(name).unwrap_or_default() as f64 / 60.0;
    let total = |name: &str| number(name).unwrap_or_default();
    let reasons = ready["reasons"].as_array().into_iter().flatten();
    Ok(Figures {
        name,
        reasons: reasons.filter_map(|it| it.as_str()).map(str::to_owned).collect(),
        rates: [in_minute("node_gets"), in_minute("node_puts")],
        totals: [total("node_gets_total"), total("node_puts_total")],
        times_99: [number("node_get_fsm_time_99"), number("node_put_fsm_time_99")],
        connections: number("connections"),
        under_way: number("requests_under_way"),
        pressure: number("store_pressure"),
        memory: [number("mem_allocated"), number("memory_limit")],
    })
}

impl Reading {
    /// Takes the rates since an earlier reading. A node that was started anew keeps those of the last minute.
    pub(super) fn set_rates(&mut self, before: &Reading, seconds: f64) {
        let (Ok(now), Ok(before)) = (&mut self.figures, &before.figures) else { return };
        let goes_on = now.totals.iter().zip(&before.totals).all(|(now, before)| now >= before);
        if goes_on && seconds > 0.0 {
            let rate = |at: usize| (now.totals[at] - before.totals[at]) as f64 / seconds;
            now.rates = [rate(0), rate(1)];
        }
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        match &self.figures {
            Err(error) => json!({ "address": self.address, "error": error }),
            Ok(figures) => json!({
                "address": self.address,
                "name": figures.name,
                "ready": figures.reasons.is_empty(),
                "reasons": figures.reasons,
                "gets_per_second": figures.rates[0],
                "puts_per_second": figures.rates[1],
                "get_microseconds_99": figures.times_99[0],
                "put_microseconds_99": figures.times_99[1],
                "connections": figures.connections,
                "requests_under_way": figures.under_way,
                "store_pressure": figures.pressure,
                "memory_bytes": figures.memory[0],
                "memory_limit_bytes": figures.memory[1],
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(gets: u64) -> Reading {
        let stats = json!({
            "nodename": "n1@h", "node_gets": 120, "node_puts": 60, "node_gets_total": gets, "node_puts_total": 7,
            "node_get_fsm_time_99": 250, "store_pressure": 40,
        });
        let figures = figures_of(&stats, &json!({ "ready": false, "reasons": ["the node is starting"] }));
        Reading { address: "h:8098".to_owned(), figures, members: None }
    }

    #[test]
    fn rates_are_of_the_last_minute_until_there_are_two_readings() {
        let first = reading(1_000);
        assert_eq!(first.figures.as_ref().unwrap().rates, [2.0, 1.0]);
        let mut second = reading(1_500);
        second.set_rates(&first, 2.0);
        assert_eq!(second.figures.as_ref().unwrap().rates, [250.0, 0.0]);
        let mut restarted = reading(3);
        restarted.set_rates(&first, 2.0);
        assert_eq!(restarted.figures.unwrap().rates, [2.0, 1.0]);
    }

    #[test]
    fn a_reading_for_programs_has_the_figures_or_the_error() {
        let json = reading(5).json();
        assert_eq!((&json["ready"], &json["get_microseconds_99"]), (&json!(false), &json!(250)));
        assert_eq!(json["memory_bytes"], Value::Null, "this node does not tell it");
        let dead = Reading { address: "h:1".to_owned(), figures: Err("refused".to_owned()), members: None };
        assert_eq!(dead.json(), json!({ "address": "h:1", "error": "refused" }));
        assert!(figures_of(&json!({}), &json!({})).is_err(), "a page of another server");
    }
}
