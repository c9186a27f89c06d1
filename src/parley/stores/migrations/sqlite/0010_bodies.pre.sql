-- Calls through the proxy were noted with their bodies, which may hold the credentials of push notifications.
-- What is replaced is overwritten with zeros, so that nothing of it stays in the file.
PRAGMA secure_delete = ON;
UPDATE node_events SET private = CAST('{}' AS BLOB)
WHERE name = 'ACTIVITY_LOGGED' AND kind = 'a2a_receive' AND instr(private, CAST('"jsonrpc"' AS BLOB)) > 0;
