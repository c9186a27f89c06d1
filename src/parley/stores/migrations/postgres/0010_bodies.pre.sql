-- Calls through the proxy were noted with their bodies, which may hold the credentials of push notifications.
UPDATE node_events SET private = '{}'::bytea
WHERE name = 'ACTIVITY_LOGGED' AND kind = 'a2a_receive' AND position('"jsonrpc"'::bytea IN private) > 0;
