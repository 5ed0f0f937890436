//! Reading a drawing.

use std::collections::BTreeMap;

pub(super) type Mistake = String;

#[derive(Debug, Clone)]
pub(super) enum Step {
    Run(i64),
    Wait {
        state: &'static str,
        blocked_ns: i64,
        runq_ns: i64,
        waker: Waker,
        /// Who took the CPU.
        taker: Option<i32>,
    },
    Call {
        name: String,
        bytes: Option<i64>,
        inside: Vec<Step>,
    },
    Repeat(Vec<Step>, u32),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Waker {
    Unknown,
    Thread(i32),
    /// An interrupt, while this thread ran.
    Interrupt(i32),
}

/// The counters of a process by name, each with its value at the start and at the end.
pub(super) type Ranges = BTreeMap<String, (i64, i64)>;

#[derive(Debug, Default)]
pub(super) struct Drawing {
    pub(super) online: Option<i32>,
    pub(super) usable: Option<i32>,
    pub(super) quota: Option<f64>,
    pub(super) probe_pair_ns: Option<i64>,
    pub(super) neighbours: Vec<Neighbour>,
    pub(super) throttled: Option<Throttled>,
    pub(super) processes: BTreeMap<i32, Process>,
    pub(super) threads: Vec<(i32, i32, i64, Vec<Step>)>,
    pub(super) samples: Vec<(i32, Ranges)>,
    pub(super) pages: Vec<Pages>,
}

/// Page allocations in every bucket of 10 ms from `from_ns` to `to_ns`.
#[derive(Debug)]
pub(super) struct Pages {
    pub(super) pid: i32,
    pub(super) from_ns: i64,
    pub(super) to_ns: i64,
    pub(super) count: i64,
    pub(super) order: i16,
}

/// Width of the buckets of page allocations.
pub(super) const PAGE_BUCKET_NS: i64 = 10_000_000;

#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) parent: i32,
    pub(super) from_ns: i64,
    pub(super) exit: Option<i32>,
}

/// A process outside the job that uses so many CPUs all the time.
#[derive(Debug)]
pub(super) struct Neighbour {
    pub(super) pid: i32,
    pub(super) name: String,
    pub(super) cpus: f64,
}

/// What the counters of the target's cgroup grow by, evenly.
#[derive(Debug, Default)]
pub(super) struct Throttled {
    pub(super) periods: i64,
    pub(super) throttled: i64,
    pub(super) throttled_ms: i64,
}

