//! A set of figures: parts that run one after the other, and the page that comes of them.
//!
//! A part has rows of its own and fresh folders. A part that fails leaves its rows as not reached and the others go
//! on. The page is written when all have run, and a run of some parts only leaves it as it was.

use crate::report::{Heading, Report};
use crate::rows::Spec;
use crate::{Result, ending, machine, sys};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How a set is taken.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// End within ten minutes on two cores; says what it leaves out.
    #[arg(long)]
    quick: bool,
    /// Leave the data folders and logs of the servers where they are.
    #[arg(long)]
    keep: bool,
    /// Measure this binary; without it, one that is built from the tree as it is.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Only these parts; an unknown name lists all. The page is not written then.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
}

/// What the parts of a set share.
pub struct Context<Plan> {
    /// How much is measured.
    pub plan: Plan,
    /// The measured binary; empty for a set that needs none.
    pub binary: PathBuf,
    /// Where data and logs go.
    pub home: PathBuf,
}

/// A part: rows that are filled together.
pub struct Part<Plan> {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Its rows.
    pub specs: fn() -> Vec<Spec>,
    /// Fills them.
    pub run: fn(&Context<Plan>, &mut Report) -> Result<()>,
}

/// A set.
pub struct Set<Plan: 'static> {
    /// Its name on the command line, and of its page.
    pub name: &'static str,
    /// The title of its page.
    pub title: &'static str,
    /// How its figures are taken, for its page.
    pub method: &'static str,
    /// The plans of a full run and of a quick one.
    pub plans: [Plan; 2],
    /// Whether it measures the binary, and not this process.
    pub needs_binary: bool,
    /// What a quick run leaves out.
    pub quick_leaves_out: &'static str,
    /// Its parts, in the order in which they run.
    pub parts: &'static [Part<Plan>],
}

impl<Plan: Copy> Set<Plan> {
    /// Measures, prints, writes the page; `flags` are further ones of this run.
    pub fn run(&self, options: &Options, flags: &str) -> Result<()> {
        let Options { quick, keep, binary, only } = options;
        self.check_names(only)?;
        let plan = self.plans[usize::from(*quick)];
        let begin = Instant::now();
        let root = sys::workspace()?;
        let target = sys::target(root)?;
        let binary = match binary {
            Some(binary) => std::path::absolute(binary)?,
            None if self.needs_binary => sys::build("annulet", root, &target, "")?,
            None => PathBuf::new(),
        };
        let folders = target.join("figures");
        fs::create_dir_all(&folders)?;
        let mut folder = tempfile::Builder::new().prefix(&format!("{}-", self.name)).tempdir_in(folders)?;
        folder.disable_cleanup(*keep);
        let context = Context { plan, binary, home: folder.path().to_owned() };

        let mut report = Report::default();
        if *quick {
            report.remark(self.quick_leaves_out);
        }
        for part in
            self.parts.iter().filter(|part| only.is_empty() || only.iter().any(|name| name == part.name))
        {
            part.run(&context, &mut report, *keep)?;
        }
        if only.is_empty() {
            self.write_page(root, &context, options, flags, &report)?;
        }
        if *keep {
            eprintln!("figures: kept {}", context.home.display());
        }
        eprintln!("figures: {:.0} s; {}", begin.elapsed().as_secs_f64(), report.summary());
        Ok(())
    }

    /// An error if there is no part of such a name.
    fn check_names(&self, only: &[String]) -> Result<()> {
        let parts: Vec<&str> = self.parts.iter().map(|part| part.name).collect();
        match only.iter().find(|name| !parts.contains(&name.as_str())) {
            Some(name) => Err(format!("no part is called {name}; there are {}", parts.join(", ")).into()),
            None => Ok(()),
        }
    }

    fn write_page(
        &self,
        root: &Path,
        context: &Context<Plan>,
        options: &Options,
        flags: &str,
        report: &Report,
    ) -> Result<()> {
        let quick = if options.quick { " --quick" } else { "" };
        let binary = options
            .binary
            .as_ref()
            .map(|binary| format!(" --binary {}", binary.display()))
            .unwrap_or_default();
        let heading = Heading {
            title: self.title,
            machine: &machine::describe(&context.home),
            commit: &machine::commit(root),
            command: &format!("cargo xtask figures {}{quick}{binary}{flags}", self.name),
            method: self.method.trim_ascii_end(),
        };
        report.write(&root.join(format!("docs/benchmarks/{}.md", self.name)), &heading)
    }
}

impl<Plan> Part<Plan> {
    fn run(&self, context: &Context<Plan>, report: &mut Report, keep: bool) -> Result<()> {
        let begin = Instant::now();
        let failure = (self.run)(context, report).err();
        ending::stop_if_ending();
        let why = failure.map_or("not measured".to_owned(), |failure| failure.to_string());
        report.fail_rest((self.specs)(), &why)?;
        eprintln!("figures: {} took {:.0} s", self.name, begin.elapsed().as_secs_f64());
        if !keep {
            // Gigabytes that the next part's writes would otherwise compete with.
            fs::remove_dir_all(&context.home)?;
            fs::create_dir_all(&context.home)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of all rows of a set.
    fn names<Plan>(set: &Set<Plan>) -> Vec<String> {
        set.parts.iter().flat_map(|part| (part.specs)()).map(|spec| spec.row).collect()
    }

    #[test]
    fn an_unknown_part_is_refused() {
        let check = |name: &str| crate::quorum::SET.check_names(&["cpu".to_owned(), name.to_owned()]);
        assert!(check("forms").is_ok());
        assert_eq!(check("other").unwrap_err().to_string(), "no part is called other; there are cpu, forms");
    }

    #[test]
    fn every_row_has_a_name_of_its_own() {
        use crate::{first_light, house, load_generator, operations, quorum, security, strong};
        let (first_light, house) = (names(&first_light::SET), names(&house::SET));
        let (quorum, strong) = (names(&quorum::SET), names(&strong::SET));
        let (load_generator, operations) = (names(&load_generator::SET), names(&operations::SET));
        let security = names(&security::SET);
        for mut names in [first_light, house, load_generator, operations, quorum, security, strong] {
            let count = names.len();
            names.sort();
            names.dedup();
            assert!(count > 0 && names.len() == count);
        }
    }
}
