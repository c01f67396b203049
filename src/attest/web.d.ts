// The platform features that this library uses: a subset of the web platform shared by browsers, Bun and Node. Only
// src/attest/tsconfig.json includes this file, so any other feature is a type error there.

type BufferSource = ArrayBufferView | ArrayBuffer

interface CryptoKey {
  readonly type: 'private' | 'public' | 'secret'
  readonly extractable: boolean
  readonly algorithm: { readonly name: string }
  readonly usages: readonly string[]
}

interface CryptoKeyPair {
  readonly publicKey: CryptoKey
  readonly privateKey: CryptoKey
}

type WebAlgorithm = string | ({ readonly name: string } & { readonly [parameter: string]: unknown })

interface SubtleCrypto {
  digest(algorithm: string, data: BufferSource): Promise<ArrayBuffer>
  importKey(
    format: 'raw' | 'spki' | 'pkcs8',
    data: BufferSource,
    algorithm: WebAlgorithm,
    extractable: boolean,
    usages: readonly string[],
  ): Promise<CryptoKey>
  exportKey(format: 'raw' | 'spki' | 'pkcs8', key: CryptoKey): Promise<ArrayBuffer>
  generateKey(algorithm: WebAlgorithm, extractable: boolean, usages: readonly string[]): Promise<CryptoKeyPair>
  encrypt(algorithm: WebAlgorithm, key: CryptoKey, data: BufferSource): Promise<ArrayBuffer>
  decrypt(algorithm: WebAlgorithm, key: CryptoKey, data: BufferSource): Promise<ArrayBuffer>
  sign(algorithm: WebAlgorithm, key: CryptoKey, data: BufferSource): Promise<ArrayBuffer>
  verify(algorithm: WebAlgorithm, key: CryptoKey, signature: BufferSource, data: BufferSource): Promise<boolean>
}

interface Crypto {
  readonly subtle: SubtleCrypto
  getRandomValues<T extends ArrayBufferView>(array: T): T
}

declare const crypto: Crypto

declare class TextEncoder {
  encode(text: string): Uint8Array<ArrayBuffer>
}

declare class TextDecoder {
  constructor(label?: string, options?: { fatal?: boolean; ignoreBOM?: boolean })
  decode(bytes?: BufferSource): string
}

declare function atob(base64: string): string
declare function btoa(binary: string): string

/** WHATWG URL. */
declare class URL {
  constructor(text: string)
  static canParse(text: string): boolean
  readonly href: string
  readonly origin: string
}
