// Goal: output arrives whole, once and in order, whatever it is written to; what cannot be written is no success.

import { afterAll, expect, setDefaultTimeout, test } from 'bun:test'
import {
  closeSync,
  constants,
  mkdtempSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isTerminal } from '../../src/terminal/standard-stream.ts'
import { main } from '../rigs/program.ts'

setDefaultTimeout(120_000)

const dir = mkdtempSync(join(tmpdir(), 'srt-standard-stream-'))
afterAll(() => rmSync(dir, { recursive: true }))

// Prints a text of each size to stdout and a word to stderr. Nobody waits for one before the next: the order holds.
const program = join(dir, 'program.ts')
const source = join(import.meta.dir, '../../src/terminal/standard-stream.ts')
writeFileSync(
  program,
  `import { standardStream } from ${JSON.stringify(source)}
const failed = (error: unknown) => process.exit((error as { code?: string }).code === 'EPIPE' ? 0 : 7)
const out = standardStream('stdout', failed)
const err = standardStream('stderr', failed)
const sizes = process.argv.slice(2).map(Number)
await Promise.all(sizes.flatMap((size, at) => [out('x'.repeat(size) + at + '\\n'), err('e' + at + '\\n')]))
process.exit(3)
`,
)

const argvOf = (sizes: readonly number[]) => [process.execPath, program, ...sizes.map(String)]
const outOf = (sizes: readonly number[]) => sizes.map((size, at) => `${'x'.repeat(size)}${at}\n`).join('')
const errOf = (sizes: readonly number[]) => sizes.map((_, at) => `e${at}\n`).join('')

const lists = [[[10]], [[10, 10, 10]], [[300_000]], [[10, 300_000, 10]], [[70_000, 10]]] as const

// Goal: a program that reads gets every byte.
test.each(lists)('to a pipe: %j', async sizes => {
  const child = Bun.spawn(argvOf(sizes), { stdout: 'pipe', stderr: 'pipe' })
  const [stdout, stderr, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited])
  expect([code, stdout === outOf(sizes), stderr]).toEqual([3, true, errOf(sizes)])
})

// Goal: a log that is appended to keeps what it has.
test.each(lists)('to the ends of files: %j', async sizes => {
  const paths = ['out', 'err'].map(name => join(dir, name))
  const fds = paths.map(path => {
    writeFileSync(path, 'before\n')
    return openSync(path, 'a')
  })
  expect(await Bun.spawn(argvOf(sizes), { stdio: ['ignore', fds[0], fds[1]] }).exited).toBe(3)
  for (const fd of fds) closeSync(fd)
  const [stdout, stderr] = paths.map(path => readFileSync(path, 'utf8'))
  expect([stdout === `before\n${outOf(sizes)}`, stderr]).toEqual([true, `before\n${errOf(sizes)}`])
})

// Goal: a pipe that does not wait takes what fits, and the rest follows; nothing comes twice.
test.each([[[60_000]], [[60_000, 60_000]], [[3_000, 10]]] as const)(
  'to a full pipe that does not wait: %j',
  async sizes => {
    const path = join(dir, `pipe-${sizes.join('-')}`)
    expect(Bun.spawnSync(['mkfifo', path]).exitCode).toBe(0)
    const fd = openSync(path, constants.O_RDWR | constants.O_NONBLOCK)
    const full = 'f'.repeat(4096).repeat(15)
    expect(writeSync(fd, full)).toBe(full.length)
    // The runtime starts children with descriptors that wait.
    const perl = ['perl', '-MFcntl', '-e', 'fcntl(STDOUT, F_SETFL, O_WRONLY | O_NONBLOCK) or die; exec @ARGV or die']
    const child = Bun.spawn([...perl, ...argvOf(sizes)], { stdio: ['ignore', fd, 'pipe'] })
    // It has begun: what fits is in the pipe.
    const { value } = await child.stderr.getReader().read()
    expect(new TextDecoder().decode(value)).toStartWith('e0\n')
    let ended = false
    void child.exited.then(() => {
      ended = true
    })
    let text = ''
    const buffer = new Uint8Array(1 << 20)
    const drain = () => {
      try {
        for (;;) text += Buffer.from(buffer.subarray(0, readSync(fd, buffer))).toString()
      } catch (error) {
        expect((error as { code?: unknown }).code).toBe('EAGAIN')
      }
    }
    while (!ended) {
      drain()
      await Bun.sleep(1)
    }
    drain()
    closeSync(fd)
    expect([await child.exited, text === full + outOf(sizes)]).toEqual([3, true])
  },
)

// Goal: a program that has read enough ends what writes.
test('to a reader that goes away', async () => {
  const many = Array.from({ length: 2_000 }, () => 1_000)
  const child = Bun.spawn(['sh', '-c', '"$@" 2>&- | head -c 3', 'sh', ...argvOf(many)], {
    stdout: 'pipe',
    stderr: 'pipe',
  })
  expect([await child.stdout.text(), await child.stderr.text()]).toEqual(['xxx', ''])
})

// Goal: a script that keeps a verdict on a full disk must not read exit code 0.
test('to a full disk', async () => {
  const fd = openSync('/dev/full', 'w')
  const child = Bun.spawn([process.execPath, main, 'version', '--json'], { stdio: ['ignore', fd, 'pipe'] })
  const [stderr, code] = await Promise.all([child.stderr.text(), child.exited])
  closeSync(fd)
  expect([code, stderr]).toEqual([1, expect.stringContaining('"message":"output failed"')])
  expect(stderr).toContain('ENOSPC')
})

// Goal: colours and questions are for people alone.
test('terminals are told from what only looks like one', async () => {
  const files = ['/dev/null', '/dev/full', program].map(path => openSync(path, 'r'))
  expect(await Promise.all([...files, 999].map(fd => isTerminal(fd)))).toEqual([false, false, false, false])
  for (const fd of files) closeSync(fd)
  const words = [
    process.execPath,
    '--eval',
    `import { isTerminal } from ${JSON.stringify(source)}; process.exit((await isTerminal(1)) ? 5 : 6)`,
  ]
  const quoted = words.map(word => `'${word.replaceAll("'", `'\\''`)}'`).join(' ')
  expect(Bun.spawnSync(['script', '--quiet', '--return', '--command', quoted, '/dev/null']).exitCode).toBe(5)
  expect(Bun.spawnSync(words, { stdout: 'pipe' }).exitCode).toBe(6)
})
