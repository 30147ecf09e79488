SELECT guid, substr(time, 12, 5) FROM events_once ORDER BY guid;
