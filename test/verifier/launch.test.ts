// Goal: the image that a relying party expects is read from a whole manifest, or not at all, and each digest of a
// launch is compared with it.

import { describe, expect, test } from 'bun:test'
import { toHex, utf8 } from '../../src/base/bytes.ts'
import { type LaunchDocument, launchText } from '../../src/contract/vm/launch.ts'
import {
  expectedMeasurement,
  imageCheck,
  launchWords,
  readExpectedImage,
  readLaunch,
} from '../../src/verifier/launch.ts'
import { sampleImage, sampleLaunch, sampleManifestText } from '../rigs/instances/instance-attestation.ts'

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

test('goal: a manifest with one launch digest is whole, and what else stands in it is left out', () => {
  const manifest = JSON.parse(sampleManifestText)
  manifest.launchDigests = { 'qemu-kvm/bios/EPYC-v4/2': '09'.repeat(48) }
  const { name, rootHash, inputsSha256, files, launchDigests } = manifest
  expect(readExpectedImage(utf8(JSON.stringify(manifest)))).toEqual({
    name,
    rootHash,
    inputsSha256,
    files,
    launchDigests,
  })
})

describe('a launch document', () => {
  test('goal: exactly the canonical text is read', () => {
    expect(readLaunch(launchText(sampleLaunch))).toEqual(sampleLaunch)
    expect(() => readLaunch(JSON.stringify(sampleLaunch, null, 1))).toThrow(
      'launch document: not in its canonical form',
    )
    expect(() => readLaunch(`${launchText(sampleLaunch)}\n`)).toThrow('launch document: not in its canonical form')
    expect(() => readLaunch('x')).toThrow('launch document is not valid JSON')
    expect(() => readLaunch(launchText({ ...sampleLaunch, vcpus: '2' as unknown as number }))).toThrow(
      'launch document: /vcpus',
    )
    const { kernelSha256: _, ...rest } = sampleLaunch
    expect(() => readLaunch(launchText(rest as LaunchDocument))).toThrow('launch document: /kernelSha256')
  })

  test('goal: its words for people', () => {
    expect(launchWords(sampleLaunch)).toBe('image instance, ovmf, 2 vCPU of EPYC-v4, 2048 MiB')
  })
})

describe('the image of a launch', () => {
  const judge = (changes: Partial<LaunchDocument> = {}) => {
    const { name, outcome, reason, required } = imageCheck(sampleImage(), { ...sampleLaunch, ...changes })
    expect([name, required]).toEqual(['image', true])
    return [outcome, reason]
  }

  test('goal: it passes with every digest and the measurement of this shape of VM', () => {
    expect(judge()).toEqual(['pass', 'instance, ovmf/EPYC-v4/2'])
    expect(toHex(expectedMeasurement(sampleImage(), sampleLaunch) ?? new Uint8Array(0))).toBe('09'.repeat(48))
    const smaller = { ...sampleLaunch, vcpus: 1 }
    expect(toHex(expectedMeasurement(sampleImage(), smaller) ?? new Uint8Array(0))).toBe('bb'.repeat(48))
    expect(judge({ vcpus: 1, measurement: 'bb'.repeat(48) })).toEqual(['pass', 'instance, ovmf/EPYC-v4/1'])
  })

  const other = 'ff'.repeat(32)
  const image = sampleLaunch.image
  // Goal: each digest of the launch is compared with the manifest.
  test.each<readonly [string, Partial<LaunchDocument>, string, string]>([
    ['image.name', { image: { ...image, name: 'other' } }, 'other', 'instance'],
    ['image.rootHash', { image: { ...image, rootHash: other } }, other, 'a1'.repeat(32)],
    ['image.inputsSha256', { image: { ...image, inputsSha256: other } }, other, 'a2'.repeat(32)],
    ['firmwareSha256', { firmwareSha256: other }, other, 'a3'.repeat(32)],
    ['kernelSha256', { kernelSha256: other }, other, 'a4'.repeat(32)],
    ['initrdSha256', { initrdSha256: other }, other, 'a5'.repeat(32)],
    ['cmdlineSha256', { cmdlineSha256: other }, other, 'a6'.repeat(32)],
  ])('goal: another %s fails', (field, changes, found, expected) => {
    expect(judge(changes)).toEqual(['fail', `${field} is ${found}, the manifest has ${expected}`])
  })

  test('goal: another measurement, or a shape that the manifest does not have, fails', () => {
    expect(judge({ measurement: 'ee'.repeat(48) })).toEqual([
      'fail',
      `measurement is ${'ee'.repeat(48)}, the manifest has ${'09'.repeat(48)} for ovmf/EPYC-v4/2`,
    ])
    for (const [changes, shape] of [
      [{ vcpus: 3 }, 'ovmf/EPYC-v4/3'],
      [{ vcpuType: 'EPYC-Genoa' }, 'ovmf/EPYC-Genoa/2'],
      [{ vehicle: 'igvm' }, 'igvm/EPYC-v4/2'],
    ] as const) {
      expect(judge(changes)).toEqual(['fail', `the manifest has no launch digest for ${shape}`])
      expect(expectedMeasurement(sampleImage(), { ...sampleLaunch, ...changes })).toBeNull()
    }
  })

  test('goal: an IGVM file has a digest of its own, which takes the place of the firmware', () => {
    const launchDigests = { 'qemu-kvm/igvm/EPYC-v4/2': '09'.repeat(48) }
    const launch = { ...sampleLaunch, vehicle: 'igvm', firmwareSha256: other } as const
    expect(imageCheck({ ...sampleImage(), launchDigests }, launch)).toMatchObject({
      outcome: 'pass',
      reason: 'instance, igvm/EPYC-v4/2',
    })
  })

  test('goal: without an image it is left open by choice; without a document no verdict passes', () => {
    expect(imageCheck('any', sampleLaunch)).toMatchObject({ name: 'image', outcome: 'not-checked', required: false })
    expect(imageCheck(sampleImage(), null)).toEqual({
      name: 'image',
      outcome: 'not-checked',
      reason: 'the launch document cannot be read',
      required: true,
    })
  })
})
