SELECT id, time, action, amount FROM events
