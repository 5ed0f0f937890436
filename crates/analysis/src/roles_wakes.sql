-- How often one process woke another. In an interrupt, the waker is whoever was interrupted; a new
-- thread is first woken by whoever started it.
SELECT waker_pid, pid, count(*) AS wakes
FROM off_cpu
WHERE waker_pid <> pid AND waker_context = 'task' AND state <> 'unknown' AND NOT open
GROUP BY waker_pid, pid
