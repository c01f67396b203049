// Reports from configfs-tsm. Effects: directories and attributes below /sys/kernel/config/tsm/report.
// Linux Documentation/ABI/testing/configfs-tsm-report. An entry is made for each report and removed after it.

import * as fs from 'node:fs'
import { systemErrorCode } from '../../base/fault.ts'
import { type Attempt, retryable } from './device.ts'

/** The calls to configfs. A plain directory cannot answer a write, so tests put their own kernel behind this. */
export type ConfigFiles = {
  readonly makeDirectory: (path: string) => Promise<void>
  readonly removeDirectory: (path: string) => Promise<void>
  /** Up to `bytesMax`; more is an error. */
  readonly read: (path: string) => Promise<Uint8Array>
  /** One write(2), before a program can start and hold a copy: a binary value counts once its last copy is closed. */
  readonly write: (path: string, bytes: Uint8Array) => Promise<void>
}

/** Reads are asynchronous: one of `outblob` lasts as long as the host throttles. */
export const kernelFiles: ConfigFiles = {
  makeDirectory: path => fs.promises.mkdir(path),
  removeDirectory: path => fs.promises.rmdir(path),
  read: path => fs.promises.readFile(path),
  write: async (path, bytes) => {
    const fd = fs.openSync(path, fs.constants.O_WRONLY)
    try {
      fs.writeSync(fd, bytes)
    } finally {
      fs.closeSync(fd)
    }
  },
}

const provider = 'sev_guest'

/** Null if there is no provider. The directory also exists without the hardware, but then refuses entries. */
export async function openConfigfs(
  reports: string,
  files: ConfigFiles,
): Promise<{ readonly ask: (reportData: Uint8Array) => Promise<Attempt> } | null> {
  try {
    const found = await withEntry(reports, files, async entry => decodeText(await files.read(`${entry}/provider`)))
    if (found !== provider) return null
  } catch (error) {
    const code = systemErrorCode(error) ?? ''
    if (absent.has(code)) return null
    throw error
  }
  return { ask: reportData => ask(reports, files, reportData) }
}

/** ENXIO: no provider is registered. */
const absent: ReadonlySet<string> = new Set(['ENOENT', 'ENXIO', 'ENOTDIR', 'EPERM', 'EACCES'])

async function ask(reports: string, files: ConfigFiles, reportData: Uint8Array): Promise<Attempt> {
  try {
    return await withEntry(reports, files, async entry => {
      // Under an SVSM, or with another VMPCK, the kernel may give reports of a lower privilege only.
      const floor = await readOptional(files, `${entry}/privlevel_floor`)
      const expected = (floor > 0 ? 1 : 0) + 1
      const before = await generationOf(files, entry)
      if (floor > 0) await files.write(`${entry}/privlevel`, Buffer.from(String(floor)))
      await files.write(`${entry}/inblob`, reportData)
      const report = Uint8Array.from(await files.read(`${entry}/outblob`))
      // Another writer of the entry shows here: then the report is over other data.
      const after = await generationOf(files, entry)
      if (after === before + expected) return { ok: true, report }
      return { ok: false, again: true, reason: `configfs-tsm: generation ${after}, not ${before + expected}` }
    })
  } catch (error) {
    const code = systemErrorCode(error)
    if (code === null || code === undefined) throw error
    return { ok: false, again: retryable.has(code), reason: `configfs-tsm: ${code}` }
  }
}

/** This agent's entry; the entry of an agent that died is removed first. */
const entryName = 'strongroom'

export async function withEntry<T>(
  reports: string,
  files: ConfigFiles,
  use: (entry: string) => Promise<T>,
  name: string = entryName,
): Promise<T> {
  const entry = `${reports}/${name}`
  try {
    await files.makeDirectory(entry)
  } catch (error) {
    if (systemErrorCode(error) !== 'EEXIST') throw error
    await files.removeDirectory(entry)
    await files.makeDirectory(entry)
  }
  try {
    return await use(entry)
  } finally {
    await files.removeDirectory(entry).catch(() => {}) // the next entry would find and remove it
  }
}

export async function generationOf(files: ConfigFiles, entry: string): Promise<number> {
  return Number(decodeText(await files.read(`${entry}/generation`)))
}

/** 0 without the attribute: kernels have it only if it means something. */
async function readOptional(files: ConfigFiles, path: string): Promise<number> {
  try {
    return Number(decodeText(await files.read(path)))
  } catch (error) {
    if (systemErrorCode(error) === 'ENOENT') return 0
    throw error
  }
}

function decodeText(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('latin1').trim()
}
