SELECT action, count(*) AS n, sum(amount) AS total FROM events GROUP BY action
