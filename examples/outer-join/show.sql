SELECT ad, substr(shown, 12, 5), substr(clicked, 12, 5) FROM shown ORDER BY ad;
