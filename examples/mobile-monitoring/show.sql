SELECT action, to_char(hour AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), count FROM action_counts ORDER BY 1, 2;
