// The suite's input, as JSON: the files of test/vectors by path, and evidence that was simulated once for all runtimes.
// Pure.

import { present } from '../../../src/base/assert.ts'
import { fromBase64, fromUtf8 } from '../../../src/base/bytes.ts'

export type SuiteInput = {
  /** By path below test/vectors; base64. */
  readonly files: Readonly<Record<string, string>>
  readonly simulated: {
    /** By product. Signatures are salted, so the same keys never make the same bytes twice. */
    readonly authorities: Readonly<Record<string, SimulatedVectors>>
    /** JSON text, by kind. */
    readonly receipts: Readonly<Record<string, string>>
  }
  readonly gateway: GatewayVectors
  readonly instance: InstanceVectors
  readonly encrypted: EncryptedVectors
}

/** A gateway's keys, and what it responded with to the suite's encrypted request, by EHBP suite. base64. */
export type EncryptedVectors = {
  readonly keys: { readonly x25519: string; readonly mlkem768: string }
  readonly responses: Readonly<
    Record<
      'x25519' | 'xwing',
      {
        /** Names in lowercase. */
        readonly headers: Readonly<Record<string, string>>
        readonly body: string
        readonly firstFrameBytes: number
      }
    >
  >
}

/** One attestation document of a simulated instance, with what its owner expects of it. */
export type InstanceVectors = {
  /** JSON, as service A has it in `data`. */
  readonly document: string
  /** PEM of ARK, ASK and ASVK. */
  readonly root: string
  /** JSON; it names measurement and operator key. */
  readonly policy: string
  /** The same of the gateway that gets its prompts. */
  readonly gatewayPolicy: string
  /** manifest.json of the image. */
  readonly manifest: string
  readonly hostname: string
  /** base64. */
  readonly nonce: string
  /** As OpenSSH writes it. */
  readonly publicKey: string
  /** A time at which the document is fresh, in milliseconds since 1970. */
  readonly asOf: number
}

/**
 * One attestation document of a simulated gateway, with what a relying party expects of it, and one response with its
 * receipt.
 */
export type GatewayVectors = {
  /** JSON, as GET /attestation gives it. */
  readonly document: string
  /** PEM of ARK, ASK and ASVK. */
  readonly root: string
  /** The exact text of the file. */
  readonly allowlist: string
  /** base64, as the four below. */
  readonly nonce: string
  readonly tlsSpkiDigest: string
  readonly configurationDigest: string
  readonly measurement: string
  readonly operatorKey: string
  /** A time at which the document is fresh, in milliseconds since 1970. */
  readonly asOf: number
  readonly exchange: {
    readonly request: string
    readonly response: string
    /** From the built-in worker. */
    readonly receipt: string
    /** From an upstream that the attestation does not cover. */
    readonly outside: string
  }
}

/** base64 in every leaf. */
export type SimulatedVectors = {
  readonly ark: string
  readonly ask: string
  readonly asvk: string
  readonly vcek: string
  readonly vlek: string
  readonly vcekReport: string
  readonly vlekReport: string
  readonly crls: Readonly<Record<SimulatedCrl, string>>
}

export const simulatedCrls = ['good', 'revokesAsk', 'revokesAsvk', 'old'] as const
export type SimulatedCrl = (typeof simulatedCrls)[number]

export class Vectors {
  readonly simulated: SuiteInput['simulated']
  readonly gateway: GatewayVectors
  readonly instance: InstanceVectors
  readonly encrypted: EncryptedVectors
  readonly #files: SuiteInput['files']

  constructor(json: string) {
    const input: SuiteInput = JSON.parse(json)
    this.#files = input.files
    this.simulated = input.simulated
    this.gateway = input.gateway
    this.instance = input.instance
    this.encrypted = input.encrypted
  }

  bytes(path: string): Uint8Array {
    return fromBase64Text(present(this.#files[path], `the suite was given ${path}`))
  }

  text(path: string): string {
    return fromUtf8(this.bytes(path))
  }

  /** The caller says what the file holds. */
  json<T>(path: string): T {
    return JSON.parse(this.text(path))
  }
}

export function fromBase64Text(text: string): Uint8Array {
  return present(fromBase64(text), 'base64')
}
