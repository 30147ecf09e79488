-- How many actions of each kind happened in each hour.
SELECT action, window.start AS hour, count(*) AS count
FROM events
GROUP BY action, window(time, '1 hour')
