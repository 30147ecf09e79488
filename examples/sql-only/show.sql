SELECT substr(hour, 12, 5), category, amount FROM revenue ORDER BY 1, 2;
SELECT * FROM large_sales ORDER BY id;
