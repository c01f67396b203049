// More streams than Bun's fetch runs by itself, and the new beginning that lifts its limit.

import { expect, test } from 'bun:test'
import { restartFor } from '../../src/cli/max-http-requests.ts'

const program = new URL('./stream-many-program.ts', import.meta.url).pathname

async function run(mode: string): Promise<{ atOnce: number; done: number; records: number }> {
  const { BUN_CONFIG_MAX_HTTP_REQUESTS: _set, ...env } = process.env
  const child = Bun.spawn([process.execPath, program, mode], {
    env,
    stdout: 'pipe',
    stderr: 'inherit',
    timeout: 40_000,
  })
  return JSON.parse(await new Response(child.stdout).text())
}

// Goal: 400 streams are at the upstream at once after the new beginning; without it the limit shows, and still all are served.
test('more than 256 streams', async () => {
  expect(await run('raised')).toEqual({ atOnce: 400, done: 400, records: 400 })
  expect(await run('plain')).toEqual({ atOnce: 256, done: 400, records: 400 })
}, 60_000)

// Goal: a program begins again once, with its own arguments, without proxies, from source and as an executable alike.
test('how it begins again', () => {
  const source = { execPath: '/bin/bun', argv: ['/bin/bun', '/src/main.ts', 'serve'], main: '/src/main.ts' }
  const restart = restartFor({ ...source, env: { PATH: '/bin', https_proxy: 'http://127.0.0.1:1' } })
  expect(restart).toEqual({
    execPath: '/bin/bun',
    argv: ['/bin/bun', '/src/main.ts', 'serve'],
    env: { PATH: '/bin', BUN_CONFIG_MAX_HTTP_REQUESTS: '65336' },
  })
  expect(restartFor({ ...source, env: restart?.env ?? {} })).toBeNull()
  const own = { BUN_CONFIG_MAX_HTTP_REQUESTS: '1000' }
  expect(restartFor({ ...source, env: own })).toBeNull()
  expect(restartFor({ ...source, env: { ...own, HTTP_PROXY: 'x' } })?.env).toEqual(own)
  const compiled = { execPath: '/usr/bin/s', argv: ['bun', '/$bunfs/root/s', 'serve'], main: '/$bunfs/root/s', env: {} }
  expect(restartFor(compiled)?.argv).toEqual(['/usr/bin/s', 'serve'])
})
