// A transparency log over HTTPS: checkpoint, proofs and entries. Effects: the network. It trusts no response, and
// limits sizes and counts before each request.

import { type Checkpoint, decodeCheckpoint } from '../../attest/log/checkpoint.ts'
import { consistencyProof, type LogHash, logHashBytes, nodeHash } from '../../attest/log/merkle.ts'
import { decodeNote, type Note, noteBytesMax } from '../../attest/log/note.ts'
import { decodeLogProof, type LogProof, logProofBytesMax } from '../../attest/log/proof.ts'
import { decodeEntries, type Tile, tileHashes, tilePath, tileWidth } from '../../attest/log/tiles.ts'
import { wellFormed } from '../../attest/malformed.ts'
import { fromUtf8, toHex } from '../../base/bytes.ts'
import { messageOf } from '../../base/fault.ts'
import { logEntryBytesMax } from '../../contract/http/log-entry.ts'
import { getByEnvironment } from '../../linux/net/tunnel.ts'

export type RemoteLogOptions = {
  /** Address of the log itself. */
  readonly url: URL
  readonly ca: string | undefined
  readonly timeoutMs: number
}

/** The log does not respond, or not with what was requested. */
export class LogUnreachable extends Error {}

export type ReadNote = { readonly note: Note; readonly checkpoint: Checkpoint }

/** Each entry is preceded by two bytes of length. */
const bundleBytesMax = tileHashes * (2 + logEntryBytesMax)
/** More than any proof needs. */
const proofTilesMax = 32

export class RemoteLog {
  readonly #options: RemoteLogOptions
  readonly #tiles = new Map<string, Uint8Array>()

  constructor(options: RemoteLogOptions) {
    this.#options = options
  }

  /** Fetches the newest checkpoint. Throws LogUnreachable, Malformed. */
  async checkpoint(): Promise<ReadNote> {
    const note = decodeNote(await this.#required('checkpoint', noteBytesMax))
    return { note, checkpoint: decodeCheckpoint(note.text) }
  }

  /** Fetches a proof. Null if the log has no entry with this leaf hash. Throws LogUnreachable, Malformed. */
  async proof(leaf: LogHash): Promise<{ readonly proof: LogProof; readonly bytes: Uint8Array } | null> {
    const bytes = await this.#get(`proof/${toHex(leaf)}`, logProofBytesMax)
    return bytes === null ? null : { proof: decodeLogProof(bytes), bytes }
  }

  /** Fetches the key that the log claims to have. Throws LogUnreachable. */
  async key(): Promise<string> {
    return fromUtf8(await this.#required('key', keyBytesMax)).trim()
  }

  /** Proves from tiles that a tree of `size` begins with one of `oldSize`. Throws LogUnreachable, Malformed. */
  async consistency(oldSize: number, size: number): Promise<LogHash[]> {
    for (let asked = 0; asked <= proofTilesMax; asked += 1) {
      const missing: Tile[] = []
      const read = (level: number, index: number) => this.#hash({ level, index, size }, missing)
      const proof = consistencyProof(oldSize, size, read)
      const [next] = missing
      if (next === undefined) return proof
      const bytes = await this.#required(tilePath(next), next.width * logHashBytes)
      wellFormed(bytes.length === next.width * logHashBytes, `${tilePath(next)}: ${bytes.length} bytes`)
      this.#tiles.set(tilePath(next), bytes)
    }
    throw new LogUnreachable('the proof would take more tiles than any needs')
  }

  /** Fetches the entries of one bundle of a tree of `size`. Throws LogUnreachable, Malformed. */
  async bundle(index: number, size: number): Promise<Uint8Array[]> {
    const width = tileWidth(size, { level: 'entries', index })
    const path = tilePath({ level: 'entries', index, width })
    return decodeEntries(await this.#required(path, bundleBytesMax), width)
  }

  /** Returns a hash from cached tiles; otherwise zeros, and adds the missing tile. */
  #hash(of: { readonly level: number; readonly index: number; readonly size: number }, missing: Tile[]): LogHash {
    const [tileLevel, above] = [Math.floor(of.level / tileLevels), of.level % tileLevels]
    const first = of.index * 2 ** above
    const place = { level: tileLevel, index: Math.floor(first / tileHashes) }
    const tile: Tile = { ...place, width: tileWidth(of.size, place) }
    const bytes = this.#tiles.get(tilePath(tile))
    if (bytes === undefined) {
      missing.push(tile)
      return new Uint8Array(logHashBytes)
    }
    const hashOf = (level: number, at: number): LogHash =>
      level === 0
        ? bytes.subarray(at * logHashBytes, (at + 1) * logHashBytes)
        : nodeHash(hashOf(level - 1, 2 * at), hashOf(level - 1, 2 * at + 1))
    return hashOf(above, (first % tileHashes) / 2 ** above)
  }

  async #required(path: string, bytesMax: number): Promise<Uint8Array> {
    const bytes = await this.#get(path, bytesMax)
    if (bytes === null) throw new LogUnreachable(`it has no ${path}`)
    return bytes
  }

  /** Fetches a file of the log. Null for status 404. */
  async #get(path: string, bytesMax: number): Promise<Uint8Array | null> {
    const { url: base, ca, timeoutMs } = this.#options
    const url = new URL(`${base.href.replace(/\/$/, '')}/${path}`)
    try {
      const { status, body, certificateFault } = await getByEnvironment({ url, ca, timeoutMs, bodyBytesMax: bytesMax })
      if (certificateFault !== null) throw new LogUnreachable(`${certificateFault}; see --log-ca`)
      if (status === 404) return null
      if (status !== 200) throw new LogUnreachable(`${path}: status ${status}`)
      if (body.length > bytesMax)
        throw new LogUnreachable(`${path}: ${body.length} bytes, at most ${bytesMax} are read`)
      return body
    } catch (error) {
      throw error instanceof LogUnreachable ? error : new LogUnreachable(`${base.host}: ${messageOf(error)}`)
    }
  }
}

const keyBytesMax = 1_024
/** Levels of the tree in one tile. */
const tileLevels = Math.log2(tileHashes)
