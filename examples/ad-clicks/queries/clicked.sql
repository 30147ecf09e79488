SELECT impressionAdId AS ad, impressionTime AS shown, clickTime AS clicked
FROM impressions
JOIN clicks
  ON clickAdId = impressionAdId
  AND clickTime BETWEEN impressionTime AND impressionTime + INTERVAL 1 HOUR
