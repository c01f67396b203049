// The superblock that veritysetup writes before a dm-verity hash tree (cryptsetup, "DMVerity", format version 1). Pure.

import { fromUtf8, toHex, utf8 } from '../../base/bytes.ts'
import { resultOr } from '../../base/result-or.ts'
import { isZero, type Layout, layoutBytes, readRecord, writeRecord } from '../encoding/layout.ts'
import { wellFormed } from '../malformed.ts'

export const VERITY_SUPERBLOCK = {
  signature: [0, 8],
  version: [8, 4],
  hashType: [12, 4],
  uuid: [16, 16],
  algorithm: [32, 32],
  dataBlockBytes: [64, 4],
  hashBlockBytes: [68, 4],
  dataBlocks: [72, 8],
  saltBytes: [80, 2],
  reserved1: [82, 6],
  salt: [88, 256],
  reserved2: [344, 168],
} as const satisfies Layout

export const veritySuperblockBytes = layoutBytes(VERITY_SUPERBLOCK)

/** "verity" and two NULs, as a little-endian number. */
const signature = 0x0000_7974_6972_6576n
const version = 1
/** Hash type with the salt before the block. 0 is Chrome OS's format. */
const hashTypeNormal = 1
const algorithm = 'sha256'
export const veritySaltBytesMax = 256
const blockBytesMin = 512
const blockBytesMax = 64 * 1024
/** 4 PiB of 4 KiB blocks, and still exact as a number. */
const dataBlocksMax = 2 ** 40

/** Parameters that determine the tree; the hash is SHA-256. */
export type VerityParameters = {
  /** Block sizes: powers of two from 512 to 65536. */
  readonly dataBlockBytes: number
  readonly hashBlockBytes: number
  readonly dataBlocks: number
  /** 0 to 256 bytes. */
  readonly salt: Uint8Array
}

export type VeritySuperblock = VerityParameters & { readonly uuid: string }

/** Throws Malformed for parameters that no tree can have. */
export function checkVerityParameters({ dataBlockBytes, hashBlockBytes, dataBlocks, salt }: VerityParameters): void {
  for (const [name, size] of [
    ['data', dataBlockBytes],
    ['hash', hashBlockBytes],
  ] as const) {
    const isPowerOfTwo = Number.isInteger(size) && (size & (size - 1)) === 0
    wellFormed(
      isPowerOfTwo && size >= blockBytesMin && size <= blockBytesMax,
      `verity: ${name} blocks of ${size} bytes`,
    )
  }
  const isCount = Number.isInteger(dataBlocks) && dataBlocks >= 1 && dataBlocks <= dataBlocksMax
  wellFormed(isCount, `verity: ${dataBlocks} data blocks`)
  wellFormed(salt.length <= veritySaltBytesMax, `verity: salt of ${salt.length} bytes`)
}

/** Reads the superblock: 512 bytes at the hash offset. */
export function readVeritySuperblock(bytes: Uint8Array): VeritySuperblock {
  const fields = readRecord('verity superblock', bytes, VERITY_SUPERBLOCK)
  const { dataBlockBytes, hashBlockBytes, saltBytes } = fields
  wellFormed(fields.signature === signature, 'verity superblock: signature')
  wellFormed(fields.version === version, `verity superblock: version ${fields.version}`)
  wellFormed(fields.hashType === hashTypeNormal, `verity superblock: hash type ${fields.hashType}`)
  const isSha256 = toHex(fields.algorithm) === toHex(algorithmField())
  wellFormed(isSha256, `verity superblock: algorithm ${nameOf(fields.algorithm)}, not ${algorithm}`)
  wellFormed(saltBytes <= veritySaltBytesMax, `verity superblock: salt of ${saltBytes} bytes`)
  const reserved = [fields.reserved1, fields.salt.subarray(saltBytes), fields.reserved2]
  wellFormed(reserved.every(isZero), 'verity superblock: reserved bytes are not zero')
  wellFormed(fields.dataBlocks <= dataBlocksMax, `verity superblock: ${fields.dataBlocks} data blocks`)
  const dataBlocks = Number(fields.dataBlocks)
  const parameters = { dataBlockBytes, hashBlockBytes, dataBlocks, salt: fields.salt.slice(0, saltBytes) }
  checkVerityParameters(parameters)
  return { ...parameters, uuid: uuidText(fields.uuid) }
}

/**
 * Returns the 512 bytes for the hash offset. Throws Malformed for parameters that no tree can have, or a UUID not of 16
 * bytes.
 */
export function writeVeritySuperblock(parameters: VerityParameters, uuid: Uint8Array): Uint8Array {
  checkVerityParameters(parameters)
  const { dataBlockBytes, hashBlockBytes, dataBlocks } = parameters
  const salt = new Uint8Array(veritySaltBytesMax)
  salt.set(parameters.salt)
  return writeRecord('verity superblock', VERITY_SUPERBLOCK, {
    signature,
    version,
    hashType: hashTypeNormal,
    uuid,
    algorithm: algorithmField(),
    dataBlockBytes,
    hashBlockBytes,
    dataBlocks: BigInt(dataBlocks),
    saltBytes: parameters.salt.length,
    salt,
    reserved1: new Uint8Array(6),
    reserved2: new Uint8Array(168),
  })
}

function algorithmField(): Uint8Array {
  const field = new Uint8Array(32)
  field.set(utf8(algorithm))
  return field
}

function nameOf(field: Uint8Array): string {
  return resultOr(() => JSON.stringify(fromUtf8(field).replace(/\0+$/, '')), 'unreadable')
}

/** Formats a UUID. Unlike in a GUID, all groups are in byte order. */
function uuidText(bytes: Uint8Array): string {
  const at = (from: number, to: number) => toHex(bytes.subarray(from, to))
  return [at(0, 4), at(4, 6), at(6, 8), at(8, 10), at(10, 16)].join('-')
}
