SELECT ad, substr(shown, 12, 5), substr(clicked, 12, 5) FROM clicked ORDER BY 1, 3;