fn millis(text: &str) -> Result<i64, Mistake> {
    let ms: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is no number of milliseconds"))?;
    Ok((ms * 1e6).round() as i64)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Mistake> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

impl Drawing {
    pub(super) fn line(&mut self, line: &str) -> Result<(), Mistake> {
        let (word, rest) = line.split_once(' ').ok_or("too short")?;
        match word {
            "host" => self.host(rest),
            "process" => self.process(rest),
            "thread" => self.thread(rest),
            "samples" => self.sampled(rest),
            "neighbour" => self.neighbour(rest),
            "throttled" => self.throttled(rest),
            "pages" => self.allocated(rest),
            other => Err(format!("unknown word {other:?}")),
        }
    }

    fn host(&mut self, rest: &str) -> Result<(), Mistake> {
        for fact in rest.split_whitespace() {
            match fact.split_once('=').ok_or("a fact is name=value")? {
                ("online", value) => self.online = Some(number(value)?),
                ("usable", value) => self.usable = Some(number(value)?),
                ("quota", value) => self.quota = Some(number(value)?),
                ("probe_pair_ns", value) => self.probe_pair_ns = Some(number(value)?),
                (other, _) => return Err(format!("unknown fact {other:?}")),
            }
        }
        Ok(())
    }

    fn neighbour(&mut self, rest: &str) -> Result<(), Mistake> {
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [pid, name, cpus] = words[..] else {
            return Err("a neighbour is PID NAME cpus=NUMBER".to_owned());
        };
        self.neighbours.push(Neighbour {
            pid: number(pid)?,
            name: name.to_owned(),
            cpus: number(cpus.strip_prefix("cpus=").ok_or("no cpus=")?)?,
        });
        Ok(())
    }

    fn throttled(&mut self, rest: &str) -> Result<(), Mistake> {
        let mut counters = Throttled::default();
        for fact in rest.split_whitespace() {
            match fact.split_once('=').ok_or("a counter is name=value")? {
                ("periods", value) => counters.periods = number(value)?,
                ("throttled", value) => counters.throttled = number(value)?,
                ("ms", value) => counters.throttled_ms = number(value)?,
                (other, _) => return Err(format!("unknown counter {other:?}")),
            }
        }
        self.throttled = Some(counters);
        Ok(())
    }

    fn process(&mut self, rest: &str) -> Result<(), Mistake> {
        let mut words = rest.split_whitespace();
        let pid = number(words.next().ok_or("no pid")?)?;
        let mut process = Process {
            name: words.next().ok_or("no name")?.to_owned(),
            parent: 1,
            from_ns: 0,
            exit: None,
        };
        for fact in words {
            match fact.split_once('=').ok_or("a fact is name=value")? {
                ("parent", value) => process.parent = number(value)?,
                ("from", value) => process.from_ns = millis(value)?,
                ("exit", value) => process.exit = Some(number(value)?),
                (other, _) => return Err(format!("unknown fact {other:?}")),
            }
        }
        self.processes.insert(pid, process);
        Ok(())
    }

    fn thread(&mut self, rest: &str) -> Result<(), Mistake> {
        let (ids, sequence) = rest.split_once(':').ok_or("no ':'")?;
        let mut ids = ids.split_whitespace();
        let pid = number(ids.next().ok_or("no pid")?)?;
        let tid = number(ids.next().ok_or("no tid")?)?;
        let mut sequence = sequence.trim();
        let mut from_ns = self.processes.get(&pid).ok_or("no such process")?.from_ns;
        if let Some(after) = sequence.strip_prefix('@') {
            let (at, after) = after.split_once(' ').ok_or("nothing after '@'")?;
            from_ns = millis(at)?;
            sequence = after;
        }
        let (steps, left) = parse_steps(sequence)?;
        if !left.is_empty() {
            return Err(format!("cannot read {left:?}"));
        }
        self.threads.push((pid, tid, from_ns, steps));
        Ok(())
    }

    fn sampled(&mut self, rest: &str) -> Result<(), Mistake> {
        let mut words = rest.split_whitespace();
        let pid = number(words.next().ok_or("no pid")?)?;
        let mut ranges = BTreeMap::new();
        for fact in words {
            let (name, range) = fact.split_once('=').ok_or("a range is name=a..b")?;
            let (from, to) = range.split_once("..").ok_or("a range is name=a..b")?;
            ranges.insert(name.to_owned(), (number(from)?, number(to)?));
        }
        self.samples.push((pid, ranges));
        Ok(())
    }

    fn allocated(&mut self, rest: &str) -> Result<(), Mistake> {
        let (pid, sequence) = rest.split_once(':').ok_or("no ':'")?;
        let pid = number(pid.trim())?;
        let mut words = sequence.split_whitespace();
        while let Some(time) = words.next() {
            let time = time.strip_prefix('@').ok_or("a time is @MS")?;
            let (from_ns, to_ns) = match time.split_once("..") {
                Some((from, to)) => (millis(from)?, millis(to)?),
                None => (millis(time)?, millis(time)? + PAGE_BUCKET_NS),
            };
            let amount = words.next().ok_or("nothing after '@'")?;
            let (count, pages) = amount.split_once('*').ok_or("an amount is COUNT*PAGES")?;
            let pages: u32 = number(pages)?;
            if !pages.is_power_of_two() || from_ns % PAGE_BUCKET_NS != 0 {
                return Err(format!(
                    "{time} {amount} is in no bucket, or no power of two"
                ));
            }
            self.pages.push(Pages {
                pid,
                from_ns,
                to_ns,
                count: number(count)?,
                order: pages.trailing_zeros() as i16,
            });
        }
        Ok(())
    }
}

fn parse_steps(mut text: &str) -> Result<(Vec<Step>, &str), Mistake> {
    let mut steps = Vec::new();
    loop {
        text = text.trim_start();
        if text.is_empty() || text.starts_with(')') {
            return Ok((steps, text));
        }
        let (step, rest) = parse_step(text)?;
        steps.push(step);
        text = rest;
    }
}

fn parse_step(text: &str) -> Result<(Step, &str), Mistake> {
    if let Some(inside) = text.strip_prefix('(') {
        let (steps, rest) = parse_steps(inside)?;
        let rest = rest.strip_prefix(")*").ok_or("a group ends in )*COUNT")?;
        let (count, rest) = split_word(rest);
        return Ok((Step::Repeat(steps, number(count)?), rest));
    }
    let end = text
        .find(|c: char| c == '(' || c == ')' || c.is_whitespace())
        .unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    if let Some(inside) = rest.strip_prefix('(') {
        return parse_call(word, inside);
    }
    let kind = word.get(..1).unwrap_or_default();
    let amount = &word[kind.len()..];
    let step = match kind {
        "R" => Step::Run(millis(amount)?),
        "Q" => {
            let (amount, taker) = match amount.split_once('<') {
                Some((amount, tid)) => (amount, Some(number(tid)?)),
                None => (amount, None),
            };
            Step::Wait {
                state: "preempted",
                blocked_ns: 0,
                runq_ns: millis(amount)?,
                waker: Waker::Unknown,
                taker,
            }
        }
        "S" | "D" => {
            let (amount, runq_ns) = match amount.split_once('+') {
                Some((amount, runq)) => (amount, millis(runq)?),
                None => (amount, 0),
            };
            let (amount, waker) = match amount.split_once('<') {
                Some((amount, "timer")) => (amount, Waker::Interrupt(0)),
                Some((amount, waker)) if waker.ends_with("/timer") => {
                    let tid = waker.trim_end_matches("/timer");
                    (amount, Waker::Interrupt(number(tid)?))
                }
                Some((amount, tid)) => (amount, Waker::Thread(number(tid)?)),
                None => (amount, Waker::Unknown),
            };
            Step::Wait {
                state: if kind == "S" { "sleeping" } else { "disk" },
                blocked_ns: millis(amount)?,
                runq_ns,
                waker,
                taker: None,
            }
        }
        _ => return Err(format!("cannot read {word:?}")),
    };
    Ok((step, rest))
}

fn parse_call<'a>(name: &str, inside: &'a str) -> Result<(Step, &'a str), Mistake> {
    let end = inside.find([',', ')']).ok_or("a call ends in )")?;
    let plain = inside[..end].trim().parse::<f64>().is_ok();
    let (steps, mut rest) = if plain {
        let run = millis(inside[..end].trim())?;
        (vec![Step::Run(run)], &inside[end..])
    } else {
        parse_steps(inside)?
    };
    let mut bytes = None;
    if let Some(after) = rest.strip_prefix(',') {
        let end = after.find(')').ok_or("a call ends in )")?;
        bytes = Some(number(after[..end].trim())?);
        rest = &after[end..];
    }
    let rest = rest.strip_prefix(')').ok_or("a call ends in )")?;
    let call = Step::Call {
        name: name.to_owned(),
        bytes,
        inside: steps,
    };
    Ok((call, rest))
}

fn split_word(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| c == ')' || c.is_whitespace())
        .unwrap_or(text.len());
    text.split_at(end)
}
