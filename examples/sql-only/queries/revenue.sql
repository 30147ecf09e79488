SELECT window.start AS hour, category, sum(amount) AS amount
FROM priced
GROUP BY window(time, '1 hour'), category
