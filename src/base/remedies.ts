// The remedy of each failure. Pure.
//
// The command line prints it to the operator or a relying party. Clients of the APIs get code and message alone, so no
// program of an image contains these texts.

import type { FaultCode } from './fault.ts'

export const REMEDIES = {
  invalid_request: 'correct the named field',
  body_too_large: 'send a smaller body',
  body_timeout: 'send the whole body sooner',
  method_not_allowed: 'use a method that the Allow header names',
  unsupported_media_type: 'send the body without Content-Encoding, or as gzip or zstd',
  upgrade_required: 'send the request as an HTTP POST',
  context_length_exceeded: 'send a shorter prompt, or a smaller max_tokens',
  unauthenticated: 'send a valid key as a Bearer token',
  forbidden: 'use a key that is allowed to do this',
  not_found: 'check the name: `strongroom org list`, `strongroom instance list`, `strongroom builds list`',
  conflict: 'look at the present state (`strongroom status`), then decide again',
  key_config_mismatch: 'verify the attestation again, and encrypt to the keys that it names',
  rate_limited: 'wait for the time in Retry-After',
  budget_exceeded:
    'raise the budget (`strongroom gateway key set`, `strongroom org budget`), or wait for the next month',
  upstream_failed: 'look at the upstreams: `strongroom metrics` and the log of the daemon',
  metering_unavailable: 'retry later; on the host, `strongroom inference show` has the number of usage rows that wait',
  attestation_unavailable: 'retry later; do not accept partial evidence',
  internal:
    'try again; if it fails again, look in the log of the daemon, if the command used one, and report the message as a bug',
  'config.invalid': 'correct the named field of the configuration file',
  'config.file':
    'put the named file right, or name another in the configuration; under systemd the daemon then starts by itself',
  'store.newer':
    'run the newer executable that wrote this database; or go back with `strongroom downgrade`, which loses what was recorded since the upgrade',
  'store.older': 'open it once with the version before this one, which upgrades it; then start this one again',
  'store.busy':
    'end the other program that holds the database (`fuser` on strongroom.db in the state directory names it), then try again',
  'store.unwritable':
    'make room on the file system of the state directory, or mend it (`strongroom doctor`), then try again',
  'store.corrupt':
    'stop the service, move the state directory aside, restore the last backup (strongroom help backup), start the service',
  'store.missing':
    'restore the state directory from the last backup (strongroom help backup); only if there is none, and every client may lose its pins and keys: move all of it aside, and the next start makes a new appliance',
  'fleet.unavailable':
    'look whether this host reaches the database of `fleet.database` and the other hosts (`strongroom doctor`), then try again',
  'fleet.forbidden': 'name the role that owns the database by `--as` on the command line (strongroom help fleet)',
  'fleet.password':
    "on the database server set password_encryption = 'scram-sha-256', give the role its password again (ALTER ROLE … PASSWORD), and name the method scram-sha-256 in pg_hba.conf",
  'fleet.build_newer': 'upgrade this host: a build of the fleet has fields that this release does not know',
  'fleet.newer': 'upgrade this host: others have brought the directory of the fleet to a newer schema',
  'fleet.older': 'bring the directory to the newest schema: `strongroom fleet migrate`, with a role that owns it',
  'host.command_failed':
    'read the output of the command in the message; `strongroom doctor` lists what this host lacks',
  'host.command_timeout': 'look for a wedged kernel or disk',
  'host.unsupported': 'see `strongroom doctor` for what this host lacks',
  'host.disk_full': 'make room on the named file system, then try again',
  'host.listen_failed': 'find who has the port (ss --listening --numeric --processes), or change the named field',
  'qmp.timeout': 'the VM may be wedged: delete it with `strongroom instance delete`',
  'qmp.closed': 'the VM is gone: `strongroom instance logs` has the last words of QEMU',
  'qmp.refused': 'read the QMP error in the message',
  'channel.timeout': 'the agent does not respond: see `strongroom instance console`',
  'channel.closed': 'the agent channel is closed: see `strongroom instance console`',
  'channel.refused': 'read the error of the agent in the message',
  'ssh.unreachable': 'check routes and firewall between host and VM',
  'ssh.wrong_host_key': 'another machine has the address of the VM; check addresses',
  'launch.mismatch':
    'run `strongroom doctor`, which names the file of the image that differs from its manifest; build or copy the image again',
  'attest.unavailable': 'look at the collateral in `strongroom status` and `strongroom doctor`; retry later',
  'image.invalid': 'build or copy the image again, check `vm.image_dir`, then `strongroom doctor`',
  'api.unreachable': 'check the address and the network; see --api',
  'admin.unreachable': 'start `strongroom serve`, or check --state-dir',
} as const satisfies Record<FaultCode, string>
