SELECT substr(hour, 12, 5), word, count, most FROM hours ORDER BY 1, 2;
