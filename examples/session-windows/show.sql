SELECT user, substr(since, 12, 8), substr(until, 12, 8), count FROM sessions ORDER BY 1, 2;
