//! Scenarios of storage engines: each of them goes through the same stages, one after the other.
//!
//! 1. [`Engines::parse`] reads the stages, strictly: each is the workload that all have in common with parts of it
//!    replaced.
//! 2. [`Engines::play`] takes an engine through all stages. Each is a run of this same program (`annulet bench run`),
//!    whose threads share a store: so its processor time, memory and I/O are the engine's and the generator's, and
//!    nobody else's, and its options are in its results.
//! 3. All stages of an engine are in one control group, which limits memory, page cache included.
//!
//! Invariants: an engine that this program does not have, or that fails, is left out with the reason, and the others
//! are played; a store is opened anew for each stage, so that no stage lives off the memory of the one before, except
//! by the page cache where `drop_caches` does not say otherwise.
//!
//! The limit is of the whole process: the generator takes some 50 MiB of it, and half a megabyte for each thread.
//!
//! Left out: engines in turns within a stage. What the machine does meanwhile is seen by repeating all (`rounds`).

use super::Limits;
use super::cgroup::Group;
use crate::form::merge;
use crate::{Figure, Played, Row};
use backends::Kind;
use bench::{Control, Error, Workload, folder_bytes};
use results::Results;
use rustix::fs::{Advice, fadvise};
use serde::Deserialize;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use toml::{Table, Value};

/// By this a system that has no memory left ends a process, and nobody else here does.
const SIGKILL: i32 = 9;

/// Engines and stages at most: more would take longer than a machine stays as it is.
const ENGINES_MAX: usize = 16;
const STAGES_MAX: usize = 32;

