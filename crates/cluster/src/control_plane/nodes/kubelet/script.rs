//! Pod scripts: an annotation that says how the simulated containers of a pod behave.
//!
//! [`POD_SCRIPT_ANNOTATION`] holds lines, separated by `;` or newlines. Each line is an action with options:
//!
//! | action | effect |
//! |---|---|
//! | `done` | the container exits with code 0 |
//! | `exit=N` | the container exits with code N |
//! | `crash-loop` | the same as `exit=1`: the container crashes after every start |
//! | `never-ready` | the container runs but never becomes ready |
//! | `ready` | the container becomes ready with a delay: see `after` |
//! | `pull-fails` | its image cannot be pulled |
//! | `ignores-term` | the container ignores SIGTERM and is killed after its grace period |
//!
//! Options: `after=2s` (`ms`, `s`, `m`, `h`; from the start of the container; default: immediately), `times=3` (only the
//! first three times; default: always), `container=name` (only this container, which may be an init container; default:
//! all containers but init containers).
//!
//! For example `exit=1 after=2s times=2; ready after=5s`.

use std::time::Duration;

/// The pod annotation that holds the script.
pub(crate) const POD_SCRIPT_ANNOTATION: &str = "windlass.dev/pod-script";

/// The scripted behaviour of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ContainerScript {
    pub(super) exit: Option<Exit>,
    /// How many image pulls fail.
    pub(super) failing_pulls: u32,
    pub(super) readiness: Readiness,
    pub(super) ignores_term: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    pub(super) code: i32,
    pub(super) after: Duration,
    /// In how many runs it exits; later runs do not.
    pub(super) times: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Readiness {
    /// After the initial delays of its probes.
    #[default]
    AfterProbes,
    After(Duration),
    Never,
}

impl ContainerScript {
    /// Parses the script for one container. The error names the invalid part.
    pub(super) fn parse(script: &str, container: &str, is_init: bool) -> Result<Self, String> {
        let mut plan = Self::default();
        for line in script
            .split([';', '\n'])
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            let line = Line::parse(line)?;
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
        match line.action {
            "done" => self.exit = exit(0),
            "crash-loop" => self.exit = exit(1),
            "never-ready" => self.readiness = Readiness::Never,
            "ready" => self.readiness = Readiness::After(after),
            "pull-fails" => self.failing_pulls = times,
            "ignores-term" => self.ignores_term = true,
            word => match word.strip_prefix("exit=").map(str::parse::<u8>) {
                Some(Ok(code)) => self.exit = exit(i32::from(code)),
                Some(Err(_)) => {
                    return Err(format!(
                        "invalid `{word}`: an exit code is a number from 0 to 255"
                    ));
                }
                None => {
                    return Err(format!(
                        "unknown action `{word}`: use done, exit=N, crash-loop, never-ready, ready, pull-fails or ignores-term"
                    ));
                }
            },
        }
        Ok(())
    }
}

struct Line<'a> {
    action: &'a str,
    after: Option<Duration>,
    times: Option<u32>,
    container: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let mut line = Line {
            action: words.next().unwrap_or_default(),
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
                        .map_err(|_| format!("invalid `{option}`: times must be a number"))?;
                    line.times = Some(times);
                }
                Some(("container", name)) => line.container = Some(name),
                _ => {
                    return Err(format!(
                        "unknown option `{option}`: use after=2s, times=3 or container=name"
                    ));
                }
            }
        }
        Ok(line)
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let refuse = || format!("invalid duration `{text}`: must be a number and one of ms, s, m, h");
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

    fn read(script: &str) -> Result<ContainerScript, String> {
        ContainerScript::parse(script, "web", false)
    }

    #[test]
    fn script_parses_for_each_container() {
        let plan = ContainerScript::default();
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
                ContainerScript {
                    exit: exit(0, 1000, u32::MAX),
                    ..plan.clone()
                },
            ),
            (
                " exit=3 times=2 ;; never-ready\n",
                ContainerScript {
                    exit: exit(3, 0, 2),
                    readiness: Readiness::Never,
                    ..plan.clone()
                },
            ),
            (
                "crash-loop container=web",
                ContainerScript {
                    exit: exit(1, 0, u32::MAX),
                    ..plan.clone()
                },
            ),
            ("crash-loop container=other", plan.clone()),
            (
                "pull-fails times=1",
                ContainerScript {
                    failing_pulls: 1,
                    ..plan.clone()
                },
            ),
            (
                "ready after=2m;ignores-term",
                ContainerScript {
                    readiness: Readiness::After(Duration::from_mins(2)),
                    ignores_term: true,
                    ..plan.clone()
                },
            ),
        ] {
            assert_eq!(read(script), Ok(expected), "{script}");
        }
        assert_eq!(ContainerScript::parse("crash-loop", "init", true), Ok(plan));
    }

    #[test]
    fn script_error_names_the_invalid_part() {
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
