// Bundles the broker of instances, which the executable of the guest runs. Effects: reads the sources, runs the
// bundler.

import { join } from 'node:path'

/** Measured: the image holds this text. */
export const brokerEntry = 'src/broker-main.ts'

/** One ES module for Bun, the same for the same sources. Throws when the bundler makes more than one file. */
export async function brokerBundle(repo: string): Promise<string> {
  const { outputs } = await Bun.build({
    entrypoints: [join(repo, brokerEntry)],
    root: repo,
    target: 'bun',
    format: 'esm',
    env: 'disable',
    define: { 'process.env.NODE_ENV': '"production"' },
    minify: { whitespace: true, syntax: true, identifiers: false },
  })
  const [output, ...more] = outputs
  if (output === undefined || more.length > 0) throw new Error(`${brokerEntry}: not one bundle`)
  return await output.text()
}
