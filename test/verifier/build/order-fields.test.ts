// Goal: what a verifier does with each field of an order, written out; that each rule holds is in order.slow.test.ts.

import { expect, test } from 'bun:test'
import { ORDER_FIELDS } from '../../../src/verifier/build/order.ts'

test('goal: a field that is only shown, and was compared before, fails', () => {
  const by = (rule: string) =>
    Object.entries(ORDER_FIELDS).flatMap(([path, is]) =>
      (typeof is === 'object' ? 'shown' : is) === rule ? [path] : [],
    )
  expect(by('receipts')).toEqual(['jobId', 'nonce', 'builderId'])
  expect(by('asked')).toEqual([
    'source.kind',
    'source.name',
    'source.url',
    'source.ref',
    'projectDir',
    'toolchain',
    'reproduce',
    'options.cargo.package',
    'options.cargo.bin',
    'options.cargo.features',
    'options.cargo.noDefaultFeatures',
    'options.cargo.profile',
    'options.cargo.target',
    'options.cargo.rustMirror',
    'options.nix.output',
    'options.nix.caches',
    'options.go.proxy',
    'options.npm.registry',
    'options.pnpm.registry',
    'waivers',
    'accepts.caSha256',
    'accepts.cratesMirror',
    'fetch.cratesMirror',
    'fetch.ca',
  ])
  expect(by('shown')).toEqual([
    'source.sizeBytes',
    'source.sha256',
    'imageSummary',
    'limits.sourceBytes',
    'limits.sourceEntries',
    'limits.fetchSeconds',
    'limits.fetchBytes',
    'limits.buildSeconds',
    'limits.memoryBytes',
    'limits.pids',
    'limits.diskBytes',
    'limits.logBytes',
    'limits.artifactBytes',
    'limits.artifactCount',
    'fetch.proxy',
  ])
})
