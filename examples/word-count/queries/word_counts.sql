SELECT word, count(*) AS count
FROM (SELECT explode(split(value, ' ')) AS word FROM lines)
GROUP BY word
