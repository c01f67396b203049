// Builds the page from src/console/web: scripts that load their dependencies on demand, a style, one document. Effects:
// reads the sources, runs the bundler. Reproducible if the paths relative to the working directory are equal
// (scripts/build/console-page.ts).

import { readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { utf8 } from '../../base/bytes.ts'
import { indexPath, type PageFile } from './files.ts'

/** Folder of the page's sources. */
export const pageSources = join(import.meta.dir, '../web')

const TYPES: Readonly<Record<string, string>> = {
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  png: 'image/png',
}

/** Builds the page. Throws the bundler's error. */
export async function buildPage(web = pageSources): Promise<PageFile[]> {
  const { outputs } = await Bun.build({
    entrypoints: [join(web, 'main.tsx')],
    root: web,
    target: 'browser',
    format: 'esm',
    splitting: true,
    minify: true,
    env: 'disable',
    publicPath: '/assets/',
    naming: { entry: '[name]-[hash].[ext]', chunk: 'part-[hash].[ext]', asset: '[name]-[hash].[ext]' },
    define: { 'process.env.NODE_ENV': '"production"' },
  })
  const files = await Promise.all(
    outputs.map(async output => {
      const name = basename(output.path)
      const type = TYPES[name.split('.').at(-1) ?? ''] ?? 'application/octet-stream'
      return { path: `/assets/${name}`, type, bytes: new Uint8Array(await output.arrayBuffer()), kind: output.kind }
    }),
  )
  const entry = files.find(({ kind }) => kind === 'entry-point')?.path ?? ''
  const style = files.find(({ path }) => path.endsWith('.css'))?.path ?? ''
  const index = readFileSync(join(web, 'index.html'), 'utf8').replace('%script%', entry).replace('%style%', style)
  return [
    { path: indexPath, type: 'text/html; charset=utf-8', bytes: utf8(index) },
    ...files.map(({ path, type, bytes }) => ({ path, type, bytes })),
  ].sort((a, b) => (a.path < b.path ? -1 : 1))
}
