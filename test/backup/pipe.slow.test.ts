// Goal: a backup that a command takes is the whole one or a failure: never a part that an object store keeps as the
// whole.

import { expect, test } from 'bun:test'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { until } from '../../scripts/rigs/until.ts'
import { pipeTo } from '../../src/backup/pipe.ts'
import { Fault } from '../../src/base/fault.ts'

const piece = Buffer.alloc(65_536, 7)
const pieces = 16

/** `failAt`: the piece instead of which the stream fails. */
function stream(failAt = Number.POSITIVE_INFINITY): ReadableStream<Uint8Array> {
  let count = 0
  return new ReadableStream({
    pull: controller => {
      if (count >= failAt) throw new Error('the disk cannot be read')
      if (count >= pieces) return controller.close()
      count += 1
      controller.enqueue(piece)
    },
  })
}

async function failure(work: Promise<unknown>): Promise<string> {
  try {
    return `done ${await work}`
  } catch (error) {
    if (error instanceof Fault) return `${error.code}: ${error.message}`
    return error instanceof Error ? error.message : String(error)
  }
}

async function inDirectory(work: (path: (name: string) => string) => Promise<void>): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'strongroom-pipe-'))
  try {
    await work(name => join(directory, name))
  } finally {
    rmSync(directory, { recursive: true })
  }
}

const to = (command: string, of = stream(), timeoutMs = 60_000) =>
  failure(pipeTo({ command, name: 'strongroom-1.age', timeoutMs }, of))

test('goal: the command reads every byte, knows the name, and its success is the success of the backup', async () => {
  await inDirectory(async path => {
    expect(await to(`cat > ${path('out')}; echo $STRONGROOM_BACKUP_NAME > ${path('name')}`)).toBe('done 1048576')
    expect(readFileSync(path('out')).equals(Buffer.concat(Array(pieces).fill(piece)))).toBe(true)
    expect(readFileSync(path('name'), 'utf8')).toBe('strongroom-1.age\n')
  })
})

test('goal: an exit code, a signal, and an end before the last byte each fail, with the words of the command', async () => {
  expect(await to('cat > /dev/null; echo no such bucket >&2; exit 3')).toBe(
    'host.command_failed: the command of the backup failed: exit code 3: no such bucket',
  )
  expect(await to('cat > /dev/null; kill -9 $$')).toContain('the command of the backup failed: SIGKILL')
  expect(await to('exit 4')).toContain('exit code 4')
  for (const early of ['true', 'head -c 1000 > /dev/null', 'exec < /dev/null; sleep 0.2']) {
    expect([early, await to(early)]).toEqual([
      early,
      expect.stringContaining('the command of the backup ended with 0 before it had read everything'),
    ])
  }
  expect(await to('no-such-program-here')).toContain('exit code 127')
})

test('goal: a stream that fails kills the command before its input ends, so that it stores no part', async () => {
  await inDirectory(async path => {
    // Reports the end of its input, which a killed one never sees.
    const command = `cat > ${path('part')} && touch ${path('complete')}`
    expect(await to(command, stream(8))).toBe('the disk cannot be read')
    await until('the command is gone', 10_000, async () => {
      const { exitCode } = Bun.spawnSync(['pgrep', '--full', path('part')])
      return exitCode === 1
    })
    expect(existsSync(path('complete'))).toBe(false)
  })
})

test('goal: a command that never ends, or never reads, is ended with what it started', async () => {
  const message = 'host.command_timeout: the command of the backup did not end within 0.3 s'
  expect(await to('sleep 600 & cat > /dev/null; wait', stream(), 300)).toBe(message)
  expect(await to('sleep 600', stream(), 300)).toBe(message)
})
