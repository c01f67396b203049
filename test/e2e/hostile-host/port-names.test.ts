// A host that names a virtio-serial port like a path: what init makes of it in an instance or a builder before any
// claim. Init's own lines run here, by the image's shell, over directories of the test.

import { afterAll, describe, expect, test } from 'bun:test'
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { present } from '../../../src/base/assert.ts'

const root = mkdtempSync(join(tmpdir(), `srt-${process.pid}-ports-`))
afterAll(() => rmSync(root, { recursive: true, force: true }))
const init = readFileSync(join(import.meta.dir, '../../../guest-image/common/root/usr/lib/strongroom/init'), 'utf8')

/** Lines of init that name ports, below `root`. None if no links are made: then there is nothing to attack. */
function linesOfInit(): string {
  const [lines] = /^ {2}for port in \/sys\/class\/virtio-ports\/\*; do\n[\s\S]*?^ {2}done$/m.exec(init) ?? ['']
  return lines
    .replaceAll('/sys/class/virtio-ports', `${root}/sys/class/virtio-ports`)
    .replaceAll('/dev/virtio-ports', `${root}/dev/virtio-ports`)
}

async function boot(names: readonly string[]): Promise<void> {
  rmSync(root, { recursive: true, force: true })
  for (const dir of ['dev/virtio-ports', 'sys/class/virtio-ports', 'usr/lib/strongroom'])
    mkdirSync(join(root, dir), { recursive: true })
  for (const [at, name] of names.entries()) {
    const port = join(root, `sys/class/virtio-ports/vport0p${at + 1}`)
    mkdirSync(port)
    writeFileSync(join(port, 'name'), `${name}\n`)
  }
  writeFileSync(join(root, 'usr/lib/strongroom/sessions'), 'what the measured root has\n')
  const shell = present(Bun.which('busybox') ?? Bun.which('sh'), 'a shell')
  const argv = shell.endsWith('busybox') ? [shell, 'sh'] : [shell]
  expect(await Bun.spawn([...argv, '-c', linesOfInit()]).exited).toBe(0)
}

// Goal: the name of a port is no path.
describe('the name of a port is no path', () => {
  test('a file of the measured root stays what it is', async () => {
    await boot(['strongroom.agent.0', '../../usr/lib/strongroom/sessions'])
    const file = join(root, 'usr/lib/strongroom/sessions')
    expect(lstatSync(file).isSymbolicLink()).toBe(false)
    expect(existsSync(file) && readFileSync(file, 'utf8')).toBe('what the measured root has\n')
  })

  test('nothing is made beside /dev/virtio-ports', async () => {
    await boot(['strongroom.agent.0', '../../usr/lib/strongroom'])
    expect(readdirSync(join(root, 'usr/lib/strongroom'))).toEqual(['sessions'])
  })
})
