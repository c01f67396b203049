// Schema 21: a host that holds the directory's counter for too long loses its connection. Pure.
//
// Every change of the fleet waits for the counter. A host's own timeouts end its transactions after eight seconds, but
// a session sets its timeouts itself, so the limit on the others' wait cannot depend on them.

import type { FleetMigration } from './migration.ts'

export const stuckChanges: FleetMigration = {
  to: 21,
  release: 1,
  name: 'stuck-changes',
  sql: `
-- Ends sessions of hosts that have changed the directory's counter in a transaction which began more than ten seconds
-- ago. Returns their number. The owner needs pg_signal_backend and pg_read_all_stats: without them 0.
CREATE FUNCTION end_stuck_changes() RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
DECLARE
  stuck record;
  ended integer := 0;
BEGIN
  IF NOT is_owner() AND NOT EXISTS (SELECT 1 FROM hosts h WHERE h.database_role = session_user) THEN
    PERFORM refuse('end changes as a role of no host', session_user::text);
  END IF;
  -- Sessions that wait for the counter have this lock as well; their transactions began later. A commit that waits for
  -- the synchronous standby is done: ending it would show the change before the standby has it. What the owner may do
  -- is not judged.
  FOR stuck IN SELECT a.pid, h.name, a.xact_start FROM pg_stat_activity a JOIN hosts h ON h.database_role = a.usename
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
      AND a.xact_start < clock_timestamp() - interval '10 seconds' AND a.wait_event IS DISTINCT FROM 'SyncRep'
      AND NOT pg_has_role(a.usename, current_user, 'MEMBER')
      AND EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'relation' AND l.granted
        AND l.relation = 'fleet'::regclass AND l.mode = 'RowExclusiveLock')
  LOOP
    PERFORM pg_terminate_backend(stuck.pid);
    PERFORM note_action('change.ended', stuck.name, NULL, jsonb_build_object('began', stuck.xact_start));
    ended := ended + 1;
  END LOOP;
  RETURN ended;
EXCEPTION WHEN insufficient_privilege THEN
  RETURN 0;
END $$;

REVOKE ALL ON FUNCTION end_stuck_changes() FROM PUBLIC;
`,
}
