-- One row is one event in the life of a process or thread of the target tree.
CREATE TABLE process_events (
    ts_ns        BIGINT  NOT NULL, -- when it happened, ns since the trace's start
    kind         VARCHAR NOT NULL, -- existing (was there when recording began), fork, thread, exec, rename, exit, thread_exit
    pid          INTEGER NOT NULL, -- process (tgid) the row is about
    tid          INTEGER NOT NULL, -- thread the row is about; equals pid for the main thread
    parent_pid   INTEGER,          -- parent process; for a thread, the process itself
    name         VARCHAR NOT NULL, -- name (comm) after the event
    command_line VARCHAR,          -- command line for existing and exec, secrets masked; NULL if unreadable
    exit_status  INTEGER,          -- for exit: the exit code, or 128 + signal
    cgroup       VARCHAR           -- cgroup path for existing and exec; NULL if unreadable
);