/// What engines go through.
#[derive(Clone, Debug, PartialEq)]
pub struct Engines {
    /// Their names; the first is the one that rows are about where they name none.
    pub names: Vec<String>,
    limits: Limits,
    stages: Vec<Stage>,
    /// What all stages have in common.
    workload: Table,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Stage {
    name: String,
    /// Whether the files' pages are dropped from the system's cache before.
    #[serde(default)]
    drop_caches: bool,
    /// Whether it writes each of the workload's keys once, in their order.
    #[serde(default)]
    fill: bool,
    /// What replaces parts of the workload.
    #[serde(flatten)]
    workload: Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileScenario {
    engines: Vec<String>,
    #[serde(default)]
    limits: Limits,
}

impl Engines {
    /// Of an experiment's `[scenario]`, its `[workload]` and each `[[stage]]`.
    ///
    /// # Errors
    /// What is wrong, and in which stage.
    pub fn parse(scenario: &Table, workload: &Table, stages: &[Table]) -> Result<Engines, String> {
        let said = |error: toml::de::Error| error.to_string().trim_end().to_owned();
        let file: FileScenario =
            scenario.clone().try_into().map_err(|error| format!("[scenario]: {}", said(error)))?;
        if !(1..=ENGINES_MAX).contains(&file.engines.len()) {
            return Err(format!("[scenario]: from 1 to {ENGINES_MAX} engines"));
        }
        if let Some(name) = file.engines.iter().find(|name| Kind::named(name).is_none()) {
            let all = Kind::ALL.map(Kind::name).join(", ");
            return Err(format!("[scenario]: engine {name:?} is none of {all}"));
        }
        if !(1..=STAGES_MAX).contains(&stages.len()) {
            return Err(format!("from 1 to {STAGES_MAX} [[stage]]"));
        }
        let stages = stages.iter().enumerate().map(|(at, stage)| {
            stage.clone().try_into().map_err(|error| format!("stage {}: {}", at + 1, said(error)))
        });
        let engines = Engines {
            names: file.engines,
            limits: file.limits,
            stages: stages.collect::<Result<Vec<Stage>, String>>()?,
            workload: workload.clone(),
        };
        for (at, stage) in engines.stages.iter().enumerate() {
            if engines.stages[..at].iter().any(|it| it.name == stage.name) {
                return Err(format!("two stages are called {:?}", stage.name));
            }
            engines.labels(&stage.name)?;
        }
        Ok(engines)
    }

    /// That a row is of an engine, a stage and an operation that there are.
    pub(crate) fn check(&self, row: &Row) -> Result<(), String> {
        if matches!(row.check_run()?, Figure::Violations | Figure::Undecided) || row.variant.is_some() {
            return Err(row.wrong("an engine has neither variants nor histories"));
        }
        let mut named = [&row.engine, &row.over].into_iter().flatten();
        if let Some(name) = named.find(|name| !self.names.contains(name)) {
            return Err(row.wrong(&format!("no engine {name:?} is played")));
        }
        let stage = row.stage.as_deref().unwrap_or(self.last());
        let labels = self.labels(stage).map_err(|what| row.wrong(&format!("stage {stage:?}: {what}")))?;
        row.check_label(&labels, &format!(" of stage {stage:?}"))
    }

    /// The operations of a stage; what is wrong with it, or that there is none.
    pub fn labels(&self, stage: &str) -> Result<Vec<String>, String> {
        let stage = self.stages.iter().find(|it| it.name == stage);
        let stage = stage.ok_or_else(|| "there is no such stage".to_owned())?;
        let text = self.text(stage, &self.names[0], Path::new("stores"))?;
        let wrong = |error: Error| format!("stage {:?}: {error}", stage.name);
        Workload::parse(&text, "its workload").map(|it| it.labels()).map_err(wrong)
    }

    /// The last stage's name.
    pub fn last(&self) -> &str {
        self.stages.last().map_or("", |stage| &stage.name)
    }

    /// The workload of an engine's stage.
    fn text(&self, stage: &Stage, engine: &str, folder: &Path) -> Result<String, String> {
        let mut all = self.workload.clone();
        merge(&mut all, stage.workload.clone());
        if stage.fill {
            let count = all.get("keys").and_then(|keys| keys.get("count")).cloned();
            let count =
                count.ok_or_else(|| format!("stage {:?}: `fill` needs a count of keys", stage.name))?;
            all.remove("duration");
            all.insert("warm_up".to_owned(), Value::from("0s"));
            all.insert("operations_max".to_owned(), count);
            // Keys are written as the other stages write them.
            let mut keys = all.get("keys").and_then(Value::as_table).cloned().unwrap_or_default();
            keys.retain(|name, _| ["count", "prefix", "digits", "format"].contains(&name));
            keys.insert("kind".to_owned(), Value::from("sequential"));
            all.insert("keys".to_owned(), Value::Table(keys));
            let put = Table::from_iter([("op".to_owned(), Value::from("put"))]);
            all.insert("operation".to_owned(), Value::Array(vec![Value::Table(put)]));
        }
        all.insert("name".to_owned(), Value::from(format!("{engine}, {}", stage.name)));
        all.insert("driver".to_owned(), Value::from("engine"));
        // A call waits in its thread: more outstanding than threads would only queue.
        let threads = all.get("threads").cloned().unwrap_or(Value::from(1));
        all.insert("concurrency".to_owned(), threads);
        let mut own = Table::from_iter([
            ("name".to_owned(), Value::from(engine)),
            ("folder".to_owned(), Value::from(folder.display().to_string())),
            ("shared".to_owned(), Value::from(true)),
        ]);
        if let Some(mib) = self.limits.memory_mib.and_then(|mib| i64::try_from(mib).ok()) {
            own.insert("memory_mib".to_owned(), Value::from(mib));
        }
        merge(&mut all, Table::from_iter([("engine".to_owned(), Value::Table(own))]));
        Ok(all.to_string())
    }

    /// Takes an engine through all stages, and adds each to `played`; results and workloads go into `out`, and the
    /// stores are gone when it is over. `program` is this one.
    ///
    /// # Errors
    /// [`Error::Unusable`] if the engine is not in this program, or a stage did not come to its end: it and those
    /// behind it are not played.
    pub fn play(
        &self,
        engine: &str,
        program: &Path,
        out: &Path,
        control: &Control,
        played: &mut Vec<Played>,
    ) -> Result<(), Error> {
        Kind::read(engine).map_err(Error::Unusable)?;
        let stores = out.join("stores");
        fs::create_dir_all(&stores).map_err(Error::file(&stores))?;
        let group = (!self.limits.is_empty()).then(|| Group::make(engine, &stores)).transpose()?;
        if let Some(group) = &group {
            group.limit(&self.limits)?;
        }
        let done = self.stages.iter().filter(|_| !control.is_stopped()).try_for_each(|stage| {
            let text = self.text(stage, engine, &stores).map_err(Error::Unusable)?;
            if stage.drop_caches {
                drop_caches(&stores)?;
            }
            let results = stage.play(&text, program, out, group.as_ref())?;
            let (name, stage) = (engine.to_owned(), stage.name.clone());
            let space_bytes = folder_bytes(&stores);
            played.push(Played { name, stage, results, space_bytes, history: None });
            Ok(())
        });
        fs::remove_dir_all(&stores).map_err(Error::file(&stores))?;
        done
    }
}

impl Stage {
    /// Runs a workload in a process of its own.
    fn play(&self, text: &str, program: &Path, out: &Path, group: Option<&Group>) -> Result<Results, Error> {
        let (file, folder) = (out.join(format!("{}.toml", self.name)), out.join(&self.name));
        fs::write(&file, text).map_err(Error::file(&file))?;
        let mut command = Command::new(program);
        command.args(["bench", "run"]).arg(&file).arg("--out").arg(&folder);
        let mut child = command.spawn().map_err(Error::file(program))?;
        let entered = group.into_iter().flat_map(Group::entrances).try_for_each(|entrance| {
            fs::write(&entrance, child.id().to_string()).map_err(Error::file(&entrance))
        });
        if entered.is_err() {
            // It has ended already, or it must not go on without its limits.
            child.kill().ok();
        }
        let status = child.wait().map_err(Error::file(program))?;
        entered?;
        let unfinished = |what: String| Error::Unusable(format!("stage {}: {status}{what}", self.name));
        if let Some(signal) = status.signal() {
            let memory =
                if signal == SIGKILL { ", as the system does where memory does not suffice" } else { "" };
            return Err(unfinished(memory.to_owned()));
        }
        // Where the store was wrong the exit code is 1, and the results say so.
        Results::open(&folder).map_err(|error| unfinished(format!(", {error}")))
    }
}

/// Has the system forget the pages of a folder's files: what is not on the disk yet is written first.
fn drop_caches(folder: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(folder).map_err(Error::file(folder))? {
        let path = entry.map_err(Error::file(folder))?.path();
        if path.is_dir() {
            drop_caches(&path)?;
        } else {
            let file = File::open(&path).map_err(Error::file(&path))?;
            file.sync_all().map_err(Error::file(&path))?;
            fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| Error::file(&path)(error.into()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOAD: &str = "duration = \"5s\"\nkeys = { kind = \"uniform\", count = 1000, digits = 16 }\n\
                            engine = { durability = \"none\" }\noperation = [{ op = \"get\" }]";

    fn table(text: &str) -> Table {
        text.parse().unwrap()
    }

    #[test]
    fn a_stage_is_the_workload_with_parts_replaced() {
        let stages = [
            table("name = \"fill\"\nfill = true\nthreads = 2"),
            table("name = \"mix\"\nthreads = 32\noperation = [{ op = \"get\" }, { op = \"put\" }]"),
        ];
        let engines =
            Engines::parse(&table("engines = [\"annulet\", \"hash\"]"), &table(WORKLOAD), &stages).unwrap();
        let read = |at: usize| {
            let text = engines.text(&engines.stages[at], "hash", Path::new("there")).unwrap();
            Workload::parse(&text, "w").unwrap()
        };
        let (fill, mix) = (read(0), read(1));
        assert_eq!((fill.operations_max, fill.threads, fill.concurrency), (Some(1000), 2, 2));
        assert_eq!(fill.labels(), ["put"]);
        assert_eq!(fill.naming, mix.naming);
        assert_eq!((mix.operations_max, mix.threads), (None, 32));
        assert_eq!(mix.labels(), ["get", "put"]);
        assert_eq!((mix.engine.kind, mix.engine.is_shared), (Kind::Hash, true));
        assert_eq!(mix.engine.folder.as_deref(), Some(Path::new("there")));
        assert_eq!(engines.last(), "mix");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_stage() {
        let parse = |scenario: &str, stages: &[&str]| {
            let stages: Vec<Table> = stages.iter().map(|it| table(it)).collect();
            Engines::parse(&table(scenario), &table(WORKLOAD), &stages).unwrap_err()
        };
        let fine = "name = \"one\"";
        for (scenario, stages, part) in [
            ("engines = []", &[fine][..], "from 1 to 16 engines"),
            ("engines = [\"abacus\"]", &[fine], "\"abacus\" is none of annulet"),
            ("engines = [\"annulet\"]\nnodes = 3", &[fine], "nodes"),
            ("engines = [\"annulet\"]", &[], "[[stage]]"),
            ("engines = [\"annulet\"]", &[fine, "threads = 1"], "stage 2: missing field `name`"),
            ("engines = [\"annulet\"]", &[fine, fine], "two stages are called \"one\""),
            ("engines = [\"annulet\"]", &["name = \"one\"\nthreads = 0"], "stage \"one\""),
            ("engines = [\"annulet\"]", &["name = \"one\"\ncolor = 1"], "color"),
        ] {
            let wrong = parse(scenario, stages);
            assert!(wrong.contains(part), "{scenario} {stages:?}: {wrong}");
        }
    }

    #[test]
    fn a_stage_that_was_killed_is_not_played_and_those_before_it_are() {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let text =
            "driver = \"null\"\nwarm_up = \"0s\"\noperations_max = 10\noperation = [{ op = \"ping\" }]";
        let workload = Workload::parse(text, "w").unwrap();
        bench::run(&workload, &ready, &bench::Identity::default(), &Control::default(), &mut ()).unwrap();
        // Leaves the same results each time, and dies of the second stage.
        let script =
            "#!/bin/sh\ncp -r \"$(dirname \"$0\")/ready\" \"$5\"\ncase \"$5\" in */two) kill -9 $$ ;; esac\n";
        let program = folder.path().join("program");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let stages = ["one", "two", "three"].map(|name| table(&format!("name = {name:?}")));
        let engines = Engines::parse(&table("engines = [\"hash\"]"), &table(WORKLOAD), &stages).unwrap();
        let (out, mut played) = (folder.path().join("out"), Vec::new());
        let error =
            engines.play("hash", &program, &out, &Control::default(), &mut played).unwrap_err().to_string();
        assert!(error.contains("stage two") && error.contains("memory"), "{error}");
        assert_eq!(played.iter().map(|it| &*it.stage).collect::<Vec<_>>(), ["one"]);
        assert!(!out.join("stores").exists());
    }
}
