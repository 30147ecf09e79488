SELECT * FROM VALUES
  ('b', 'Boots', 'shoes', 49),
  ('s', 'Sandals', 'shoes', 20),
  ('h', 'Hat', 'clothes', 12)
AS products(product, name, category, price)
