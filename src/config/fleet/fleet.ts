// Hosts that share one directory: the table `fleet` of the configuration. Pure.

import { Type } from '@sinclair/typebox'
import { AddressPortOrOff, Count, PathOrNone, Section } from '../fields.ts'

export const FleetConfig = Section({
  database: Type.String({
    default: '',
    pattern: '^$|^postgres(ql)?://[^\\s]+$',
    maxLength: 1024,
    allowed: '"" or postgres://USER@HOST[:PORT]/DATABASE; without PORT 5432',
    description:
      'PostgreSQL database in which the hosts of a fleet keep their directory: organizations, keys, instances. This host signs in as a role of its own. Make the directory with `strongroom fleet init` first, or enter it with `strongroom fleet join`. "" for a host by itself.',
  }),
  password_file: PathOrNone('File with the password of that role, alone in it. "" for none.'),
  ca_file: PathOrNone(
    'File with the PEM certificates of the authority that signed the certificate of the database. No other is trusted, and the certificate must contain the name in `database`. "" only where the database is on this machine.',
  ),
  name: Type.String({
    default: '',
    pattern: '^$|^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$',
    allowed: '"" or 1 to 63 lowercase letters, digits and hyphens, no hyphen first or last',
    description: 'Name of this host in the fleet. "" for the first label of its host name.',
  }),
  peer_listen: AddressPortOrOff(
    '',
    'Address at which this host answers the other hosts of its fleet, such as "192.0.2.1:7443": they forward requests of clients for what only this host has. Hosts authenticate each other by certificates in the directory; other callers get no answer.',
  ),
  peer_address: Type.String({
    default: '',
    pattern: '^$|^(\\[[0-9a-fA-F:.]+\\]|[a-zA-Z0-9.-]{1,253}):[0-9]{1,5}$',
    allowed: '"" or host:port',
    description:
      'Host and port by which the other hosts reach `peer_listen`. "" for that address itself, which must then be one of this host, not 0.0.0.0 or [::].',
  }),
  host_lost_after_s: Count(
    [60, 10, 86_400],
    'A host of the fleet that has been silent for so long is given up: its instances fail with `host_lost`. Only time in which the database served other hosts counts. The same on every host.',
  ),
})
