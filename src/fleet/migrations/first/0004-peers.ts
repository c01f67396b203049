// Schema 4: addresses and certificates of hosts for each other. Pure.

import type { FleetMigration } from '../migration.ts'

export const peers: FleetMigration = {
  to: 4,
  release: 1,
  name: 'peers',
  sql: `
-- As each host published it; nobody copies it. A host that is removed or forgotten has no row.
CREATE TABLE peers (
  host_id     text PRIMARY KEY REFERENCES hosts ON DELETE CASCADE,
  -- host:port; null: it calls others and answers none.
  address     text CHECK (length(address) <= 300),
  -- PEM, signed by its own key. Others accept no other on the way there, and its calls are signed by the same key.
  certificate text NOT NULL CHECK (length(certificate) <= 8192)
);

-- False: there is no such host, or it signs in as another role.
CREATE FUNCTION publish_peer(host text, peer_address text, peer_certificate text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = strongroom, pg_temp AS $$
BEGIN
  -- Held until the end of the transaction, so that it is not removed meanwhile.
  PERFORM FROM hosts h WHERE h.id = host AND h.database_role = session_user FOR KEY SHARE;
  IF NOT FOUND THEN RETURN false; END IF;
  INSERT INTO peers (host_id, address, certificate) VALUES (host, peer_address, peer_certificate)
    ON CONFLICT (host_id) DO UPDATE SET address = excluded.address, certificate = excluded.certificate;
  RETURN true;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA strongroom FROM PUBLIC;
`,
}
