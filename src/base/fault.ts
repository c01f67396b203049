// Typed failures. Pure. One table gives status and wire code to HTTP, CLI and OpenAPI (contract section 7).

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

type FaultRow = { readonly wire: WireCode; readonly status?: number }

/**
 * Every kind of failure. remedies.ts has the remedy of each. `status` is given only where it differs from that of the
 * wire code.
 */
export const FAULTS = {
  invalid_request: { wire: 'invalid_request' },
  body_too_large: { wire: 'invalid_request', status: 413 },
  body_timeout: { wire: 'invalid_request', status: 408 },
  method_not_allowed: { wire: 'invalid_request', status: 405 },
  unsupported_media_type: { wire: 'invalid_request', status: 415 },
  upgrade_required: { wire: 'invalid_request', status: 426 },
  context_length_exceeded: { wire: 'invalid_request' },
  unauthenticated: { wire: 'unauthenticated' },
  forbidden: { wire: 'forbidden' },
  not_found: { wire: 'not_found' },
  conflict: { wire: 'conflict' },
  key_config_mismatch: { wire: 'invalid_request', status: 422 },
  rate_limited: { wire: 'invalid_request', status: 429 },
  budget_exceeded: { wire: 'invalid_request', status: 429 },
  upstream_failed: { wire: 'internal_error', status: 502 },
  metering_unavailable: { wire: 'internal_error', status: 503 },
  attestation_unavailable: { wire: 'internal_error', status: 503 },
  internal: { wire: 'internal_error' },
  'config.invalid': { wire: 'invalid_request' },
  /** Unlike config.invalid, systemd restarts the daemon after this: a file may be mounted or renewed in a moment. */
  'config.file': { wire: 'internal_error' },
  'store.newer': { wire: 'internal_error' },
  'store.older': { wire: 'internal_error' },
  'store.busy': { wire: 'internal_error', status: 503 },
  'store.unwritable': { wire: 'internal_error', status: 503 },
  'store.corrupt': { wire: 'internal_error', status: 503 },
  'store.missing': { wire: 'internal_error' },
  'fleet.unavailable': { wire: 'internal_error', status: 503 },
  'fleet.forbidden': { wire: 'forbidden' },
  'fleet.password': { wire: 'internal_error', status: 503 },
  'fleet.newer': { wire: 'internal_error' },
  'fleet.older': { wire: 'internal_error' },
  'fleet.build_newer': { wire: 'internal_error' },
  'host.command_failed': { wire: 'internal_error' },
  'host.command_timeout': { wire: 'internal_error' },
  'host.unsupported': { wire: 'internal_error' },
  'host.disk_full': { wire: 'internal_error' },
  'host.listen_failed': { wire: 'internal_error' },
  'qmp.timeout': { wire: 'internal_error' },
  'qmp.closed': { wire: 'internal_error' },
  'qmp.refused': { wire: 'internal_error' },
  'channel.timeout': { wire: 'internal_error' },
  'channel.closed': { wire: 'internal_error' },
  'channel.refused': { wire: 'internal_error' },
  'ssh.unreachable': { wire: 'internal_error' },
  'ssh.wrong_host_key': { wire: 'internal_error' },
  'launch.mismatch': { wire: 'internal_error' },
  'attest.unavailable': { wire: 'internal_error', status: 503 },
  'image.invalid': { wire: 'internal_error' },
  'api.unreachable': { wire: 'internal_error' },
  'admin.unreachable': { wire: 'internal_error' },
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

/** Returns the HTTP status for a fault code: the row's own, otherwise that of its wire code. */
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
