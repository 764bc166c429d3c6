//! `cargo xtask package`: the Debian packages, the container image and the compose file, by the scripts of
//! `packaging/`.
//!
//! 1. The programs are built with debug symbols of lines; the libraries as in every other release build. 2. The
//!    licences of the linked crates are gathered. 3. `deb.sh` and `image.sh` make the packages and the image. 4. With
//!    `--check`, the packages are made twice, and must be equal to the byte; a further version is made to upgrade to;
//!    the scripts of `packaging/test/` try all of them.
//!
//! Left out: signatures, and repositories of packages.

use crate::Result;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of the scripts.
pub const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging");

/// Debug symbols for backtraces, of this project's crates.
const BUILD: &[&str] = &[
    "build",
    "--release",
    "--locked",
    "--package=annulet",
    "--config=profile.release.debug=\"line-tables-only\"",
    "--config=profile.release.package.\"*\".debug=false",
];

/// What is made, and where.
#[derive(clap::Args)]
pub struct Options {
    /// Folder of the results.
    #[arg(long, value_name = "DIR", default_value = "target/package")]
    out: PathBuf,
    /// Make the Debian packages alone.
    #[arg(long)]
    no_image: bool,
    /// Test the results: as root, with debootstrap, lintian, systemd-container, buildah and python3-yaml.
    #[arg(long)]
    check: bool,
}

/// Makes the packages and the image.
pub fn run(options: &Options) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    std::fs::create_dir_all(&options.out)?;
    let out = options.out.canonicalize()?;
    succeed(Command::new(env!("CARGO")).args(BUILD))?;
    // Beside the folder of this program's own profile.
    let own = std::env::current_exe()?;
    let programs = own.ancestors().nth(2).ok_or("this program is in no build folder")?.join("release");
    let notices = out.join("NOTICES");
    std::fs::write(&notices, licences()?)?;
    let epoch = text_of(Command::new("git").args(["log", "-1", "--format=%ct"]))?;
    let script = |name: &str, out: &Path, version: &str| {
        let mut command = Command::new(Path::new(SCRIPTS).join(name));
        command.arg(&programs).arg(out).arg(version).env("NOTICES", &notices);
        succeed(command.env("SOURCE_DATE_EPOCH", epoch.trim()))
    };
    script("deb.sh", &out, version)?;
    if !options.no_image {
        script("image.sh", &out, version)?;
    }
    if !options.check {
        return Ok(());
    }
    let again = tempfile::tempdir()?;
    script("deb.sh", again.path(), version)?;
    check_equal(&out, again.path())?;
    script("deb.sh", &out, &format!("{version}+next"))?;
    let images = if options.no_image { &[][..] } else { &["test/image.sh"] };
    for test in ["test/deb.sh", "test/systemd.sh"].iter().chain(images) {
        succeed(Command::new(Path::new(SCRIPTS).join(test)).arg(&out).arg(version))?;
    }
    Ok(())
}

/// The licences of the crates that the programs link.
fn licences() -> Result<Vec<u8>> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform", &target])
        .stdout(Stdio::piped())
        .spawn()?;
    let input = metadata.stdout.take().ok_or("no output of cargo metadata")?;
    let output =
        Command::new(Path::new(SCRIPTS).join("notices.py")).stdin(input).stderr(Stdio::inherit()).output()?;
    match metadata.wait()?.success() && output.status.success() {
        true => Ok(output.stdout),
        false => Err("the licences cannot be gathered".into()),
    }
}

/// Fails if a package of `again` is another in `out`.
fn check_equal(out: &Path, again: &Path) -> Result<()> {
    for file in std::fs::read_dir(again)? {
        let file = file?;
        if std::fs::read(file.path())? != std::fs::read(out.join(file.file_name()))? {
            return Err(format!("two builds of {} differ", file.file_name().display()).into());
        }
    }
    Ok(())
}

fn succeed(command: &mut Command) -> Result<()> {
    match command.status()? {
        status if status.success() => Ok(()),
        status => Err(format!("{}: {status}", command.get_program().display()).into()),
    }
}

fn text_of(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{}: {}", command.get_program().display(), output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
