// Goal: `doctor --report` writes one file that a host may hand to strangers, whatever its configuration names.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { run } from '../../rigs/program.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-doctor-report-'))
afterAll(() => rmSync(dir, { recursive: true }))

const key = 'sk-quokka-content-of-a-key-file'
const file = (name: string, content: string) => {
  const path = join(dir, name)
  writeFileSync(path, content, { mode: 0o600 })
  return path
}

const configuration = `
domain = "quokka.example"
[listen]
metrics = "127.0.0.1:0"
[vm]
qemu = "/opt/quokka/qemu-of-ours"
swtpm = "/opt/quokka/swtpm"
image_dir = "/srv/quokka/image"
firmware = "/srv/quokka/firmware.fd"
[kds]
base_url = "https://quokka-mirror.example"
[[inference.upstreams]]
name = "quokka"
url = "https://quokka-models.example/v1"
key_file = "${file('quokka.key', key)}"
models = ["quokka-70b"]
[[inference.prices]]
model = "quokka-70b"
prompt_usd_per_million = "1"
completion_usd_per_million = "1"
`

// Goal: real checks fail with these paths in their words, and the file has neither the paths nor any other text.
test('a configuration full of names', async () => {
  const [path, config] = [join(dir, 'report.json'), file('strongroom.toml', configuration)]
  const argv = ['--config', config, '--state-dir', join(dir, 'state'), 'doctor', '--no-canary', '--report', path]
  const { code, stdout } = await run(...argv)
  expect([code, stdout]).toEqual([1, expect.stringContaining('/srv/quokka/image')])
  const text = readFileSync(path, 'utf8')
  expect(text).not.toContain('quokka')
  expect(text).not.toContain(key)
  const report = JSON.parse(text)
  expect(report.format).toBe('strongroom/hardware-report/v1')
  expect(report.checks.map(({ name }: { name: string }) => name)).toEqual(
    expect.arrayContaining(['platform', 'sev firmware', 'tcb', 'qemu', 'firmware', 'image', 'measurement']),
  )
  expect(report.checks.find(({ name }: { name: string }) => name === 'image').detail).toContain('(configured)')
})
