SELECT action, window.start AS hour, count(*) AS count
FROM (SELECT action, window(time, '1 hour') AS window FROM events)
GROUP BY action, window
