SELECT window, word, count(*) AS count
FROM words
GROUP BY window(time, '5 minutes'), word
