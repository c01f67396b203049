// Bundles modules for a browser. Effects: reads the sources, runs the bundler.

import { resolve } from 'node:path'

const repo = resolve(import.meta.dir, '../..')

export type BrowserBundle = {
  readonly text: string
  /** Path of every source file, from the repository's root, and the bytes that it adds to the bundle. */
  readonly inputs: ReadonlyMap<string, number>
}

/** One minified ES module. Throws when the bundler makes more than one file. */
export async function browserBundle(entry: string): Promise<BrowserBundle> {
  const { outputs, metafile } = await Bun.build({
    entrypoints: [entry],
    root: repo,
    target: 'browser',
    format: 'esm',
    minify: true,
    metafile: true,
  })
  const [output, ...more] = outputs
  const [described] = Object.values(metafile?.outputs ?? {})
  if (output === undefined || described === undefined || more.length > 0) throw new Error(`${entry}: not one bundle`)
  const inputs = Object.entries(described.inputs).map(([path, { bytesInOutput }]) => [path, bytesInOutput] as const)
  return { text: await output.text(), inputs: new Map(inputs) }
}
