SELECT substr(since, 12, 5), word, count FROM counts ORDER BY 1, 2;
