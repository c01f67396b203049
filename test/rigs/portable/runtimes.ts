// The bundled suite in Bun, in Node and in a browser. Starts processes, and ends each by its own handle.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { type BrowserBundle, browserBundle } from '../../../scripts/build/browser-bundle.ts'
import { launchChromium } from '../../../scripts/rigs/chromium.ts'

const suiteEntry = resolve(import.meta.dir, 'suite.ts')
const driver = resolve(import.meta.dir, 'driver.mjs')
const runTimeoutMs = 110_000

export type ScriptRuntime = 'bun' | 'node' | 'node-bare'

const ARGV = {
  bun: { command: [process.execPath], mode: [] },
  node: { command: ['node'], mode: [] },
  'node-bare': { command: ['node', '--experimental-vm-modules', '--no-warnings'], mode: ['bare'] },
} as const satisfies Record<ScriptRuntime, { command: readonly string[]; mode: readonly string[] }>

export function bundledSuite(): Promise<BrowserBundle> {
  return browserBundle(suiteEntry)
}

/** 0 where there is no Node. Debian 12's own is 18, which has no WebCrypto among its globals. */
export function nodeMajor(): number {
  if (Bun.which('node') === null) return 0
  const { stdout } = Bun.spawnSync(['node', '--version'], { timeout: runTimeoutMs })
  return Number(/^v(\d+)\./.exec(stdout.toString())?.[1] ?? 0)
}

/** Results of one bundle over one input. */
export async function runScript(runtime: ScriptRuntime, bundle: string, input: string): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'srt-portable-'))
  try {
    const path = join(folder, 'suite.mjs')
    await Bun.write(path, bundle)
    const { command, mode } = ARGV[runtime]
    const child = Bun.spawn([...command, driver, path, ...mode], {
      stdin: Buffer.from(input),
      stdout: 'pipe',
      stderr: 'pipe',
      timeout: runTimeoutMs,
    })
    const [results, errors] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
    if (child.exitCode !== 0) throw new Error(`${runtime}: exit status ${child.exitCode}: ${errors}`)
    return results
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

export type BrowserRun = {
  readonly results: string
  readonly version: string
  /** Every address that the page asked for. */
  readonly requests: readonly string[]
}

/**
 * In a fresh profile, from a page of 127.0.0.1 whose policy allows its own scripts alone: no eval, no WebAssembly, no
 * other host.
 */
export async function runChromium(bundle: string, input: string): Promise<BrowserRun> {
  const profile = mkdtempSync(join(tmpdir(), 'srt-chromium-'))
  const { promise: results, resolve: done, reject } = Promise.withResolvers<string>()
  results.catch(() => {})
  const server = servePage({ bundle, input, done })
  const timer = setTimeout(() => reject(new Error(`no results after ${runTimeoutMs} ms`)), runTimeoutMs)
  try {
    const context = await launchChromium(profile)
    try {
      const requests: string[] = []
      const page = await context.newPage()
      page.on('request', request => requests.push(request.url()))
      page.on('pageerror', reject)
      await page.goto(server.url.href, { timeout: runTimeoutMs })
      return { results: await results, version: context.browser()?.version() ?? 'unknown', requests }
    } finally {
      await context.close()
    }
  } finally {
    clearTimeout(timer)
    await server.stop(true)
    rmSync(profile, { recursive: true, force: true })
  }
}

const page = '<!doctype html><meta charset="utf-8"><title>suite</title><script type="module" src="/page.js"></script>'
const pageScript = `import { runSuite } from '/suite.js'
const input = await (await fetch('/input.json')).text()
await fetch('/results', { method: 'POST', body: await runSuite(input) })`

type Served = { readonly bundle: string; readonly input: string; readonly done: (results: string) => void }

function servePage({ bundle, input, done }: Served) {
  const file = (text: string, type: string) =>
    new Response(text, {
      headers: {
        'content-type': `${type}; charset=utf-8`,
        'content-security-policy': "default-src 'none'; script-src 'self'; connect-src 'self'",
      },
    })
  return Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    routes: {
      '/': () => file(page, 'text/html'),
      '/page.js': () => file(pageScript, 'text/javascript'),
      '/suite.js': () => file(bundle, 'text/javascript'),
      '/input.json': () => file(input, 'application/json'),
      '/results': {
        POST: async request => {
          done(await request.text())
          return new Response(null, { status: 204 })
        },
      },
    },
    fetch: () => new Response(null, { status: 404 }),
  })
}
