-- One row is one interval off the CPU of one target thread: blocked, then waking, then queued.
-- Its length is blocked_ns + wake_ns + runq_ns. A long interval can be stored in pieces:
-- every piece but the last is open, every piece but the first is continued.
CREATE TABLE off_cpu (
    ts_ns        BIGINT   NOT NULL, -- start: switched out (or previous piece ended), ns since the trace's start
    pid          INTEGER  NOT NULL, -- process (tgid)
    tid          INTEGER  NOT NULL, -- thread
    cpu          SMALLINT NOT NULL, -- CPU it was switched in on; the one it left for open pieces; -1 unknown
    ran_ns       BIGINT   NOT NULL, -- time on the CPU just before the interval; 0 if clipped or continued
    blocked_ns   BIGINT   NOT NULL, -- from switch-out to sched_waking; 0 if preempted
    wake_ns      BIGINT   NOT NULL, -- from sched_waking to sched_wakeup: wake-up latency, nobody competes
    runq_ns      BIGINT   NOT NULL, -- from sched_wakeup (or preemption) to switch-in: waiting for a CPU
    idle_before  BOOLEAN  NOT NULL, -- the CPU came from idle, so runq_ns is latency and not competition
    state        VARCHAR  NOT NULL, -- at switch-out: preempted, sleeping, disk, stopped, parked, dead, idle, unknown
    waker_tid    INTEGER,           -- thread that woke it; NULL if preempted or unknown
    waker_pid    INTEGER,           -- process of that thread
    waker_context VARCHAR,          -- where the wake-up came from: task, softirq, hardirq, idle; NULL if unknown
    taker_tid    INTEGER,           -- thread that took the CPU at switch-out; 0 is idle; NULL if unknown
    clipped      BOOLEAN  NOT NULL, -- the interval began before recording did
    open         BOOLEAN  NOT NULL, -- the interval went on after this piece
    continued    BOOLEAN  NOT NULL  -- the interval began in an earlier piece
);
