// Goal: the image that a relying party expects is read from a whole manifest, or not at all.

import { describe, expect, test } from 'bun:test'
import { utf8 } from '../../src/base/bytes.ts'
import { readExpectedImage } from '../../src/verifier/launch.ts'
import { sampleManifestText } from '../rigs/instances/instance-attestation.ts'

describe('a manifest', () => {
  const edited = (edit: (manifest: Record<string, never>) => void) => {
    const manifest = JSON.parse(sampleManifestText)
    edit(manifest)
    return utf8(JSON.stringify(manifest))
  }
  // Goal: what is no whole manifest is refused in words.
  test.each<readonly [string, Uint8Array, string]>([
    ['no JSON', utf8('x'), 'manifest is not valid JSON'],
    ['a name twice', utf8(sampleManifestText.replace('{', '{"name":"x",')), 'has the field "name" twice'],
    ['no digests', edited(item => delete item.launchDigests), 'manifest: /launchDigests'],
    ['empty digests', edited(item => Object.assign(item, { launchDigests: {} })), 'launchDigests is empty'],
    [
      'a short digest',
      edited(item => Object.assign(item, { launchDigests: { a: 'bb' } })),
      'manifest: /launchDigests/a',
    ],
    ['no kernel', edited(item => Object.assign(item.files ?? {}, { kernel: undefined })), 'manifest: /files/kernel'],
  ])('%s', (_, bytes, reason) => {
    expect(() => readExpectedImage(bytes)).toThrow(reason)
  })
})
