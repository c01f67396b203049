import { expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { until } from '../../../scripts/rigs/until.ts'
import { socketPathBytesMax } from '../../../src/host/qemu/socket-path.ts'
import { connectUnix, listenUnix } from '../../../src/host/qemu/unix-socket.ts'

test('goal: who connects before the other process accepts waits, and learns when that process is gone', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'unix-socket-test-'))
  const path = join(dir, 's')
  // A crash left something here.
  writeFileSync(path, '')
  const socket = listenUnix(path)
  let ended = ''
  const options = { timeoutMs: 1_000, code: 'qmp.closed', bytesPerSecondMax: 1_000, queuedBytesMax: 10 } as const
  const onClose = (reason: string) => {
    ended = reason
  }
  const connected = await connectUnix(path, { ...options, onData: () => undefined, onClose })
  expect(connected.write(Buffer.from('early'))).toBe(true)
  expect(ended).toBe('')
  socket[Symbol.dispose]()
  await until('the connection ends', 15_000, () => ended !== '')
  // The next one takes the place of what is left.
  listenUnix(path)[Symbol.dispose]()
  expect(() => listenUnix(join(dir, 'none', 's'))).toThrow('ENOENT')
  expect(() => listenUnix(`/${'x'.repeat(socketPathBytesMax)}`)).toThrow('the limit is 107')
  rmSync(dir, { recursive: true })
})
