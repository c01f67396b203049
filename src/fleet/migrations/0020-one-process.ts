// Schema 20: one process renews the lease of a host. Pure.
//
// A copy of a host's disk that starts elsewhere has its id, its role and its keys. Both would report as the same host
// and take the same instances. Hosts of earlier schemas renew without an id of the process, and are not compared.

import type { FleetMigration } from './migration.ts'

export const oneProcess: FleetMigration = {
  to: 20,
  release: 1,
  name: 'one-process',
  sql: `
-- The holder of the host's state directory that renewed last, and the address from which it did. The next process that
-- holds the same directory on the same boot has the same id, so that it renews at once.
ALTER TABLE leases ADD COLUMN process text;
ALTER TABLE leases ADD COLUMN process_address text;

-- Renews as the function without a process, unless another one of this host renewed within the time of a lease: rival
-- is its address then, rival_renewed the time at which it renewed, and own_address this one's. reported is the number of the host's newest
-- report if the holder of the same state directory had the lease before.
CREATE FUNCTION renew_lease(host text, lost_after_ms bigint, platform text, places integer, report jsonb, process text,
  OUT is_member boolean, OUT is_draining boolean, OUT was_lost boolean, OUT epoch bigint, OUT lease_ms bigint, OUT silent text[],
  OUT rival text, OUT rival_renewed text, OUT own_address text, OUT reported bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  own_address := coalesce(host(inet_client_addr()), 'the machine of the database');
  IF is_own(renew_lease.host) THEN
    PERFORM FROM leases l WHERE l.host_id = renew_lease.host FOR UPDATE;
    IF EXISTS (SELECT 1 FROM leases l WHERE l.host_id = renew_lease.host AND l.process <> renew_lease.process) THEN
      -- Otherwise the clock stands still if no other host renews, and the lease of a lost process never runs out.
      PERFORM tick(clock_timestamp());
      -- Also after a failover, which voids every lease: the process that had it comes first.
      SELECT l.process_address, l.renewed_at::text INTO rival, rival_renewed
        FROM leases l JOIN host_states s ON s.id = l.host_id CROSS JOIN clock c
        WHERE l.host_id = renew_lease.host AND s.silent_ms < c.lease_ms;
      IF FOUND THEN
        is_member := true;
        RETURN;
      END IF;
    END IF;
  END IF;
  SELECT r.is_member, r.is_draining, r.was_lost, r.epoch, r.lease_ms, r.silent
    INTO is_member, is_draining, was_lost, epoch, lease_ms, silent
    FROM renew_lease(renew_lease.host, renew_lease.lost_after_ms, renew_lease.platform, renew_lease.places,
      renew_lease.report) r;
  IF is_member THEN
    SELECT o.batch INTO reported FROM leases l JOIN outboxes o USING (host_id)
      WHERE l.host_id = renew_lease.host AND l.process = renew_lease.process;
    UPDATE leases l SET process = renew_lease.process, process_address = own_address WHERE l.host_id = renew_lease.host;
  END IF;
END $$;

REVOKE ALL ON FUNCTION renew_lease(text, bigint, text, integer, jsonb, text) FROM PUBLIC;
`,
}
