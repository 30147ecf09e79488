SELECT window.start AS since, word, count(*) AS count
FROM words
GROUP BY window(time, '10 minutes', '5 minutes'), word
