//! What the containers of a pod are to do, as an annotation of the pod says it.
//!
//! [`ANNOTATION`] holds lines, separated by `;` or new lines. Each line is a word with options:
//!
//! | line | what happens |
//! |---|---|
//! | `done` | the container ends well (exit code 0) |
//! | `exit=N` | the container ends with this code |
//! | `crash-loop` | as `exit=1`, each time it is started |
//! | `never-ready` | the container runs and is never ready |
//! | `ready` | the container is ready, only later: see `after` |
//! | `pull-fails` | its image cannot be pulled |
//! | `ignores-term` | the container ends only when its grace period is over |
//!
//! Options: `after=2s` (`ms`, `s`, `m`, `h`; counted from the start of the container; default: at once), `times=3` (only so
//! often, then all is well; default: always), `container=name` (only this one, which may be an init container; default:
//! every container that is not an init container).
//!
//! For example `exit=1 after=2s times=2; ready after=5s`.

use std::time::Duration;

/// The annotation of a pod that says what its containers do.
pub(crate) const ANNOTATION: &str = "windlass.dev/pod-script";

/// What one container is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) exit: Option<Exit>,
    /// How often the pull of its image fails.
    pub(super) failing_pulls: u32,
    pub(super) readiness: Readiness,
    pub(super) ignores_term: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    pub(super) code: i32,
    pub(super) after: Duration,
    /// In how many runs.
    pub(super) times: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Readiness {
    /// As soon as its probes would say so.
    #[default]
    Usual,
    After(Duration),
    Never,
}

impl Plan {
    /// The plan for a container. A script that cannot be read is an error, which says what is wrong.
    pub(super) fn read(script: &str, container: &str, is_init: bool) -> Result<Self, String> {
        let mut plan = Self::default();
        for line in script
            .split([';', '\n'])
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            let line = Line::read(line)?;
            let concerned = match line.container {
                Some(name) => name == container,
                None => !is_init,
            };
            if concerned {
                plan.add(&line)?;
            }
        }
        Ok(plan)
    }

    fn add(&mut self, line: &Line<'_>) -> Result<(), String> {
        let (after, times) = (line.after.unwrap_or_default(), line.times.unwrap_or(u32::MAX));
        let exit = |code| Some(Exit { code, after, times });
        match line.word {
            "done" => self.exit = exit(0),
            "crash-loop" => self.exit = exit(1),
            "never-ready" => self.readiness = Readiness::Never,
            "ready" => self.readiness = Readiness::After(after),
            "pull-fails" => self.failing_pulls = times,
            "ignores-term" => self.ignores_term = true,
            word => match word.strip_prefix("exit=").map(str::parse::<u8>) {
                Some(Ok(code)) => self.exit = exit(i32::from(code)),
                Some(Err(_)) => return Err(format!("`{word}`: an exit code is a number from 0 to 255")),
                None => {
                    return Err(format!(
                        "`{word}` is none of done, exit=N, crash-loop, never-ready, ready, pull-fails, ignores-term"
                    ));
                }
            },
        }
        Ok(())
    }
}

struct Line<'a> {
    word: &'a str,
    after: Option<Duration>,
    times: Option<u32>,
    container: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let mut line = Line {
            word: words.next().unwrap_or_default(),
            after: None,
            times: None,
            container: None,
        };
        for option in words {
            match option.split_once('=') {
                Some(("after", value)) => line.after = Some(duration(value)?),
                Some(("times", value)) => {
                    let times = value
                        .parse()
                        .map_err(|_| format!("`{option}`: times is a number"))?;
                    line.times = Some(times);
                }
                Some(("container", name)) => line.container = Some(name),
                _ => return Err(format!("`{option}` is none of after=2s, times=3, container=name")),
            }
        }
        Ok(line)
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let refuse = || format!("`{text}` is no duration: write a number and one of ms, s, m, h");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u32 = number.parse().map_err(|_| refuse())?;
    let unit = match unit {
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "m" => Duration::from_mins(1),
        "h" => Duration::from_hours(1),
        _ => return Err(refuse()),
    };
    Ok(unit * number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(script: &str) -> Result<Plan, String> {
        Plan::read(script, "web", false)
    }

    #[test]
    fn scripts_say_what_each_container_does() {
        let plan = Plan::default();
        let exit = |code, after, times| {
            Some(Exit {
                code,
                after: Duration::from_millis(after),
                times,
            })
        };
        for (script, expected) in [
            ("", plan.clone()),
            (
                "done after=1s",
                Plan {
                    exit: exit(0, 1000, u32::MAX),
                    ..plan.clone()
                },
            ),
            (
                " exit=3 times=2 ;; never-ready\n",
                Plan {
                    exit: exit(3, 0, 2),
                    readiness: Readiness::Never,
                    ..plan.clone()
                },
            ),
            (
                "crash-loop container=web",
                Plan {
                    exit: exit(1, 0, u32::MAX),
                    ..plan.clone()
                },
            ),
            ("crash-loop container=other", plan.clone()),
            (
                "pull-fails times=1",
                Plan {
                    failing_pulls: 1,
                    ..plan.clone()
                },
            ),
            (
                "ready after=2m;ignores-term",
                Plan {
                    readiness: Readiness::After(Duration::from_mins(2)),
                    ignores_term: true,
                    ..plan.clone()
                },
            ),
        ] {
            assert_eq!(read(script), Ok(expected), "{script}");
        }
        assert_eq!(Plan::read("crash-loop", "init", true), Ok(plan));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (script, named) in [
            ("explode", "explode"),
            ("exit=256", "exit=256"),
            ("done after=soon", "soon"),
            ("done later=1s", "later=1s"),
            ("done times=x", "times=x"),
        ] {
            let error = read(script).expect_err(script);
            assert!(error.contains(named), "{error}");
        }
    }
}
