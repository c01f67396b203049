// Configuration of snapshots of instances. Pure.

import { Count, OneOf, Section } from './fields.ts'

export const SnapshotsConfig = Section({
  /** Share: this limit is the share of one instance. */
  kept_per_instance: Count(
    [3, 0, 100],
    'How many snapshots of one instance are kept; a further one that a command took replaces the oldest; a schedule first replaces those that no command took, never the newest that one took. They are encrypted inside the VM to its owner, and end with the record of the instance. 0 switches snapshots off.',
  ),
  /** Share: this limit is the share of one organization. */
  gib_per_organization: Count(
    [50, 1, 1_000_000],
    'How many GiB of snapshots one organization may have on this host. A snapshot beyond it fails, unless it replaces older ones of its instance.',
  ),
  /** Share: `gib_per_organization` for an organization. */
  gib_max: Count([500, 1, 1_000_000], 'How many GiB the snapshots of all organizations may have on this host.'),
  gib_free_min: Count(
    [10, 0, 1_000_000],
    'A snapshot fails if it would leave fewer GiB free on the disk of the state directory.',
  ),
  at_idle_end: OneOf(['on', 'off'], {
    default: 'on',
    description:
      'Whether a snapshot is taken before an instance ends because its idle time is over (`instances.idle_minutes`). If it fails, for example because age encrypts to none of the keys, the instance ends all the same; while there is no room for it, the end waits for up to a day.',
  }),
  port: Count(
    [8446, 1, 65_535],
    'TCP port of `network.gateway_v4`, or of `network.gateway_v6` without a `pool_v4`, where VMs hand over snapshots and fetch them again. It is open to them alone, while a transfer is under way, and does not count as egress. If the file does not name it and another field has this port, the next free one is taken.',
  ),
})
