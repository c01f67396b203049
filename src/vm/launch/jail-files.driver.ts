// The files that a VM's programs load on this host, for their jails. Effects: runs the dynamic loader and QEMU; reads
// file attributes.
//
// Paths of libraries and of QEMU's data differ between releases of Debian, so they are read from the loader and QEMU.

import { existsSync, readdirSync, realpathSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { Fault, wrapFault } from '../../base/fault.ts'
import { plainEnv, run } from '../../linux/command.ts'

export type ProgramFiles = {
  /** Absolute path of the program. */
  readonly program: string
  /** The program, its loader, libraries and data. */
  readonly files: readonly string[]
}

export type JailFiles = {
  /**
   * Returns QEMU's files, with its data and the accelerators that Debian's older packages ship as modules. Throws Fault
   * host.unsupported.
   */
  readonly ofQemu: (qemu: string) => Promise<ProgramFiles>
  /**
   * Returns the program's files. Throws Fault host.unsupported if there is no such program, or a library is missing.
   */
  readonly ofProgram: (program: string) => Promise<ProgramFiles>
}

const loader = '/lib64/ld-linux-x86-64.so.2'
/** Changes with every library that is installed or removed. */
const loaderCache = '/etc/ld.so.cache'
const limits = { timeoutMs: 10_000, outputBytesMax: 262_144 } as const
/** A program at its old path and at that of an upgrade. No share: programs of this host. */
const knownCountMax = 8

/** Reads the files once for each version of a program and of the host's libraries. */
export function createJailFiles(): JailFiles {
  const known = new Map<string, Promise<ProgramFiles>>()
  const remembered = (name: string, look: (program: string) => Promise<readonly string[]>): Promise<ProgramFiles> => {
    const program = Bun.which(name, { PATH: plainEnv.PATH })
    if (program === null) return Promise.reject(new Fault('host.unsupported', `${name} is not installed`))
    const key = [program, ...[program, loaderCache].map(versionOf)].join(' ')
    const before = known.get(key)
    if (before !== undefined) return before
    const looked = look(program).then(files => ({ program, files }))
    known.set(key, looked)
    looked.catch(() => known.delete(key))
    for (const old of known.keys()) {
      if (known.size <= knownCountMax) break
      known.delete(old)
    }
    return looked
  }
  return {
    ofQemu: qemu => remembered(qemu, qemuFiles),
    ofProgram: program => remembered(program, loadedFiles),
  }
}

function versionOf(path: string): string {
  const found = statSync(path, { bigint: true, throwIfNoEntry: false })
  return found === undefined ? 'none' : `${found.dev}:${found.ino}:${found.size}:${found.mtimeNs}`
}

async function qemuFiles(qemu: string): Promise<string[]> {
  const prefix = dirname(dirname(realpathSync(qemu)))
  const modules = ['lib/x86_64-linux-gnu/qemu', 'lib/qemu'].flatMap(name => acceleratorsIn(join(prefix, name)))
  const loaded = await Promise.all([qemu, ...modules].map(loadedFiles))
  return [...new Set([...loaded.flat(), ...(await dataDirs(qemu))])]
}

function acceleratorsIn(directory: string): string[] {
  if (!existsSync(directory)) return []
  return readdirSync(directory)
    .filter(name => /^accel-.*\.so$/.test(name))
    .map(name => join(directory, name))
}

/** Returns the directories of firmware and option ROMs (qemu(1), -L). */
async function dataDirs(qemu: string): Promise<string[]> {
  const { stdout } = await run([qemu, '-L', 'help'], limits)
  return stdout.split('\n').filter(line => line.startsWith('/') && existsSync(line))
}

/** Returns the file, its loader and its libraries (ld.so(8), --list, which executes nothing of the file). */
async function loadedFiles(file: string): Promise<string[]> {
  const { stdout } = await run([loader, '--list', file], limits).catch(error => {
    throw wrapFault(error, `list the libraries of ${file}`, 'host.unsupported')
  })
  const missing = /^\t(\S+) => not found$/m.exec(stdout)?.[1]
  if (missing !== undefined) throw new Fault('host.unsupported', `${file} needs ${missing}, which is not installed`)
  const libraries = [...stdout.matchAll(/^\t(?:\S+ => )?(\/\S+) \(0x[0-9a-f]+\)$/gm)].map(match => match[1] ?? '')
  return [...(existsSync(loaderCache) ? [loaderCache] : []), ...new Set([file, loader, ...libraries])]
}
