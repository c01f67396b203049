// SHA-256 by the runtime. No effects.

/** For hash trees, which use each digest before they ask for the next: a third of the time, for 4 KiB, of one that returns an array of its own. */
export function blockSha256(): (bytes: Uint8Array) => Uint8Array {
  const digest = new Uint8Array(32)
  return bytes => {
    Bun.CryptoHasher.hash('sha256', bytes, digest)
    return digest
  }
}
