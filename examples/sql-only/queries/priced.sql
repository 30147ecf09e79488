SELECT id, time, name, category, quantity * price AS amount
FROM sales JOIN products USING (product)
