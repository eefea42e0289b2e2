//! Targets with a planted bug, to prove that violations of each invariant are detected.

use crate::{
    engine::{Outcome, Target},
    invariants::{Invariant, Meter, Violation},
};

/// Names of the targets, and a part of each one's report.
pub const NAMES: &[(&str, &str)] = &[
    ("planted-panic", "NoPanic is violated"),
    ("planted-caught-panic", "NoPanic is violated"),
    ("planted-overflow", "stack"),
    ("planted-waste", "BoundedMemory is violated"),
    ("planted-unreadable", "ReadableAgain is violated"),
];

pub(super) fn make(name: &str) -> Option<Box<dyn Target>> {
    let (name, _) = NAMES.iter().find(|(known, _)| *known == name)?;
    Some(Box::new(Planted(name)))
}

/// Accepts digits; the bug shows for digits from 7.
struct Planted(&'static str);

impl Target for Planted {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        vec![b"1".to_vec(), b"22".to_vec()]
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        let bug = input.iter().any(|byte| (b'7'..=b'9').contains(byte));
        let meter = Meter::start();
        if bug {
            match self.0 {
                "planted-panic" => panic!("planted"),
                "planted-caught-panic" => {
                    let _ = std::thread::spawn(|| panic!("planted")).join();
                }
                "planted-overflow" => {
                    std::hint::black_box(descend(u64::MAX));
                }
                "planted-waste" => {
                    std::hint::black_box(Vec::<u8>::with_capacity(1 << 30));
                }
                _ => return Err(Invariant::ReadableAgain.violated("planted")),
            }
        }
        Ok(Outcome {
            accepted: true,
            fingerprint: String::from_utf8_lossy(input).into_owned(),
            allocated: meter.check(input.len())?,
        })
    }
}

fn descend(levels: u64) -> u64 {
    if levels == 0 {
        0
    } else {
        1 + std::hint::black_box(descend(levels - 1))
    }
}
