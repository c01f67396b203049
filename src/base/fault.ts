// Typed failures. Pure. One table gives status, wire code and remedy to HTTP, CLI and OpenAPI (contract section 7).

/** The six error codes of service A, with their HTTP status (contract 7.1). */
export const WIRE_CODES = {
  invalid_request: 400,
  unauthenticated: 401,
  forbidden: 403,
  not_found: 404,
  conflict: 409,
  internal_error: 500,
} as const satisfies Record<string, number>

export type WireCode = keyof typeof WIRE_CODES

type FaultRow = { readonly wire: WireCode; readonly status?: number; readonly remedy: string }

/**
 * Every kind of failure and its remedy. The command line prints `remedy` to the operator or a relying party; clients of
 * the APIs get code and message. `status` is given only where it differs from that of the wire code.
 */
export const FAULTS = {
  invalid_request: { wire: 'invalid_request', remedy: 'correct the named field' },
  body_too_large: { wire: 'invalid_request', status: 413, remedy: 'send a smaller body' },
  body_timeout: { wire: 'invalid_request', status: 408, remedy: 'send the whole body sooner' },
  method_not_allowed: { wire: 'invalid_request', status: 405, remedy: 'use a method that the Allow header names' },
  unsupported_media_type: {
    wire: 'invalid_request',
    status: 415,
    remedy: 'send the body without Content-Encoding, or as gzip or zstd',
  },
  upgrade_required: { wire: 'invalid_request', status: 426, remedy: 'send the request as an HTTP POST' },
  context_length_exceeded: { wire: 'invalid_request', remedy: 'send a shorter prompt, or a smaller max_tokens' },
  unauthenticated: { wire: 'unauthenticated', remedy: 'send a valid key as a Bearer token' },
  forbidden: { wire: 'forbidden', remedy: 'use a key that is allowed to do this' },
  not_found: {
    wire: 'not_found',
    remedy: 'check the name: `strongroom org list`, `strongroom instance list`, `strongroom builds list`',
  },
  conflict: { wire: 'conflict', remedy: 'look at the present state (`strongroom status`), then decide again' },
  key_config_mismatch: {
    wire: 'invalid_request',
    status: 422,
    remedy: 'verify the attestation again, and encrypt to the keys that it names',
  },
  rate_limited: { wire: 'invalid_request', status: 429, remedy: 'wait for the time in Retry-After' },
  budget_exceeded: {
    wire: 'invalid_request',
    status: 429,
    remedy: 'raise the budget (`strongroom gateway key set`, `strongroom org budget`), or wait for the next month',
  },
  upstream_failed: {
    wire: 'internal_error',
    status: 502,
    remedy: 'look at the upstreams: `strongroom metrics` and the log of the daemon',
  },
  metering_unavailable: {
    wire: 'internal_error',
    status: 503,
    remedy: 'retry later; on the host, `strongroom inference show` has the number of usage rows that wait',
  },
  attestation_unavailable: {
    wire: 'internal_error',
    status: 503,
    remedy: 'retry later; do not accept partial evidence',
  },
  internal: {
    wire: 'internal_error',
    remedy:
      'try again; if it fails again, look in the log of the daemon, if the command used one, and report the message as a bug',
  },
  'config.invalid': { wire: 'invalid_request', remedy: 'correct the named field of the configuration file' },
  /** Unlike config.invalid, systemd restarts the daemon after this: a file may be mounted or renewed in a moment. */
  'config.file': {
    wire: 'internal_error',
    remedy:
      'put the named file right, or name another in the configuration; under systemd the daemon then starts by itself',
  },
  'store.newer': {
    wire: 'internal_error',
    remedy:
      'run the newer executable that wrote this database; or go back with `strongroom downgrade`, which loses what was recorded since the upgrade',
  },
  'store.older': {
    wire: 'internal_error',
    remedy: 'open it once with the version before this one, which upgrades it; then start this one again',
  },
  'store.busy': {
    wire: 'internal_error',
    status: 503,
    remedy:
      'end the other program that holds the database (`fuser` on strongroom.db in the state directory names it), then try again',
  },
  'store.unwritable': {
    wire: 'internal_error',
    status: 503,
    remedy: 'make room on the file system of the state directory, or mend it (`strongroom doctor`), then try again',
  },
  'store.corrupt': {
    wire: 'internal_error',
    status: 503,
    remedy:
      'stop the service, move the state directory aside, restore the last backup (strongroom help backup), start the service',
  },
  'store.missing': {
    wire: 'internal_error',
    remedy:
      'restore the state directory from the last backup (strongroom help backup); only if there is none, and every client may lose its pins and keys: move all of it aside, and the next start makes a new appliance',
  },
  'fleet.unavailable': {
    wire: 'internal_error',
    status: 503,
    remedy:
      'look whether this host reaches the database of `fleet.database` and the other hosts (`strongroom doctor`), then try again',
  },
  'fleet.forbidden': {
    wire: 'forbidden',
    remedy: 'name the role that owns the database by `--as` on the command line (strongroom help fleet)',
  },
  'fleet.password': {
    wire: 'internal_error',
    status: 503,
    remedy:
      "on the database server set password_encryption = 'scram-sha-256', give the role its password again (ALTER ROLE … PASSWORD), and name the method scram-sha-256 in pg_hba.conf",
  },
  'fleet.newer': {
    wire: 'internal_error',
    remedy: 'upgrade this host: others have brought the directory of the fleet to a newer schema',
  },
  'fleet.older': {
    wire: 'internal_error',
    remedy: 'bring the directory to the newest schema: `strongroom fleet migrate`, with a role that owns it',
  },
  'host.command_failed': {
    wire: 'internal_error',
    remedy: 'read the output of the command in the message; `strongroom doctor` lists what this host lacks',
  },
  'host.command_timeout': { wire: 'internal_error', remedy: 'look for a wedged kernel or disk' },
  'host.unsupported': { wire: 'internal_error', remedy: 'see `strongroom doctor` for what this host lacks' },
  'host.disk_full': { wire: 'internal_error', remedy: 'make room on the named file system, then try again' },
  'host.listen_failed': {
    wire: 'internal_error',
    remedy: 'find who has the port (ss --listening --numeric --processes), or change the named field',
  },
  'qmp.timeout': {
    wire: 'internal_error',
    remedy: 'the VM may be wedged: delete it with `strongroom instance delete`',
  },
  'qmp.closed': {
    wire: 'internal_error',
    remedy: 'the VM is gone: `strongroom instance logs` has the last words of QEMU',
  },
  'qmp.refused': { wire: 'internal_error', remedy: 'read the QMP error in the message' },
  'channel.timeout': {
    wire: 'internal_error',
    remedy: 'the agent does not respond: see `strongroom instance console`',
  },
  'channel.closed': {
    wire: 'internal_error',
    remedy: 'the agent channel is closed: see `strongroom instance console`',
  },
  'channel.refused': { wire: 'internal_error', remedy: 'read the error of the agent in the message' },
  'ssh.unreachable': { wire: 'internal_error', remedy: 'check routes and firewall between host and VM' },
  'ssh.wrong_host_key': {
    wire: 'internal_error',
    remedy: 'another machine has the address of the VM; check addresses',
  },
  'launch.mismatch': {
    wire: 'internal_error',
    remedy:
      'run `strongroom doctor`, which names the file of the image that differs from its manifest; build or copy the image again',
  },
  'attest.unavailable': {
    wire: 'internal_error',
    status: 503,
    remedy: 'look at the collateral in `strongroom status` and `strongroom doctor`; retry later',
  },
  'image.invalid': {
    wire: 'internal_error',
    remedy: 'build or copy the image again, check `vm.image_dir`, then `strongroom doctor`',
  },
  'api.unreachable': { wire: 'internal_error', remedy: 'check the address and the network; see --api' },
  'admin.unreachable': { wire: 'internal_error', remedy: 'start `strongroom serve`, or check --state-dir' },
} as const satisfies Record<string, FaultRow>

