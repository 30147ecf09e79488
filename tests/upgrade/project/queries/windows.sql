SELECT action, window.start AS hour, count(*) AS n FROM events GROUP BY action, window(time, '1 hour')
