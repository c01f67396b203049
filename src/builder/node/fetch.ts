// Fetches the package files of a lock, and compares each with its SHA-512. Effects: a program, files on scratch.

import * as fs from 'node:fs'
import { digestOf } from '../digest.ts'
import { BuildFailure } from '../failure.ts'
import { type Phase, places, uids } from '../phase.ts'
import type { Sandbox } from '../sandbox.ts'
import { giveTo, makeDir, openToAll } from '../workspace.ts'
import { type NpmPackage, shown, tarballPath } from './lock.ts'
import { fetchProgram, nodeEnvironment, nodeFetchArgv, nodePlaces } from './node.plan.ts'

/**
 * Returns the directory of the files, each named by its SHA-512. `registry`: address without a trailing `/`. Failures:
 * `source_unreachable`, `checksum_mismatch`, and those of programs.
 */
export async function fetchFiles(
  phase: Phase,
  sandbox: Sandbox,
  wanted: { packages: readonly NpmPackage[]; registry: string; openNetwork: () => Promise<string> },
): Promise<string> {
  const { job, tools, caBundle, workDir } = phase
  const { packages, registry } = wanted
  // Compared by path: a hash shared by two packages is compared with each of their files in the registry.
  const files = Map.groupBy(packages, tarballPath)
  job.say('fetch', `package files from ${registry}: ${files.size}`)
  const proxy = await wanted.openNetwork()
  const dir = makeDir(`${workDir}/node-files`, uids.fetch)
  const list = {
    ...{ proxy, ca: places.ca, into: nodePlaces.files },
    files: [...files.keys()].map((path, at) => [`${registry}/${path}`, String(at)]),
  }
  const { code } = await sandbox.run(
    {
      name: 'node-fetch',
      argv: nodeFetchArgv(),
      env: nodeEnvironment(tools.path),
      binds: [
        programBind(workDir, 'fetch.cjs', fetchProgram),
        listBind(workDir, 'fetch.json', list),
        { from: dir, to: nodePlaces.files, writable: true },
        { from: caBundle, to: places.ca, writable: false },
      ],
      step: 'fetch',
      logsOutput: true,
    },
    { network: true, uid: uids.fetch },
  )
  if (code !== 0)
    throw new BuildFailure(
      'source_unreachable',
      `a package file cannot be fetched from ${registry}; set the registry to one that has it, and ask the operator which hosts are allowed: ${job.tail()}`,
    )
  await giveTo(0, dir)
  await openToAll(dir)
  fs.chmodSync(dir, 0o755)
  for (const [at, named] of [...files.values()].entries()) {
    const found = await digestOf('sha512', `${dir}/${at}`)
    const other = named.find(({ sha512 }) => sha512 !== found)
    if (other !== undefined)
      throw new BuildFailure(
        'checksum_mismatch',
        `fetched ${other.name} ${other.version}: its SHA-512 differs from the one in the lock for ${shown(other.key)}`,
      )
    fs.renameSync(`${dir}/${at}`, `${dir}/${found}`)
  }
  job.say('fetch', `each package file matches its SHA-512 in the lock: ${files.size}`)
  return dir
}

export function programBind(workDir: string, name: string, text: string) {
  return { from: written(workDir, name, text), to: nodePlaces.program, writable: false }
}

export function listBind(workDir: string, name: string, list: unknown) {
  return { from: written(workDir, name, JSON.stringify(list)), to: nodePlaces.list, writable: false }
}

function written(workDir: string, name: string, text: string): string {
  fs.writeFileSync(`${workDir}/${name}`, text, { mode: 0o644 })
  return `${workDir}/${name}`
}
