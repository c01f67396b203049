// Goal: the page reads a build's archive as the command line does, and refuses what that refuses.

import { expect, test } from 'bun:test'
import { paxRecord, type TarEntry, tarOf } from '../../../../scripts/rigs/archive-bytes.ts'
import { utf8 } from '../../../../src/base/bytes.ts'
import { readResultFiles } from '../../../../src/console/web/tenant/verify/result-files.ts'

const file = (name: string, text = 'x'): TarEntry => ({ name, content: utf8(text) })
const read = (...entries: TarEntry[]) => readResultFiles(Uint8Array.from(tarOf(entries)))

// Goal: the one top-level directory is left out, long names are whole, and gzip makes no difference.
test('an archive', async () => {
  const long = `project/artifacts/${'a'.repeat(120)}`
  const entries = [
    file('project/provenance.json', '{}'),
    file('project/evidence.json', '[]'),
    { name: 'pax', type: 'x', content: utf8(paxRecord('path', long)) },
    file('short'),
  ]
  const tar = Uint8Array.from(tarOf(entries))
  const found = await readResultFiles(tar)
  expect([...found.documents.keys()]).toEqual(['provenance.json', 'evidence.json'])
  expect([...found.digests.keys()].at(-1)).toBe(long.slice('project/'.length))
  const zipped = await readResultFiles(Uint8Array.from(Bun.gzipSync(tar)))
  expect([...zipped.digests]).toEqual([...found.digests])
})

// Goal: an archive that would write elsewhere, or says one thing twice, gets no verdict.
test('refusals', async () => {
  for (const name of ['../x', '/etc/passwd', 'a/../b', 'a//b', 'ü']) {
    await expect(read(file(name))).rejects.toThrow(/leaves the archive/)
  }
  await expect(read(file('a/b'), file('a/b'))).rejects.toThrow(/twice/)
  await expect(read({ name: 'a', type: '2', link: '/etc/passwd' })).rejects.toThrow(/neither a file/)
  const whole = Uint8Array.from(tarOf([file('a', 'x'.repeat(600))]))
  await expect(readResultFiles(whole.slice(0, 700))).rejects.toThrow(/ends early/)
  await expect(readResultFiles(Uint8Array.of(0x1f, 0x8b, 1, 2, 3))).rejects.toThrow(/gzip is damaged/)
})
