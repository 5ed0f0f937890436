-- Events lost in the seconds that the window touches.
SELECT class, sum(count)::BIGINT
FROM lost_events
WHERE ts_ns < $end_ns AND ts_ns + 1000000000 > $start_ns
GROUP BY class
ORDER BY class
