SELECT substr(since, 12, 5), word, count FROM final_counts ORDER BY 1, 2;
