//! What `annulet bench run` shows on a terminal: on a real one, as far as the program can tell, and read as its user
//! sees it.

use crate::common::annulet;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::Stdio;

const COLUMNS: u16 = 60;

/// A terminal: its own end, and the one for a program.
fn terminal() -> (File, File) {
    let own = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&own).unwrap();
    unlockpt(&own).unwrap();
    let name = ptsname(&own, Vec::new()).unwrap().into_string().unwrap();
    let size = Winsize { ws_row: 24, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&own, size).unwrap();
    (File::from(own), OpenOptions::new().read(true).write(true).open(name).unwrap())
}

/// What stands on the screen after `text`: lines that are too long are broken, as terminals do.
fn screen(text: &str) -> Vec<String> {
    let mut lines = vec![Vec::<char>::new()];
    let mut row = 0_usize;
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        match letter {
            '\r' => {}
            '\n' => row += 1,
            '\x1b' => {
                let end = rest.find(|letter: char| letter.is_ascii_alphabetic()).unwrap();
                let (number, command) = (rest[1..end].parse::<usize>(), &rest[end..=end]);
                match command {
                    "A" => row = row.checked_sub(number.unwrap()).expect("up beyond what was drawn"),
                    "J" => lines.truncate(row),
                    other => panic!("{other}"),
                }
                rest = &rest[end + 1..];
            }
            letter => {
                if lines.get(row).is_some_and(|line| line.len() == usize::from(COLUMNS)) {
                    row += 1;
                }
                lines.resize(lines.len().max(row + 1), Vec::new());
                lines[row].push(letter);
            }
        }
    }
    lines.into_iter().map(|line| line.into_iter().collect()).collect()
}

#[test]
fn a_run_is_one_table_that_is_drawn_over_itself() {
    let dir = tempfile::tempdir().unwrap();
    let workload = "driver = \"null\"\nwarm_up = \"0s\"\nduration = \"3s\"\nconcurrency = 4\n[keys]\nkind = \"uniform\"\n\
                    count = 100\n[load]\nkind = \"fixed\"\nrate = 2000\n[[operation]]\nop = \"get\"\n[[operation]]\nop = \"put\"\n";
    std::fs::write(dir.path().join("w.toml"), workload).unwrap();
    let (mut own, theirs) = terminal();
    let mut command = annulet(dir.path(), &["bench", "run", "w.toml", "--out", "results"]);
    let mut child = command.stdout(Stdio::from(theirs)).spawn().unwrap();
    // The command has the other end too, until it is gone.
    drop(command);
    let mut shown = Vec::new();
    let mut part = [0; 4096];
    // A terminal whose last program has ended answers with an error.
    while let Ok(len @ 1..) = own.read(&mut part) {
        shown.extend_from_slice(&part[..len]);
    }
    assert!(child.wait().unwrap().success());
    let text = String::from_utf8(shown).unwrap();
    assert!(text.matches("\x1b[J").count() >= 3, "it was drawn anew each second: {text:?}");
    assert!(text.contains('█') && text.contains("op/s"), "{text:?}");
    // At its end the table is gone, and what the run came to stands there.
    let lines = screen(&text);
    let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    assert_eq!((count("p99.9       max"), count("reads verified: none was wrong")), (0, 1), "{lines:#?}");
    // Before that it is there once, whole: its head, its columns, each operation, all of them.
    let last = text.rfind("\x1b[5A").unwrap();
    let lines = screen(&text[..last]);
    let at = |start: &str| lines.iter().position(|line| line.starts_with(start));
    let (get, put, all) = (at("get ").unwrap(), at("put ").unwrap(), at("all ").unwrap());
    assert_eq!((get + 1, put + 1, all + 1), (put, all, lines.len()), "{lines:#?}");
    assert!(lines[get - 1].contains("op/s       p50") && lines[get - 2].contains("no errors"), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("all ")).count(), 1, "{lines:#?}");
}