export type FaultCode = keyof typeof FAULTS

export type FaultOptions = {
  /** The request or configuration field at fault, when exactly one is. */
  readonly param?: string
  readonly cause?: unknown
}

/**
 * A failure with a code of FAULTS. End users may see `message`, except when the row's wire code is `internal_error`.
 */
export class Fault extends Error {
  readonly code: FaultCode
  readonly param: string | undefined

  constructor(code: FaultCode, message: string, options: FaultOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.name = 'Fault'
    this.code = code
    this.param = options.param
  }

  /** HTTP status of this failure. */
  get status(): number {
    return statusOf(this.code)
  }
}

/** HTTP status for a fault code: the row's own, else that of its wire code. */
export function statusOf(code: FaultCode): number {
  const row: FaultRow = FAULTS[code]
  return row.status ?? WIRE_CODES[row.wire]
}

/** Adds context to a failure: `open disk x: no space left`. Keeps code and cause. */
export function wrapFault(error: unknown, doing: string, fallback: FaultCode = 'internal'): Fault {
  const code = error instanceof Fault ? error.code : fallback
  return new Fault(code, `${doing}: ${messageOf(error)}`, { cause: error })
}

/** The message of anything thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** The system's name of a failure, such as `ENOENT`; null when it has none. */
export function systemErrorCode(error: unknown): string | null {
  const code: unknown = Reflect.get(Object(error), 'code')
  return typeof code === 'string' ? code : null
}
