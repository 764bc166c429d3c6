//! `annulet dev N --secure`: the commands that it shows, run as shown.

use crate::common::annulet;
use crate::common::nodes::free_ports;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// A cluster that has shown how it is used. It is killed when this is dropped.
struct SecureDev {
    child: Child,
    banner: String,
}

impl SecureDev {
    fn start(dir: &Path, base: u16, args: &[&str]) -> SecureDev {
        let base = base.to_string();
        let all = [&["dev", "2", "--data", "dev", "--base-port", &base, "--durability", "none"][..], args];
        let mut child = annulet(dir, &all.concat()).stdout(Stdio::piped()).spawn().unwrap();
        let mut banner = String::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            banner.push_str(&format!("{line}\n"));
            if line.contains("kv get") {
                break;
            }
        }
        assert!(banner.contains("security is on"), "{banner}");
        SecureDev { child, banner }
    }

    /// The first line that has a text, without the spaces in front.
    fn line(&self, text: &str) -> &str {
        let found = self.banner.lines().find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("{text}: {}", self.banner)).trim_start()
    }

    fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for SecureDev {
    fn drop(&mut self) {
        // The nodes stop with their supervisor.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Runs lines of a shell as a person would, in a folder.
fn shell(dir: &Path, script: &str) -> Output {
    let mut command = Command::new("sh");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ANNULET_")) {
        command.env_remove(name);
    }
    command.current_dir(dir).args(["-ec", script]).output().unwrap()
}

#[track_caller]
fn done(dir: &Path, script: &str) -> String {
    let output = shell(dir, script);
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_secure_cluster_is_used_as_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, base) = (folder.path(), free_ports());
    let dev = SecureDev::start(dir, base, &["--secure"]);
    let export = dev.line("export ANNULET_NODE=").to_owned();
    let program = dev.line("admin security whoami").split(" admin ").next().unwrap().to_owned();
    let as_admin = |words: &str| done(dir, &format!("{export}\n{program} {words}"));

    let whoami = as_admin("admin security whoami");
    assert!(whoami.contains("user    admin\n") && whoami.contains("mode    on"), "{whoami}");
    done(dir, &format!("{export}\n{}", dev.line("kv put books dune")));
    // The certificate of the other user, with and without the variables of the administrator.
    let by_certificate = dev.line("kv get --node").to_owned();
    assert!(done(dir, &format!("{export}\n{by_certificate}")).starts_with("A beginning"));
    assert!(done(dir, &by_certificate).starts_with("A beginning"));

    // The same login by flags.
    let https = format!("127.0.0.1:{}", base + 16);
    let flags = "--ca dev/clients/ca.pem --user admin --password-file dev/clients/admin.password";
    let by_flags = |words: &str| shell(dir, &format!("{program} {words} --node {https} {flags}"));
    assert!(by_flags("top --once --json").status.success());
    assert!(by_flags("kv get books dune").stdout.starts_with(b"A beginning"));
    assert!(by_flags("admin cluster status").status.success());
    let backup = by_flags("backup create");
    assert!(backup.status.success(), "{backup:?}");
    let certificate = "--ca dev/clients/ca.pem --cert dev/clients/app.pem --key dev/clients/app.key";
    let app = done(dir, &format!("{program} admin security whoami --node {https} {certificate}"));
    assert!(app.contains("user    app\n") && app.contains("certificate, by the source app"), "{app}");

    // The load generator, by a password and by a certificate.
    let workload = format!(
        "driver = \"pb\"\naddresses = [\"127.0.0.1:{}\", \"127.0.0.1:{}\"]\nconcurrency = 16\n\
         warm_up = \"0s\"\noperations_max = 2000\n[keys]\nkind = \"uniform\"\ncount = 100\n[value]\nsize = 50000\n\
         [[operation]]\nop = \"get\"\nweight = 40\n[[operation]]\nop = \"put\"\nweight = 40\n[[operation]]\nop = \"reconnect\"\n",
        base + 17,
        base + 27
    );
    std::fs::write(dir.join("load.toml"), workload).unwrap();
    for (name, login) in [("password", flags), ("certificate", certificate)] {
        let told = done(dir, &format!("{program} bench run load.toml --out {name} {login}"));
        assert!(told.contains("no errors") && told.contains("none was wrong"), "{told}");
    }
    // The same by HTTPS, at the ports that are one below those of protocol buffers.
    let by_https = std::fs::read_to_string(dir.join("load.toml")).unwrap().replace("\"pb\"", "\"http\"");
    let by_https = [17, 27].iter().fold(by_https, |text, port| {
        text.replace(&format!(":{}", base + port), &format!(":{}", base + port - 1))
    });
    std::fs::write(dir.join("https.toml"), by_https).unwrap();
    for (name, login) in [("https-password", flags), ("https-certificate", certificate)] {
        let told = done(dir, &format!("{program} bench run https.toml --out {name} {login}"));
        assert!(told.contains("no errors") && told.contains("none was wrong"), "{told}");
    }
    let told = done(dir, &format!("{program} bench run load.toml --out none --ca dev/clients/ca.pem"));
    assert!(told.contains("failed") && told.contains("0 reads verified"), "nobody has logged in: {told}");

    // Nobody gets in without a login.
    let plain = format!("127.0.0.1:{}", base + 18);
    assert!(!shell(dir, &format!("{program} admin cluster status --node {plain}")).status.success());
    let refused = shell(dir, &format!("{program} kv get --node 127.0.0.1:{} books dune", base + 17));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("please STARTTLS first"), "{refused:?}");

    // A later start is secured without the flag.
    dev.stop();
    let dev = SecureDev::start(dir, base, &[]);
    assert_eq!(dev.line("export ANNULET_NODE="), export);
    assert!(done(dir, &by_certificate).starts_with("A beginning"));
    dev.stop();
}
