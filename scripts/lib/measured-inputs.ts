// The source inputs of the programs that images measure: what their entry points import, type-only imports left
// out. Effects: Bun's bundler.

import { readFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import { brokerEntry } from '../build/broker-bundle.ts'

/** Each with its committed list. */
export const MEASURED = {
  'strongroom-guest': { entry: 'src/guest-main.ts', file: 'guest-image/agent-inputs.json' },
  'strongroom-broker': { entry: brokerEntry, file: 'guest-image/broker-inputs.json' },
  'strongroom-builder': { entry: 'src/builder/main.ts', file: 'guest-image/builder-inputs.json' },
  'strongroom-enclave': { entry: 'src/enclave/main.ts', file: 'guest-image/enclave-inputs.json' },
} as const satisfies Record<string, { readonly entry: string; readonly file: string }>

export type MeasuredInputs = {
  /** Paths in this repository, sorted. */
  readonly files: readonly string[]
  /** Name and version of each package, and how many of its files. */
  readonly packages: Readonly<Record<string, { readonly version: string; readonly files: number }>>
}

/** As the bundler finds them, which is what the executable is made of. */
export async function findInputs(repo: string, entry: string): Promise<MeasuredInputs> {
  const built = await Bun.build({ entrypoints: [join(repo, entry)], target: 'bun', metafile: true, root: repo })
  if (!built.success || built.metafile === undefined) throw new Error(`${entry} does not bundle`)
  const paths = Object.keys(built.metafile.inputs).map(path => relative(repo, resolve(path)))
  const names = paths.filter(path => !path.startsWith('node_modules/')).toSorted()
  const packages = Map.groupBy(
    paths.filter(path => path.startsWith('node_modules/')),
    path => packageOf(path),
  )
  const found = [...packages].toSorted(([a], [b]) => (a < b ? -1 : 1))
  return {
    files: names,
    packages: Object.fromEntries(
      found.map(([name, files]) => [name, { version: versionOf(repo, name), files: files.length }]),
    ),
  }
}

export function inputsText(inputs: MeasuredInputs): string {
  return `${JSON.stringify(inputs, null, 2)}\n`
}

/** `node_modules/@scope/name/…` or `node_modules/name/…`. */
function packageOf(path: string): string {
  const [, first = '', second = ''] = path.split('/')
  return first.startsWith('@') ? `${first}/${second}` : first
}

function versionOf(repo: string, name: string): string {
  const { version } = JSON.parse(readFileSync(join(repo, 'node_modules', name, 'package.json'), 'utf8'))
  return String(version)
}
