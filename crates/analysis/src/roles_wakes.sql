-- How often one process woke another.
SELECT waker_pid, pid, count(*) AS wakes
FROM off_cpu
WHERE waker_pid <> pid AND NOT open
GROUP BY waker_pid, pid
