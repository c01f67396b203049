// The manifest of the worker's image decides what runs: strict JSON of its schema.

import { afterAll, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Fault } from '../../../src/base/fault.ts'
import { readWorkerImage } from '../../../src/inference/worker/root.ts'

const dir = mkdtempSync(join(tmpdir(), 'srt-root-'))
afterAll(() => rmSync(dir, { recursive: true }))

// Goal: a missing or malformed manifest, or one that names a thing twice, is refused with the file's name.
test('manifests that are refused', () => {
  const refusal = (text: string | null) => {
    rmSync(join(dir, 'manifest.json'), { force: true })
    if (text !== null) writeFileSync(join(dir, 'manifest.json'), text)
    try {
      readWorkerImage(dir)
      return null
    } catch (error) {
      return error instanceof Fault ? error : null
    }
  }
  const hash = 'ab'.repeat(32)
  for (const text of [null, '{', '[]', '{}', `{"rootHash":"${hash}","rootHash":"${'00'.repeat(32)}"}`])
    expect([text, refusal(text)?.code, refusal(text)?.message.includes('manifest')]).toEqual([
      text,
      'image.invalid',
      true,
    ])
  expect(refusal(`{"rootHash":"${hash}","rootHash":"${hash}"}`)?.message).toContain('twice')
})
