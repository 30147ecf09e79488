SELECT window.start AS hour, word, sum(count) AS count, max(count) AS most
FROM (SELECT window_time(window) AS time, word, count FROM small)
GROUP BY window(time, '1 hour'), word
