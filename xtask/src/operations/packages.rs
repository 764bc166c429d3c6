//! The packages that `cargo xtask package` has made: complaints of lintian, the exposure of the unit, sizes.
//!
//! Left out: the life of the package and of the image, which `cargo xtask package --check` goes through.

use super::Context;
use crate::report::Report;
use crate::rows::{Bar, Spec};
use crate::{Result, sys};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The bar on the bytes of the image: 30 MB.
const IMAGE_MB_MAX: f64 = 30.0;

fn lintian_spec() -> Spec {
    Spec::new("package/lintian errors", "lines", Some(Bar::Exactly(0.0)))
}

fn unit_spec() -> Spec {
    Spec::new("package/exposure of the unit", "points", Some(Bar::AtMost(3.0)))
}

fn package_spec() -> Spec {
    Spec::new("package/size", "MB", None)
}

fn image_spec() -> Spec {
    Spec::new("image/size", "MB", Some(Bar::AtMost(IMAGE_MB_MAX)))
}

/// The rows of this part.
pub fn specs() -> Vec<Spec> {
    vec![lintian_spec(), unit_spec(), package_spec(), image_spec()]
}

/// Fills them.
pub fn run(_: &Context, report: &mut Report) -> Result<()> {
    let made = sys::target(sys::workspace()?)?.join("package");
    let none = "no packages: cargo xtask package --out CARGO_TARGET_DIR/package";
    let package = packages(&made).map_err(|_| none)?.into_iter().next().ok_or(none)?;
    let image = made.join("image").join("root.tar");

    let unit = Path::new(crate::package::SCRIPTS).join("annulet.service");
    let rows = [
        (lintian_spec(), lintian_errors(&package), "1 package"),
        (unit_spec(), exposure(&unit), "systemd-analyze security"),
        (package_spec(), size_mb(&package), "without debug symbols"),
        (image_spec(), size_mb(&image), "the program and its libraries"),
    ];
    for (spec, value, noise) in rows {
        report.push(match value {
            Ok(value) => spec.valued(value, noise),
            Err(why) => spec.failed(why),
        })?;
    }
    Ok(())
}

/// The packages of a folder, without those of debug symbols and of a test's later version.
fn packages(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = fs::read_dir(folder)?
        .map(|file| file.map(|file| file.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    let is_package = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("annulet_") && name.ends_with(".deb") && !name.contains("next")
    };
    Ok(files.into_iter().filter(is_package).collect())
}

fn lintian_errors(package: &Path) -> Result<f64> {
    sys::ensure_tool("lintian")?;
    let output = Command::new("lintian").arg(package).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter(|line| line.starts_with("E:")).count() as f64)
}

fn exposure(unit: &Path) -> Result<f64> {
    sys::ensure_tool("systemd-analyze")?;
    let output = Command::new("systemd-analyze").args(["security", "--offline=true"]).arg(unit).output()?;
    exposure_of(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| "systemd-analyze told no exposure".into())
}

/// The number behind the last colon of the last line.
fn exposure_of(told: &str) -> Option<f64> {
    let line = told.lines().rfind(|line| line.contains("exposure level"))?;
    line.rsplit_once(':')?.1.split_whitespace().next()?.parse().ok()
}

fn size_mb(file: &Path) -> Result<f64> {
    let length = fs::metadata(file).map_err(|error| format!("{}: {error}", file.display()))?.len();
    Ok(length as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exposure_is_read() {
        let told = "✓ PrivateTmp=\n\n→ Overall exposure level for annulet.service: 1.4 OK 🙂\n";
        assert_eq!(exposure_of(told), Some(1.4));
        assert_eq!(exposure_of("nothing"), None);
    }
}
