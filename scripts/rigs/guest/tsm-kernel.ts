// The kernel behind configfs-tsm for reports: a fake at the outermost edge, because test machines lack the hardware and
// a plain directory cannot answer a write. Its reports have the true layout and no signature.

import { sha512 } from '../../../src/attest/hash.ts'
import { FIELDS, reportSizeBytes } from '../../../src/attest/report/report.ts'
import { concat } from '../../../src/base/bytes.ts'
import type { ConfigFiles } from '../../../src/guest/report/configfs.ts'

export const deviceMeasurement = new Uint8Array(48).fill(0x3c)
export const deviceOperatorKey = new Uint8Array(48).fill(0x4d)

/** An unsigned report of version 2 over these bytes. */
export function bareReport(
  reportData: Uint8Array,
  changes: Partial<Record<keyof typeof FIELDS, Uint8Array>> = {},
): Uint8Array {
  const bytes = new Uint8Array(reportSizeBytes)
  const fields = {
    version: Uint8Array.of(2),
    signatureAlgo: Uint8Array.of(1),
    reportData,
    measurement: deviceMeasurement,
    idKeyDigest: deviceOperatorKey,
    ...changes,
  }
  for (const [name, value] of Object.entries(fields)) bytes.set(value, FIELDS[name as keyof typeof FIELDS][0])
  return bytes
}

type TsmKernel = ConfigFiles & {
  /** Entries that exist now. */
  readonly entries: Map<string, Map<string, Uint8Array>>
  /** Every inblob and the privilege level that it was asked for with. */
  readonly asked: { readonly inblob: Uint8Array; readonly privlevel: number }[]
}

export type TsmSettings = {
  readonly provider?: string | null
  readonly floor?: number
  /** Thrown at the reads of `outblob`, one after the other, before reports come. */
  readonly errors?: string[]
  /** Someone else writes to the entry before each read of `outblob`. */
  readonly meddler?: boolean
  readonly reportOf?: (inblob: Uint8Array) => Uint8Array | Promise<Uint8Array>
  /** An SVSM with a vTPM whose endorsement key's public area is this. */
  readonly manifest?: Uint8Array | null
}

export function createTsmKernel(settings: TsmSettings = {}): TsmKernel {
  const {
    provider = 'sev_guest',
    floor = 0,
    errors = [],
    meddler = false,
    reportOf = bareReport,
    manifest = null,
  } = settings
  const entries: TsmKernel['entries'] = new Map()
  const asked: { inblob: Uint8Array; privlevel: number }[] = []
  const text = (value: string | number) => Buffer.from(`${value}\n`)
  const split = (path: string) => {
    const at = path.lastIndexOf('/')
    const entry = entries.get(path.slice(0, at))
    if (entry === undefined) throw errno('ENOENT')
    return { entry, name: path.slice(at + 1) }
  }
  const bump = (entry: Map<string, Uint8Array>) => {
    entry.set('generation', text(Number(Buffer.from(entry.get('generation') ?? [])) + 1))
  }
  return {
    entries,
    asked,
    makeDirectory: async path => {
      if (provider === null) throw errno('ENXIO')
      if (entries.has(path)) throw errno('EEXIST')
      const attributes = new Map([
        ['provider', text(provider)],
        ['generation', text(0)],
      ])
      if (floor > 0) attributes.set('privlevel_floor', text(floor))
      entries.set(path, attributes)
    },
    removeDirectory: async path => {
      if (!entries.delete(path)) throw errno('ENOENT')
    },
    read: async path => {
      const { entry, name } = split(path)
      if (name === 'outblob') {
        const error = errors.shift()
        if (error !== undefined) throw errno(error)
        const inblob = entry.get('inblob')
        if (inblob === undefined) throw errno('EINVAL')
        if (meddler) bump(entry)
        asked.push({ inblob, privlevel: Number(Buffer.from(entry.get('privlevel') ?? text(0)).toString()) })
        const guid = Buffer.from(entry.get('service_guid') ?? []).toString()
        if (manifest !== null && guid !== '') {
          if (guid !== 'c476f1eb-0123-45a5-9641-b4e7dde5bfe3') throw errno('EINVAL')
          entry.set('manifestblob', manifest)
          return reportOf(sha512(concat(inblob, manifest)))
        }
        return reportOf(inblob)
      }
      const value = entry.get(name)
      if (value === undefined) throw errno('ENOENT')
      return value
    },
    write: async (path, bytes) => {
      const { entry, name } = split(path)
      const known = ['inblob', 'privlevel', ...(manifest === null ? [] : serviceNames)]
      if (!known.includes(name)) throw errno('EACCES')
      if (name === 'service_provider' && Buffer.from(bytes).toString() !== 'svsm') throw errno('EINVAL')
      if (name === 'inblob' && bytes.length > 64) throw errno('EFBIG')
      if (name === 'privlevel' && Number(Buffer.from(bytes).toString()) < floor) throw errno('EINVAL')
      entry.set(name, Uint8Array.from(bytes))
      bump(entry)
    },
  }
}

const serviceNames = ['service_provider', 'service_guid', 'service_manifest_version']

function errno(code: string): Error {
  return Object.assign(new Error(code), { code })
}
