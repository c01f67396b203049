// The operator's control key: signs what the host may change while a gateway VM runs. Effects: one file, created at
// the first start.
//
// The public half is in workload.json, which binds every gateway VM of this appliance to it.

import { toBase64Url } from '../base/bytes.ts'
import { openEd25519Key } from '../host/ed25519-key.ts'

export type ControlKey = {
  /** Ed25519, base64url. */
  readonly publicKey: string
  readonly sign: (message: Uint8Array) => Uint8Array
}

/** In the state directory, for root alone. */
export function controlKeyFile(stateDir: string): string {
  return `${stateDir}/control.key`
}

/**
 * Opens or creates the key. Throws Fault internal if the file cannot be read or written, or holds another kind of key.
 */
export function openControlKey(path: string): ControlKey {
  const remedy = 'remove it to create a new one, which also replaces the gateway VM'
  const { publicKey, sign } = openEd25519Key(path, { what: 'control key', remedy })
  return { publicKey: toBase64Url(publicKey), sign }
}
