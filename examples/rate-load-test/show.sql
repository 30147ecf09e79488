SELECT substr(minute, 12, 5), count(*), min(rows), max(rows) FROM load GROUP BY 1 ORDER BY 1;
